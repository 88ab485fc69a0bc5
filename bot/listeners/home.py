"""Build and publish App Home: abilities, mailbox, preferences, schedules, runs."""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from bot.errors import SetupError
from bot.mailbox.oauth import MailAccess, MailboxConnector
from bot.policy.policy import (
    DIRECT,
    Admission,
    AdmissionFacts,
    Permitted,
    PolicyFault,
    closest_rule,
    day_of,
    decide,
    needed_groups,
)
from bot.schedules import description
from bot.schedules.store import ScheduleStore
from bot.slack.assistant_pane import attempt
from bot.slack.blocks import (
    Block,
    Element,
    actions,
    button,
    channel,
    context_block,
    header,
    paragraph,
    plain_section,
    plain_text_block,
    rich,
    section,
    user,
)
from bot.slack.people import ChannelFacts
from bot.storage.database import Database
from bot.storage.requests import RequestQueue
from bot.tooling.provider import Toolkit
from config.sections import Policy
from config.words import current, in_language, phrase
from scopes import permitted_scopes
from scopes.effects import OPEN_MAIL
from scopes.preferences import Preference, Preferences
from scopes.slack import OPEN_CHANNELS
from scopes.slack_items import permalink, plain
from scopes.tool import one_line
from subagents.directory import Directory

ABILITIES = {
    OPEN_CHANNELS: ("slack", "slack"),
    OPEN_MAIL: ("email", "email"),
    "data:": ("data", "data"),
    "sheet:": ("data", "sheets"),
    "web:search": ("web", "web"),
    "web:read": ("web", "pages"),
    "notes:": ("notes", "notes"),
    "files:run$": ("files", "files"),
    "files:(?!run$)": ("files", "folders"),
    "mcp:": ("", "more"),
}
"""Pattern of a handle -> its scope, and the key of what a user can do with it.

The scope of an MCP server is in the title of its handle.
"""


def abilities(scopes: Collection[str], handles: Mapping[str, str]) -> list[str]:
    """List what a request with these scopes and handles can do."""

    def within(scope: str) -> bool:
        return scope in (*scopes, *permitted_scopes(scopes))

    lines = [
        phrase(f"can.{key}")
        for pattern, (scope, key) in ABILITIES.items()
        if any(
            re.match(pattern, handle) and within(scope or title.removeprefix("scope "))
            for handle, title in handles.items()
        )
    ]
    return lines or [phrase("can.nothing")]


async def readable_handles(toolkit: Toolkit, directory: Directory, user: str) -> dict[str, str]:
    """Return handle -> title of the sources that this user may use besides Slack and mail.

    The result is empty if a request could not be opened either. Raises StoreError.
    """
    try:
        opened = await toolkit.open("home", user)
    except SetupError as error:
        log.warning("nothing is open to requests: %s", error)
        return {}
    may = {h: await directory.may_read(user, h) for h in opened.handles}
    return {h: title for h, title in opened.handles.items() if may[h]}


CONNECT, CODE, CANCEL, DISCONNECT, FORGET = (
    "home_mail_connect",
    "home_mail_code",
    "home_mail_cancel",
    "home_mail_disconnect",
    "home_mail_forget",
)
"""Action ids of the mailbox buttons, and of the field for the code."""
MOST_CORRECTED, MAX_CORRECTED = 20, 130
"""Maximum number of corrections shown, and of characters in each."""
LINK = "home_mail_link"
"""Action id of the button that only opens a page."""

DELETE = "home_preference_delete"
"""Action id of the button next to a preference; its value is the id of that preference."""
MOST_SCHEDULES = 10
"""Maximum number of schedules shown; the rest is counted."""
LAST_RUNS = 5
QUESTION_CHARS = 140

