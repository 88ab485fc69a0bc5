"""Admission: applies the rules of the settings (who may ask what and where) to one request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Any

from bot.errors import SetupError
from bot.slack.people import ChannelFacts, People, Person
from bot.storage.requests import IncomingMessage, RequestQueue
from config.sections import Policy, PolicyRules
from config.settings import Settings, SettingsError, load_policy, team_file
from config.words import current, phrase
from scopes import scope_names

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Permitted:
    """The request is answered, within these limits."""

    scopes: tuple[str, ...]
    models: tuple[str, ...]
    cost_usd: float
    """The request's own limit, or the rest of a daily one if that is less."""
    fixed: bool = False
    """Whether a rule sets the request's own limit."""


@dataclass(frozen=True, slots=True)
class NotPermitted:
    """The request is refused; the user gets the reason in private."""

    reason: str


@dataclass(frozen=True, slots=True)
class Silent:
    """The request is ignored without a reply; the reason is for the log."""

    reason: str


@dataclass(frozen=True, slots=True)
class Later:
    """Running requests may still use up the budget: decide again when they have ended."""


AdmissionDecision = Permitted | NotPermitted | Silent | Later


POLL_S = 1.0
"""Minimum seconds between two checks of the file."""
SETTLED_S = 0.1
"""Age in seconds below which a file is read later: an editor may have just emptied it."""

Signature = tuple[int, ...]


class PolicyFault(SetupError):
    """The file cannot be used now; `fault` describes the error in it."""

    def __init__(self, path: Path, fault: str) -> None:
        self.path, self.fault = path, fault
        super().__init__("policy", f"Nobody is answered until {path} is fixed: {fault}", "")

    @property
    def reason(self) -> str:
        """Return the text for a user: what is wrong is for administrators, in the log."""
        return phrase("policy.closed")


class PolicyFile:
    """Holds the policy of one file; call `read` for every decision."""

    def __init__(
        self,
        path: Path | None,
        policy: Policy,
        *,
        clock: Callable[[], float] = time.monotonic,
        own: Path | None = None,
    ) -> None:
        """`policy` applies while there is no file: `path` is None, or does not exist yet.

        `own` is the file of one workspace, which takes precedence over the common one.
        """
        self.path, self.own = path, own
        self._clock = clock
        self._read_lock = asyncio.Lock()
        self._checked_at = float("-inf")
        self._signature: Signature | None = None
        self._now: Policy | PolicyFault = policy

    @classmethod
    def of(cls, settings: Settings, path: Path | None) -> PolicyFile:
        """Return the policy of the settings file at this path, and of its workspace if any."""
        own = team_file(path, settings.team) if settings.team else None
        return cls(path, settings.policy, own=own)

    async def read(self) -> Policy:
        """Return the current policy. Raises PolicyFault while the file is wrong or missing."""
        if self.path is not None:
            async with self._read_lock:
                if self._clock() - self._checked_at >= POLL_S:
                    await asyncio.to_thread(self._look, self.path)
                    self._checked_at = self._clock()
        if isinstance(self._now, PolicyFault):
            raise PolicyFault(self._now.path, self._now.fault)
        return self._now

    async def admins(self) -> Sequence[str]:
        """Return the administrators; none while the policy cannot be read."""
        try:
            return (await self.read()).admins
        except PolicyFault:
            return ()

    def _look(self, path: Path) -> None:
        """Read the file if it has changed since the last time."""
        signature = _signature(path, self.own)
        if signature and abs(time.time() - signature[0] / 1e9) < SETTLED_S:
            time.sleep(SETTLED_S)
            signature = _signature(path, self.own)
        if signature == self._signature:  # None: the file has never existed, or is still missing
            return
        self._signature, self._now = signature, _parse(path, self.own)
        if isinstance(self._now, PolicyFault):
            log.error("%s", self._now)
        else:
            log.info("the policy of %s holds", path)


def _signature(*paths: Path | None) -> Signature | None:
    """Return a value that changes with the files, their latest change first; None = no file."""
    found = []
    for path in filter(None, paths):
        with suppress(OSError):
            found.append(path.stat())
    parts = [(f.st_mtime_ns, f.st_ctime_ns, f.st_size, f.st_ino) for f in found]
    return (max(part[0] for part in parts), *chain(*parts)) if parts else None


def _parse(path: Path, own: Path | None) -> Policy | PolicyFault:
    try:
        policy = load_policy(path, own)
    except SettingsError as error:
        return PolicyFault(path, str(error))
    if unknown := unknown_scope(policy):
        place, name = unknown
        names = ", ".join(scope_names())
        return PolicyFault(path, f"'policy.{place}.scopes' names {name!r}; scopes are {names}.")
    return policy


def unknown_scope(policy: Policy) -> tuple[str, str] | None:
    """Return place and name of the first unknown scope in the policy; None = there is none."""
    places: list[tuple[str, PolicyRules]] = [
        ("everywhere", policy.everywhere),
        ("direct", policy.direct),
        *((f"channels.{name}", rules) for name, rules in policy.channels.items()),
        *((f"users.{name}", rules) for name, rules in policy.users.items()),
    ]
    pairs = ((place, name) for place, rules in places for name in rules.scopes or ())
    return next((each for each in pairs if each[1] not in scope_names()), None)


