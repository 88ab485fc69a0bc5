"""The `triage_labels` table: real mail against labels that people gave it.

The pre-filter against ham and spam, and `asked_of_me` against the speech acts of the BC3 corpus
(Ulrich et al., 2008): three people marked, in each thread, the sentences that request something.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from benchmarks.table import columns
from bot.local.google.gmail_mime import attachment_id, parts_of
from bot.local.google.mbox import StoredMessage, load_mbox
from bot.tasks.prefilter import why_automatic
from config.words import phrase
from scopes.google.gmail_payload import message_of
from scopes.google.gmail_threads import thread_of
from scopes.mail import MailThread

MBOX = Path("../shared/data/dev/mail.mbox")
PEOPLE = ("ham", "discussion", "office")
KINDS = {"bc3": "discussion", "enron-labelled": "office", "mikel-mail-fixtures": "no label"}
"""Source of a mail -> what it is; the other ones say it themselves."""
NOTES = """\
discussion: BC3, mailing lists where people talk. office: Enron, mail among colleagues. ham, spam:
SpamAssassin's test mails. no label: test mails of a mail library, people's and programs'.
By headers alone: as if Gmail had put no mail into Spam."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """A thread with its label, and why it is filtered, with Gmail's labels and without."""

    thread: MailThread
    kind: str
    reason: str | None
    by_headers: str | None


def triage_labels(mbox: Path | None, model: str) -> str:
    """Both comparisons as text; says in words what cannot be compared."""
    mbox = mbox or MBOX
    names = ("email_messages.json", "email_bc3_summaries.json")
    paths = [mbox.parent / "labels" / name for name in names]
    if not all(path.exists() for path in (mbox, *paths)):
        return f"Not measured: {mbox} and the labels beside it are not here."
    told, acts = (json.loads(path.read_text("utf-8")) for path in paths)
    return f"{prefilter_text(filtered(mbox, told))}\n\n{asked_text(acts, mbox, model)}"


def filtered(mbox: Path, told: Iterable[Mapping[str, Any]]) -> list[Filtered]:
    """Each thread of a mailbox as the pre-filter sees it."""
    mailbox = load_mbox(mbox)
    kinds = {str(each["thread_id"]): kind_of(each) for each in told}
    stored: dict[str, list[StoredMessage]] = defaultdict(list)
    for message in mailbox.messages:
        stored[message.thread].append(message)
    found = []
    for id, messages in stored.items():
        thread = _thread(id, messages)
        bare = replace(
            thread,
            messages=tuple(replace(m, labels=m.labels - {"SPAM"}) for m in thread.messages),
        )
        why = [why_automatic(each, mailbox.address) for each in (thread, bare)]
        reasons = [each and phrase(each) for each in why]
        found.append(Filtered(thread, kinds.get(id, "no label"), *reasons))
    return found


def kind_of(told: Mapping[str, Any]) -> str:
    return KINDS.get(told["source"]) or str(told["label"])


def _thread(id: str, messages: Sequence[StoredMessage]) -> MailThread:
    """The thread as it comes from Gmail."""
    found = []
    for message in messages:
        parts = parts_of(message.raw)
        at = int(message.at.timestamp() * 1_000)
        about = {"id": message.id, "threadId": id, "labelIds": sorted(message.labels)}
        resource = about | {"internalDate": str(at), "payload": parts.json(message.id)}
        texts = {attachment_id(message.id, p.id): p.content for p in parts.walk()}
        found.append(message_of(resource, texts))
    return thread_of(id, "", found)


def prefilter_text(threads: Sequence[Filtered]) -> str:
    head = ["pre-filter", "threads", "filtered", "by headers alone", "why"]
    lines = []
    for kind in (*PEOPLE, "no label", "spam"):
        ours = [each for each in threads if each.kind == kind]
        why = Counter(each.reason for each in ours if each.reason)
        lines.append(
            [
                kind,
                str(len(ours)),
                str(sum(why.values())),
                str(sum(each.by_headers is not None for each in ours)),
                ", ".join(f"{count} {reason}" for reason, count in why.most_common()),
            ]
        )
    wrong = [each for each in threads if each.kind in PEOPLE and (each.reason or each.by_headers)]
    unsure = [each for each in threads if each.kind == "no label" and each.reason]
    told = [f"People's threads that are filtered: {len(wrong) or 'none'}", *map(_line, wrong)]
    told += ["Filtered without a label to compare with:", *map(_line, unsure)]
    table = columns(head, lines, left=(4,))
    return "\n".join([table, "", NOTES, "", *told])


def _line(each: Filtered) -> str:
    first = each.thread.messages[0].text
    return f"  {each.reason or each.by_headers}: {first.sender[:60]!a}, {first.subject[:60]!a}"


def asked_text(acts: Sequence[Mapping[str, Any]], mbox: Path, model: str) -> str:
    """How often a verdict's `asked_of_me` is what people say of the thread."""
    document = triaged(mbox, model)
    verdicts = document.get("verdicts")
    if verdicts is None:
        error = document.get("error", {}).get("message", "it printed no document")
        return f"asked_of_me: not measured: `assistant triage` failed: {error}"
    said = {each["thread_id"]: bool(each["asked_of_me"]) for each in verdicts}
    votes = {str(each["thread_id"]): _votes(each) for each in acts}
    return agreement_text(votes, {id: said[id] for id in votes if id in said}, model)


def triaged(mbox: Path, model: str) -> dict[str, Any]:
    """The document of the command; empty where it printed none."""
    command = [sys.executable, "-m", "bot", "triage", "--mbox", str(mbox), "--model", model]
    done = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, check=False, text=True)
    try:
        return dict(json.loads(done.stdout))
    except ValueError:
        return {}


def _votes(thread: Mapping[str, Any]) -> list[bool]:
    """Who of the annotators marked a request in it."""
    return [bool(each["speech_acts"].get("req")) for each in thread["annotators"]]


def agreement_text(votes: Mapping[str, list[bool]], said: Mapping[str, bool], model: str) -> str:
    """`said` against most annotators, against each, and the annotators against one another."""
    most = {id: sum(votes[id]) * 2 > len(votes[id]) for id in said}
    right = sum(said[id] == most[id] for id in said)
    each = [said[id] == vote for id in said for vote in votes[id]]
    pairs = [a == b for vote in votes.values() for a, b in combinations(vote, 2)]
    found = sum(said[id] for id in said if most[id])
    kept = sum(not said[id] for id in said if not most[id])
    asked = sum(most.values())
    missing = len(votes) - len(said)
    return "\n".join(
        [
            f"asked_of_me, --model {model}, {len(said)} BC3 threads ({missing} without a verdict)",
            f"  as most annotators: {right} of {len(said)}; to say always yes: {asked}",
            f"  where they see a request: {found} of {asked}; where not: {kept} of"
            f" {len(said) - asked}",
            f"  as one annotator: {sum(each)} of {len(each)};"
            f" one annotator as another: {sum(pairs)} of {len(pairs)}",
        ]
    )