_NAMED_ID_PATTERN = (
    r"<[@#]([CDGUW][A-Z0-9]{2,40})(?:\|[^<>]*)?>"
    r"|(?<=, TO)([CDGUW][A-Z0-9]{2,40})(?=[,;])"
)
"""A person or channel in a request, and the destination, after TO, in a line about a schedule."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LastRun:
    question: str
    status: str
    started: datetime
    cost_usd: float | None
    link: str | None
    """Link to its answer in Slack; None until there is one."""


@dataclass(frozen=True, slots=True)
class HomeFacts:
    """The contents of one user's Home."""

    refusal: str = ""
    """Why this user may not ask; empty if they may."""
    places: tuple[str, ...] = ()
    """Where this user's requests are answered, in sentences."""
    scopes: tuple[str, ...] = ()
    handles: Mapping[str, str] = field(default_factory=dict)
    """Handle -> title of everything that this user's requests may use now."""
    runs: tuple[LastRun, ...] = ()
    spent_usd: float = 0.0
    """US dollars spent by this user since 00:00 UTC."""
    daily_usd: float | None = None
    paused: str | None = None
    """Who paused the assistant; None = it is running."""
    admin: bool = False
    mail: MailAccess | None = None
    """State of this user's mailbox; None = mail is not available to them."""
    preferences: tuple[Preference, ...] = ()
    schedules: tuple[str, ...] = ()


def view(facts: HomeFacts) -> Block:
    """Render a user's Home as Block Kit."""
    return {"type": "home", "blocks": list(_blocks(facts))}


def _blocks(facts: HomeFacts) -> Iterator[Block]:
    if facts.paused is not None:
        yield section(f":double_vertical_bar: {phrase('home.paused', by=_who(facts.paused))}")
    if facts.refusal:
        yield section(facts.refusal)
    else:
        yield header(phrase("home.abilities"))
        yield section("\n".join(abilities(facts.scopes, facts.handles)))
        yield header(phrase("home.places"))
        places = "\n".join(f"• {place}" for place in facts.places)
        yield section(places or phrase("home.nowhere"))
    if facts.mail:
        yield from _mail_blocks(facts.mail, facts.admin)
    yield from _preference_blocks(facts.preferences)
    yield from schedule_blocks(facts.schedules)
    yield header(phrase("home.requests"))
    for run in facts.runs[:LAST_RUNS]:
        yield from _run(run)
    if not facts.runs:
        yield section(phrase("home.no_requests"))
    yield {"type": "divider"}
    yield context_block(_format_spent(facts))
    yield context_block(phrase("home.connected"))


def _mail_blocks(mail: MailAccess, admin: bool) -> Iterator[Block]:
    """Yield the state of the mailbox, and the buttons for it."""
    yield header(phrase("home.mail"))
    if mail.note:
        yield plain_section(mail.note)
    if mail.state == "off":
        text = phrase("mail.not_connected", how=phrase("mail.cannot_connect"))
        yield plain_section(phrase("mail.how_to_offer") if admin else text)
    elif mail.state == "delegated":
        yield plain_section(phrase("mail.delegated"))
    elif mail.state == "absent":
        yield plain_section(phrase("mail.absent"))
        yield actions([button(CONNECT, phrase("button.connect"), style="primary")])
    elif mail.state == "offered":
        yield plain_section(phrase("mail.offered"))
        link = button(LINK, phrase("button.open_page"), style="primary", url=mail.link)
        yield actions([link, button(CANCEL, phrase("button.cancel"))])
    elif mail.state == "waiting":
        yield plain_section(phrase("mail.waiting", address=mail.address))
        yield _code_field()
        yield actions([button(CANCEL, phrase("button.cancel"))])
    else:
        yield plain_section(phrase("mail.connected", address=mail.address))
        text = phrase("mail.disconnect_means", address=mail.address)
        sure = _confirm(phrase("mail.disconnect"), text, phrase("button.disconnect"))
        end = button(DISCONNECT, phrase("button.disconnect"), style="danger", confirm=sure)
        yield actions([button(CONNECT, phrase("button.connect_again")), end])
    if mail.corrected:  # addresses come from strangers, so they are shortened
        lines = [each[:MAX_CORRECTED] for each in mail.corrected]
        yield plain_section("\n".join([phrase("mail.corrected"), *_list(lines, MOST_CORRECTED)]))
        yield actions([button(FORGET, phrase("button.forget_all"))])


def _code_field() -> Block:
    return {
        "type": "input",
        "dispatch_action": True,
        "label": plain_text_block(phrase("mail.code")),
        "hint": plain_text_block(phrase("mail.code_hint")),
        "element": {
            "type": "plain_text_input",
            "action_id": CODE,
            "max_length": 20,
            "dispatch_action_config": {"trigger_actions_on": ["on_enter_pressed"]},
        },
    }