DIRECT, FOLLOW_UP = "dm", "follow_up"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""First and longest pause in seconds between calls to Slack while it is down."""
LEAST_USD = 0.01
"""Rest of a daily budget, in dollars, that is too small to start a request."""


@dataclass(frozen=True, slots=True)
class AdmissionFacts:
    """The facts for a decision; None = it could not be checked."""

    user: str
    channel: str
    kind: str
    """`mention`, `dm` or `follow_up`."""
    person: Person | None
    facts: ChannelFacts | None = None
    """Facts of the channel; not needed in a direct message."""
    groups: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    """Members of the user groups from `needed_groups`."""
    refusal: str = ""
    """Why Slack refuses some of these facts permanently, in sentences; empty if temporary."""
    user_usd: float = 0.0
    """US dollars spent by this user since `day_of(now)`."""
    all_usd: float = 0.0
    user_open_usd: float = 0.0
    """US dollars that this user's running requests may spend beyond that."""
    all_open_usd: float = 0.0
    now: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class Ruling:
    """The rules for one request, each from the closest place that sets it."""

    answer: bool
    mention_needed: bool
    shared: bool
    ask: tuple[str, ...]
    scopes: tuple[str, ...]
    models: tuple[str, ...]
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class Admission:
    """Gathers the facts for a decision, and decides. Its methods raise StoreError."""

    file: PolicyFile
    people: People
    inbox: RequestQueue
    cost_usd: float
    """`limits.cost_usd`, for requests without their own rule."""

    async def decide(
        self, incoming: IncomingMessage, usual_usd: float | None = None
    ) -> AdmissionDecision:
        """Decide whether a stored request is answered.

        `usual_usd` is the cost limit of its kind, used if no rule sets one.
        """
        try:
            policy = await self.file.read()
        except PolicyFault as fault:
            is_asked = incoming.kind != FOLLOW_UP
            return NotPermitted(fault.reason) if is_asked else Silent(fault.fault)
        at = incoming
        facts = await self.gather_facts(policy, at.user, at.team, at.channel, at.kind)
        return decide(policy, facts, self.cost_usd if usual_usd is None else usual_usd)

    async def gather(self, incoming: IncomingMessage, give_up_s: float) -> None:
        """Gather the facts for a decision, and retry while Slack is down."""
        at, pause, waited = incoming, FIRST_PAUSE_S, 0.0
        while True:
            await self.decide(at)
            if waited >= give_up_s or not self.people.may_pass(at.user, at.channel):
                return
            await asyncio.sleep(pause)
            waited, pause = waited + pause, min(2 * pause, LONGEST_PAUSE_S)

    async def gather_facts(
        self, policy: Policy, user: str, team: str, channel: str, kind: str
    ) -> AdmissionFacts:
        """Return the facts for a decision about this user in this place."""
        now = datetime.now(UTC)
        async with asyncio.TaskGroup() as tasks:
            person = tasks.create_task(self.people.person(user, team))
            if kind != DIRECT:
                facts = tasks.create_task(self.people.channel(channel))
        channel_facts = None if kind == DIRECT else facts.result()
        gathered = AdmissionFacts(user, channel, kind, person.result(), channel_facts, now=now)
        user_usd, user_open = await self._sum_spending(policy.user_daily_usd, user, now)
        all_usd, all_open = await self._sum_spending(policy.daily_usd, None, now)
        groups_needed = needed_groups(policy, gathered)
        groups = {g: await self.people.group(g) for g in groups_needed}
        refusals = [
            self.people.refusal("user", user),
            "" if kind == DIRECT else self.people.refusal("channel", channel),
            *(self.people.refusal("group", group) for group in groups_needed),
        ]
        return replace(
            gathered,
            groups=groups,
            refusal=next(filter(None, refusals), ""),
            user_usd=user_usd,
            all_usd=all_usd,
            user_open_usd=user_open,
            all_open_usd=all_open,
        )

    async def _sum_spending(
        self, limit: float | None, user: str | None, now: datetime
    ) -> tuple[float, float]:
        return (0.0, 0.0) if limit is None else await self.inbox.spending(user, day_of(now))


def decide(policy: Policy, request: AdmissionFacts, cost_usd: float) -> AdmissionDecision:
    """Decide whether a request is answered, and its limits; `cost_usd` is the default limit."""
    rules = closest_rule(policy, request.user, request.channel, request.kind, request.facts)
    person, follow_up = request.person, request.kind == FOLLOW_UP
    if person and person.kind in ("bot", "deleted"):
        return Silent(f"{request.user} is a {person.kind} user")
    if follow_up and (rules.mention_needed or not rules.answer):
        return Silent("a mention is needed" if rules.answer else "answering is off here")
    if person is None or (request.kind != DIRECT and request.facts is None):
        return NotPermitted(request.refusal or phrase("check.again"))
    if not rules.answer:
        return NotPermitted(_not_here(policy, request))
    if request.facts and request.facts.shared and not rules.shared:
        refusal = phrase("policy.shared", admin=admin(policy))
    else:
        refusal = _not_you(policy, rules, person, request)
    if refusal:
        return Silent(refusal) if follow_up else NotPermitted(refusal)
    return _within_budget(policy, rules, request, cost_usd)


