"""Two baselines: one context that reads everything with the same tools, and scripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from bot.context import App
from bot.evaluation.cases import Case, Job
from bot.reports.documents import AnswerDocument, TokenUsage
from bot.tasks.base import coverage_of
from config.prompts import prompt
from config.words import ENGLISH
from scopes import ALL, scope_of
from scopes.effects import OPEN_MAIL, Handles
from scopes.label import TRUSTED
from scopes.slack_reader import ChannelInfo
from scopes.tool import Window
from subagents.brief import Brief, BriefDraft
from subagents.fanout import Fanout
from subagents.result import SubagentResult
from subagents.run import Run

if TYPE_CHECKING:
    from bot.local.google.mbox import Mailbox
    from bot.local.workspace import Channel, Message, Workspace

MAIL_TASK = (
    "Read every mail thread of the mailbox. List each in which something is asked of the reader "
    "that is not done yet, or that is urgent, as a finding with the state unanswered, and all "
    "others in no_issue."
)


def brief_of_job(run: Run, job: Job, channels: Sequence[ChannelInfo], window: Window) -> Brief:
    """Return the brief of one context that does a whole job: it reads all that is open."""
    titles = {channel.id: channel.name for channel in channels}
    task, contract, language = job.question, "answer", None
    if job.task == "sweep":
        names = ", ".join(titles.values())
        task, contract = prompt("sweep_task").replace("{name}", names), "issues"
        language = ENGLISH
    elif job.task == "triage":
        task, contract, titles, language = MAIL_TASK, "issues", {OPEN_MAIL: ""}, ENGLISH
    else:
        titles |= run.handles
    kinds = {scope_of(handle) for handle in titles}
    draft = BriefDraft(
        task=task,
        description="One context",
        scope=kinds.pop() if len(kinds) == 1 else ALL,
        contract=contract,
        handles=tuple(titles),
    )
    return Brief(draft, Handles(titles), window, TRUSTED, language, requester=run.requester)


async def one_context(app: App, run: Run, brief: Brief) -> SubagentResult:
    """Run a brief in one context, without a parent."""
    (result,) = await Fanout(run, app.spawner(run)).run_all([brief])
    return result


def context_document(run: str, model: str, job: Job, result: SubagentResult) -> AnswerDocument:
    """Return what is stored of such a run."""
    return AnswerDocument(
        run_id=run,
        status=result.status,
        model=model,
        question=job.question or job.task,
        answer=result.text,
        coverage=coverage_of([result]),
        unsupported=len(result.unsupported),
        usage=TokenUsage.model_validate(result.usage),
        cost_usd=result.cost_usd,
        subagents=[result],
    )


def asker_spoke_last(workspace: Workspace, until: datetime) -> frozenset[str]:
    """Return the threads, as `channel/ts`, whose last message is by the one who opened them."""
    return frozenset(
        f"{channel.name}/{messages[0].ts}"
        for channel in workspace.channels
        for messages in _threads(channel, until)
        if messages[-1].user == messages[0].user
    )


def _threads(channel: Channel, until: datetime) -> Iterator[list[Message]]:
    """Yield the messages of each thread that were written before `until`, the oldest first."""
    threads: dict[str, list[Message]] = {}
    for message in sorted(channel.messages, key=lambda each: float(each.ts)):
        if float(message.ts) < until.timestamp():
            threads.setdefault(message.thread_ts or message.ts, []).append(message)
    yield from threads.values()


def newest(mailbox: Mailbox, cases: Iterable[Case]) -> frozenset[str]:
    """Return the newest of the threads of these cases, as many as need their reader."""
    latest: dict[str, datetime] = {}
    for message in mailbox.messages:
        latest[message.thread] = max(message.at, latest.get(message.thread, message.at))
    listed = [case for case in cases if case.item in latest]
    order = sorted(listed, key=lambda case: (latest[case.item], case.item), reverse=True)
    many = sum(bool(case.expected.needed) for case in listed)
    return frozenset(case.item for case in order[:many])


def with_question_mark(mailbox: Mailbox) -> frozenset[str]:
    """Return the threads in which a mail has a question mark in its text."""
    return frozenset(m.thread for m in mailbox.messages if b"?" in m.raw.partition(b"\r\n\r\n")[2])