def _preference_blocks(preferences: Sequence[Preference]) -> Iterator[Block]:
    """Yield how the user wants to be answered, each with a button that deletes it."""
    yield header(phrase("home.preferences"))
    for each in preferences:
        delete = button(DELETE, phrase("button.delete"), value=str(each.id))
        yield plain_section(each.text, accessory=delete)
    yield context_block(phrase("home.preferences_hint"))


def schedule_blocks(lines: Sequence[str]) -> Iterator[Block]:
    """Yield the section on schedules; nothing for a user without any."""
    if lines:
        yield header(phrase("home.schedules"))
        # rich text, as patterns and requests contain markup characters
        yield rich(paragraph(*_with_names("\n".join(_list(lines, MOST_SCHEDULES))[:3000])))


def _list(lines: Sequence[str], most: int) -> list[str]:
    more = len(lines) - most
    rest = [phrase("more", n=more)] if more > 0 else []
    return [*(f"• {line}" for line in lines[:most]), *rest]


def _run(run: LastRun) -> Iterator[Block]:
    question = one_line(run.question) or phrase("home.no_text")
    yield rich(paragraph(*_shorten(_with_names(question))))
    stamp = f"{run.started.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    when = f"<!date^{int(run.started.timestamp())}^{{date_short_pretty}} {{time}}|{stamp}>"
    link = [f"<{run.link}|{phrase('home.open_answer')}>"] if run.link else []
    state = phrase(f"run.{run.status}")
    yield context_block(" · ".join([state, *_cost(run.cost_usd), when, *link]))


def _with_names(text: str) -> Iterator[str | Element]:
    """Split a text into plain text, and people and channels that Slack shows by name."""
    to = re.escape(phrase("schedule.to", place=""))
    start = 0
    for found in re.finditer(_NAMED_ID_PATTERN.replace("TO", to), text):
        yield plain(text[start : found.start()], {})
        id = found[1] or found[2]
        yield user(id) if id[0] in "UW" else channel(id)
        start = found.end()
    yield plain(text[start:], {})


def _shorten(parts: Iterable[str | Element]) -> Iterator[str | Element]:
    available = QUESTION_CHARS
    for part in parts:
        if isinstance(part, str) and len(part) > available:
            yield f"{part[: available - 1].rstrip()}…"
            return
        available -= len(part) if isinstance(part, str) else 1
        yield part


def _cost(usd: float | None) -> list[str]:
    if usd is None:
        return []
    if usd >= 0.01 or usd == 0:
        return [current().usd(usd)]
    return [phrase("home.under", amount=current().usd(0.01))]


def _format_spent(facts: HomeFacts) -> str:
    amount = current().usd(facts.spent_usd)
    if facts.daily_usd is None:
        return phrase("home.spent", amount=amount)
    return phrase("home.spent_of", amount=amount, limit=current().usd(facts.daily_usd))


def _who(by: str) -> str:
    return by if re.fullmatch(r"<@[UW][A-Z0-9]+>", by) else html.escape(one_line(by), quote=False)


def _confirm(title: str, text: str, words: str) -> Block:
    texts = {"title": title, "text": text, "confirm": words, "deny": phrase("button.cancel")}
    return {name: plain_text_block(each, 300) for name, each in texts.items()}