def closest_rule(
    policy: Policy, user: str, channel: str, kind: str, facts: ChannelFacts | None
) -> Ruling:
    """Return the closest rule, key by key: user, channel, direct, everywhere."""
    ways = list(_closest_first(policy, user, channel, kind, facts.name if facts else ""))
    return Ruling(**{name: _first(ways, name) for name in PolicyRules.model_fields})


def needed_groups(policy: Policy, request: AdmissionFacts) -> tuple[str, ...]:
    """Return the user groups to look up before `decide`; usually there are none."""
    rules = closest_rule(policy, request.user, request.channel, request.kind, request.facts)
    if not request.person or request.person.kind != "member":
        return ()
    if not rules.answer or request.user in rules.ask or "members" in rules.ask:
        return ()
    return tuple(each for each in rules.ask if each.startswith("S"))


def day_of(now: datetime) -> datetime:
    """Return the start of the UTC day for daily budgets."""
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def admin(policy: Policy) -> str:
    """Return the administrators to ask, in Slack's markup."""
    names = current().list([f"<@{each}>" for each in policy.admins[:2]], "or")
    return phrase("policy.admin_named", names=names) if names else phrase("policy.admin")


def _closest_first(
    policy: Policy, user: str, channel: str, kind: str, name: str
) -> Iterator[PolicyRules]:
    if user in policy.users:
        yield policy.users[user]
    if channel in policy.channels:
        yield policy.channels[channel]
    for pattern, rules in policy.channels.items():
        if pattern != channel and name and fnmatchcase(name, pattern.removeprefix("#")):
            yield rules
    if kind == DIRECT:
        yield policy.direct
    yield policy.everywhere


def _first(ways: list[PolicyRules], name: str) -> Any:
    return next((v for v in (getattr(rules, name) for rules in ways) if v is not None), None)


def _not_here(policy: Policy, request: AdmissionFacts) -> str:
    """Return why there is no answer in this place, and where there may be one."""
    own = policy.users.get(request.user)
    if own and own.answer is False:
        return phrase("policy.off_for_you", admin=admin(policy))
    if request.kind == DIRECT:
        return phrase("policy.no_dm")
    elsewhere = closest_rule(policy, request.user, "", DIRECT, None).answer
    key = "policy.not_here_dm" if elsewhere else "policy.not_here"
    return phrase(key, admin=admin(policy))


def _not_you(
    policy: Policy,
    rules: Ruling,
    person: Person,
    request: AdmissionFacts,
) -> str:
    """Return why this user may not ask here; empty if they may."""
    if person.id in rules.ask:
        return ""
    if person.kind == "guest":
        return "" if "guests" in rules.ask else phrase("policy.guests", admin=admin(policy))
    if person.kind == "external":
        return "" if "external" in rules.ask else phrase("policy.external")
    groups = [each for each in rules.ask if each.startswith("S")]
    if "members" in rules.ask or any(person.id in (request.groups.get(g) or ()) for g in groups):
        return ""
    if any(request.groups.get(group) is None for group in groups):
        return request.refusal or phrase("check.again")
    return phrase("policy.not_you", admin=admin(policy))


def _within_budget(
    policy: Policy, rules: Ruling, request: AdmissionFacts, cost_usd: float
) -> AdmissionDecision:
    limit = cost_usd if rules.cost_usd is None else rules.cost_usd
    budgets = (
        ("policy.you_spent", request.user_usd, request.user_open_usd, policy.user_daily_usd),
        ("policy.all_spent", request.all_usd, request.all_open_usd, policy.daily_usd),
    )
    usd = current().usd
    for key, spent, _, most in budgets:
        if most is None:
            continue
        if most - spent < LEAST_USD:
            raised = phrase("policy.raise", admin=admin(policy))
            when = _until_reset(request.now) if most >= LEAST_USD else raised
            text = phrase(key, spent=usd(spent), limit=usd(most))
            return NotPermitted(f"{text} {when}")
    for _, spent, at_work, most in budgets:
        if most is not None:
            limit = min(limit, most - spent - at_work)
    if limit < LEAST_USD and any(at_work for _, _, at_work, most in budgets if most is not None):
        return Later()
    return Permitted(rules.scopes, rules.models, limit, rules.cost_usd is not None)


def _until_reset(now: datetime) -> str:
    reset = day_of(now) + timedelta(days=1)
    minutes = max(1, round((reset - now) / timedelta(minutes=1)))
    hours, rest = divmod(minutes, 60)
    parts = [(hours, "hour")] if hours else []
    left = " ".join(current().duration(n, unit) for n, unit in [*parts, (rest, "minute")])
    return phrase("policy.tomorrow", left=left)