@dataclass(frozen=True)
class Home:
    """Collects the contents of a user's Home, publishes it, and handles its buttons."""

    admission: Admission
    reach: Callable[[str], Awaitable[Mapping[str, str]]]
    """Returns what requests of a user may use: see `readable_handles`."""
    connecting: MailboxConnector
    preferences: Preferences

    def __post_init__(self) -> None:
        self.connecting.publish = self.show

    async def show(self, user: str, team: str) -> None:
        """Publish Home for a user who opened it. Raises StoreError."""
        with in_language(await self.admission.people.language(user)):
            await self._publish(user, await self.facts(user, team))

    async def press(self, action: str, user: str, team: str, value: str = "") -> None:
        """Handle a button or field of Home if this user may use it, and publish the result."""
        connecting = self.connecting
        change_mail: dict[str, Callable[[], Awaitable[MailAccess]]] = {
            CONNECT: lambda: connecting.begin(user, team),
            CODE: lambda: connecting.confirm(user, value),
            CANCEL: lambda: connecting.cancel(user),
            DISCONNECT: lambda: connecting.disconnect(user),
            FORGET: lambda: connecting.forget_corrections(user),
        }
        if action not in (DELETE, *change_mail):
            return
        if action == DELETE and value.isdecimal():
            await self.preferences.delete(user, int(value))
        facts = await self.facts(user, team)
        if action in change_mail and facts.mail:
            facts = replace(facts, mail=await change_mail[action]())
        await self._publish(user, facts)

    async def _publish(self, user: str, facts: HomeFacts) -> None:
        shown = self.connecting.web.views_publish(user_id=user, view=view(facts))
        await attempt("App Home", shown)

    async def facts(self, user: str, team: str) -> HomeFacts:
        inbox, paused = self.admission.inbox, await self.admission.inbox.paused_by()
        connecting, database = self.connecting, self.admission.inbox.database
        try:
            policy = await self.admission.file.read()
        except PolicyFault as fault:
            return HomeFacts(fault.reason, paused=paused)
        refusal, where, scopes = offers(policy, await self._admission_facts(policy, user, team))
        mail = await connecting.access(user) if "email" in permitted_scopes(scopes) else None
        own = {OPEN_MAIL: ""} if mail and mail.state != "off" else {}
        handles = {} if refusal else {OPEN_CHANNELS: "", **own, **await self.reach(user)}
        return HomeFacts(
            refusal=refusal,
            places=where,
            scopes=scopes,
            handles=handles,
            runs=await last_runs(inbox, user, connecting.url),
            spent_usd=(await inbox.spending(user, day_of(datetime.now(UTC))))[0],
            daily_usd=policy.user_daily_usd,
            paused=paused,
            admin=user in policy.admins,
            mail=mail,
            preferences=tuple(await self.preferences.list_preferences(user)),
            schedules=await _schedules(database, user),
        )

    async def _admission_facts(self, policy: Policy, user: str, team: str) -> AdmissionFacts:
        """Return the policy's facts on the user, without a particular place or budgets."""
        facts = await self.admission.gather_facts(policy, user, team, "", DIRECT)
        groups = needed_groups(policy, _somewhere(facts))
        more = {g: await self.admission.people.group(g) for g in groups}
        return replace(facts, groups={**facts.groups, **more}, user_usd=0.0, all_usd=0.0)


def offers(policy: Policy, facts: AdmissionFacts) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Return why this user may not ask at all (or empty), where they may ask, and their scopes.

    Channels with their own rules are not named: a user may not know that they exist.
    """
    free = policy.model_copy(update={"user_daily_usd": None, "daily_usd": None})
    direct, wide = decide(free, facts, 0.0), decide(free, _somewhere(facts), 0.0)
    places, scopes = [], dict[str, None]()
    if isinstance(direct, Permitted):
        places.append(phrase("home.in_dm"))
        scopes |= dict.fromkeys(direct.scopes)
    if isinstance(wide, Permitted):
        places.append(phrase("home.in_channels"))
        scopes |= dict.fromkeys(wide.scopes)
        if not closest_rule(policy, facts.user, "", "mention", None).mention_needed:
            places.append(phrase("home.in_threads"))
    if policy.channels:
        places.append(phrase("home.own_rules"))
    if isinstance(direct, Permitted) or isinstance(wide, Permitted):
        return "", tuple(places), tuple(scopes)
    shown = wide if policy.direct.answer is False else direct
    return getattr(shown, "reason", ""), (), ()


def _somewhere(facts: AdmissionFacts) -> AdmissionFacts:
    """Return the same user, mentioning the assistant in a channel without its own rules."""
    return replace(facts, kind="mention", facts=ChannelFacts("", "", shared=False, private=False))


async def _schedules(database: Database, user: str) -> tuple[str, ...]:
    """Return a line for each schedule that belongs to this user or reminds them."""
    now, every = datetime.now(UTC), await ScheduleStore(database).all()
    rows = [row for row in every if user in (row.spec.owner, row.spec.to)]
    return tuple(description.line(row, now, reading=description.contents(row.spec)) for row in rows)


async def last_runs(inbox: RequestQueue, user: str, url: str) -> tuple[LastRun, ...]:
    runs = []
    for run in await inbox.recent(user, LAST_RUNS):
        request = await inbox.request(run.request) if run.request else None
        link = None
        if request and request.reply and request.reply.ts:
            link = permalink(url, request.channel, request.reply.ts[0], request.thread_ts)
        runs.append(LastRun(run.question, run.status, run.started, run.cost_usd, link))
    return tuple(runs)
