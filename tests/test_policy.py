"""Who may ask what, and where: closest rules, closed when in doubt, read again when changed."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest
from policy_kit import TEAM, Asking, Clock, asking, channel, policy, user

from bot.policy import policy as policy_module
from bot.policy.policy import (
    CLOSED,
    POLL_S,
    Admission,
    AdmissionDecision,
    AdmissionFacts,
    Later,
    NotPermitted,
    Permitted,
    PolicyFault,
    PolicyFile,
    Silent,
    day_of,
    decide,
    needed_groups,
)
from bot.runs.store import Store
from bot.slack.people import ChannelFacts, Person
from bot.storage.requests import Incoming, RequestQueue
from config.settings import SettingsError, load_settings, settings_file
from scopes.slack_items import Kind

NOW = datetime(2026, 11, 22, 20, 15, tzinfo=UTC)
OWN = ChannelFacts("C0OWN", "csm-spain", shared=False, private=False)
EXT = ChannelFacts("C0EXT", "ext-globex", shared=True, private=False)


def ask(
    text: str = "",
    kind: str = "mention",
    who: Kind | None = "member",
    facts: ChannelFacts | None = OWN,
    user: str = "U0ANA",
    **more: Any,
) -> AdmissionDecision:
    person = Person(user, who) if who else None
    where = facts.id if facts else "D0ANA" if kind == "dm" else "C0OWN"
    asked = AdmissionFacts(user, where, kind, person, facts, **{"now": NOW, **more})
    return decide(policy(text), asked, 1.0)


def why(decision: AdmissionDecision) -> str:
    assert isinstance(decision, NotPermitted)
    assert len(decision.reason) < 300
    return decision.reason


# ---- who


@pytest.mark.parametrize("kind", ["mention", "dm", "follow_up"])
def test_a_member_may_ask_by_default_within_the_limits_of_the_settings(kind: str) -> None:
    scopes = ("slack", "email", "data", "web", "notes", "files")
    assert ask(kind=kind) == Permitted(scopes, ("fast", "main"), 1.0)


def test_guests_and_other_companies_are_off_by_default_and_can_be_let_in() -> None:
    assert why(ask(who="guest")).startswith("Guests may not ask me here. Ask an admin to add you")
    assert why(ask(who="external", kind="dm", facts=None)).startswith("People of other companies")
    both = "  everywhere: {ask: [guests, external]}"
    assert isinstance(ask(both, who="guest"), Permitted)
    assert isinstance(ask(both, who="external"), Permitted)
    assert "not among those" in why(ask(both, who="member"))


@pytest.mark.parametrize("who", ["bot", "deleted"])
@pytest.mark.parametrize("kind", ["mention", "dm", "follow_up"])
def test_bots_and_deleted_users_are_never_answered_whatever_the_rules(who: Kind, kind: str) -> None:
    rules = (
        "  everywhere: {ask: [members, guests, external, U0ANA]}\n  users: {U0ANA: {answer: true}}"
    )
    assert isinstance(ask(rules, kind, who), Silent)


def test_a_user_who_is_named_may_ask_whoever_they_are() -> None:
    rules = "  everywhere: {ask: [U0ANA]}"
    for who in ("member", "guest", "external"):
        assert isinstance(ask(rules, who=who), Permitted)
    assert "Ask an admin to add you" in why(ask(rules, user="U0LUIS"))


def test_a_user_group_lets_its_members_in_but_no_guest_in_it() -> None:
    rules, group = "  everywhere: {ask: [S0CSM]}", {"S0CSM": frozenset({"U0ANA"})}
    assert isinstance(ask(rules, groups=group), Permitted)
    assert "Guests" in why(ask(rules, who="guest", groups=group))
    assert "not among those" in why(ask(rules, user="U0LUIS", groups=group))


def test_what_could_not_be_checked_closes_the_door() -> None:
    assert why(ask(who=None)).startswith("I could not check who you are")
    assert why(ask(who=None, kind="follow_up")).startswith("I could not check who you are")
    assert why(ask(facts=None)).startswith("I could not check this channel")
    assert "your user groups" in why(ask("  everywhere: {ask: [S0CSM]}", groups={"S0CSM": None}))
    named = "  everywhere: {ask: [S0CSM, members]}"
    assert isinstance(ask(named, groups={"S0CSM": None}), Permitted)


def test_user_groups_are_looked_into_only_where_they_decide() -> None:
    def needed(text: str, who: Kind | None = "member") -> tuple[str, ...]:
        person = Person("U0ANA", who) if who else None
        return needed_groups(policy(text), AdmissionFacts("U0ANA", "C0OWN", "mention", person, OWN))

    assert needed("  everywhere: {ask: [guests, S0A, S0B, U0LUIS]}") == ("S0A", "S0B")
    for rules in ("[members, S0A]", "[U0ANA, S0A]", "[guests]"):
        assert needed(f"  everywhere: {{ask: {rules}}}") == ()
    assert needed("  everywhere: {ask: [S0A], answer: false}") == ()
    for who in (None, "guest", "external", "bot", "deleted"):
        assert needed("  everywhere: {ask: [S0A]}", who) == ()


# ---- where


def test_the_closest_rule_wins_key_by_key() -> None:
    rules = """
  everywhere: {cost_usd: 0.1, models: [fast], scopes: []}
  direct: {cost_usd: 0.2}
  channels:
    csm-*: {cost_usd: 0.3, scopes: [slack]}
    "*-spain": {cost_usd: 0.4, models: [main]}
    C0BYID: {cost_usd: 0.5}
  users: {U0ANA: {cost_usd: 0.6}}
"""

    def limits(user: str, kind: str, facts: ChannelFacts | None) -> Permitted:
        allowed = ask(rules, kind, facts=facts, user=user)
        assert isinstance(allowed, Permitted)
        return allowed

    by_id = ChannelFacts("C0BYID", "csm-spain", shared=False, private=False)
    other = ChannelFacts("C0OTHER", "general", shared=False, private=False)
    assert limits("U0LUIS", "mention", other) == Permitted((), ("fast",), 0.1, fixed=True)
    assert limits("U0LUIS", "dm", None) == Permitted((), ("fast",), 0.2, fixed=True)
    assert limits("U0LUIS", "mention", OWN) == Permitted(("slack",), ("main",), 0.3, fixed=True)
    assert limits("U0LUIS", "mention", by_id) == Permitted(("slack",), ("main",), 0.5, fixed=True)
    assert limits("U0ANA", "mention", by_id) == Permitted(("slack",), ("main",), 0.6, fixed=True)
    assert limits("U0ANA", "dm", None) == Permitted((), ("fast",), 0.6, fixed=True)


def test_a_channel_that_is_off_is_silent_to_follow_ups_and_tells_those_who_mention_it() -> None:
    rules = "  channels: {'#csm-*': {answer: false}}"
    assert isinstance(ask(rules, "follow_up"), Silent)
    assert "Send me a direct message" in why(ask(rules))
    assert isinstance(ask(rules, "dm", facts=None), Permitted)
    off = rules + "\n  direct: {answer: false}\n  admins: [U0BOSS, U0EVA, U0TOM]"
    assert "Ask an admin (<@U0BOSS> or <@U0EVA>) where I do" in why(ask(off))
    assert "do not answer direct messages" in why(ask(off, "dm", facts=None))
    assert "switched off for you" in why(ask("  users: {U0ANA: {answer: false}}"))
    assert isinstance(ask(rules + "\n  users: {U0ANA: {answer: true}}"), Permitted)


def test_follow_ups_need_a_mention_where_the_policy_says_so() -> None:
    rules = "  channels: {C0OWN: {mention_needed: true}}"
    assert isinstance(ask(rules, "follow_up"), Silent)
    assert isinstance(ask(rules, "mention"), Permitted)


def test_people_who_talk_in_a_thread_without_a_mention_are_not_told_that_they_may_not_ask() -> None:
    for who in ("guest", "external"):
        assert isinstance(ask(kind="follow_up", who=who), Silent)
    assert isinstance(ask(kind="follow_up", facts=EXT), Silent)


def test_a_channel_shared_with_another_company_is_off_until_it_is_allowed() -> None:
    assert why(ask(facts=EXT)).startswith("This channel is shared with another company")
    shared = "  channels: {ext-*: {shared: true}}"
    assert isinstance(ask(shared, facts=EXT), Permitted)
    assert "other companies" in why(ask(shared, facts=EXT, who="external"))


def test_every_case_is_decided_and_unknown_facts_never_let_anyone_in() -> None:
    kinds = ("mention", "dm", "follow_up")
    flags = (True, False)
    for answer, needed, shared in product(flags, flags, flags):
        rules = (
            f"  everywhere: {{answer: {answer}, mention_needed: {needed}, shared: {shared}}}"
        ).lower()
        held = policy(rules)
        for kind, who, facts in product(kinds, (None, *get_args(Kind)), (None, OWN, EXT)):
            person = Person("U0ANA", who) if who else None
            decision = decide(held, AdmissionFacts("U0ANA", "C", kind, person, facts, now=NOW), 1.0)
            place = kind == "dm" or facts is not None
            assert not isinstance(decision, Permitted) or (who == "member" and place and answer)


# ---- budget


def test_what_requests_at_work_may_spend_is_waited_for_and_not_refused() -> None:
    rules = "  user_daily_usd: 2.0"
    assert isinstance(ask(rules, user_usd=0.5, user_open_usd=1.5), Later)
    rest = ask(rules, user_usd=0.5, user_open_usd=1.0)
    assert isinstance(rest, Permitted)
    assert rest.cost_usd == 0.5
    assert isinstance(ask(rules, user_usd=2.0, user_open_usd=1.0), NotPermitted)
    assert isinstance(ask("  user_daily_usd: null", user_open_usd=9.0), Permitted)


def test_a_spent_day_is_refused_with_the_amount_and_when_it_is_over() -> None:
    rules = "  user_daily_usd: 2.0\n  daily_usd: 5.0"
    assert why(ask(rules, user_usd=2.0)) == (
        "You have spent $2.00 of the $2.00 for today. Please ask again in 3 h 45 min, after "
        "00:00 UTC, when a new day's budget begins."
    )
    late = datetime(2026, 11, 22, 23, 59, 50, tzinfo=UTC)
    assert why(ask(rules, all_usd=5.5, now=late)).startswith(
        "All of us together have spent $5.50 of the $5.00 for today. Please ask again in 1 min"
    )
    assert "Ask an admin to raise it" in why(ask("  user_daily_usd: 0.0"))
    assert isinstance(ask(rules, "follow_up", user_usd=2.0), NotPermitted)


def test_a_request_gets_no_more_than_what_is_left_of_the_day() -> None:
    def cost(rules: str, **spent: Any) -> float:
        allowed = ask(rules, **spent)
        assert isinstance(allowed, Permitted)
        return allowed.cost_usd

    assert cost("  user_daily_usd: 2.0", user_usd=1.75) == 0.25
    assert cost("  daily_usd: 8.0", all_usd=7.5) == 0.5
    assert cost("  everywhere: {cost_usd: 3.0}", user_usd=1.0) == 3.0
    none = "  everywhere: {cost_usd: 0.0}\n  user_daily_usd: null\n  daily_usd: null"
    assert cost(none, user_usd=1e6, all_usd=1e6) == 0.0


def test_a_day_begins_at_midnight_utc_wherever_the_clock_stands() -> None:
    assert day_of(NOW) == datetime(2026, 11, 22, tzinfo=UTC)
    assert day_of(datetime.fromisoformat("2026-11-23T00:30:00+09:00")) == day_of(NOW)


# ---- settings


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("  users: {ana: {}}", "'policy.users.ana' must be a Slack user id such as U0123ABCD"),
        ("  everywhere: {ask: [everyone]}", "it must be members, guests, external, or the id"),
        ("  everywhere: {ask: members}", "it must be a list"),
        ("  everywhere: {models: []}", "it must have at least 1 item"),
        ("  everywhere: {answer: null}", "everywhere.answer must be set"),
        ("  admins: [boss]", "it must be a Slack user id"),
        ("  daily_usd: -1", "must be greater than or equal to 0"),
        ("  chanels: {}", "Did you mean 'policy.channels'?"),
    ],
)
def test_a_rule_that_could_never_hold_is_an_error(text: str, fault: str) -> None:
    with pytest.raises(SettingsError, match=r".") as error:
        policy(text)
    assert fault in str(error.value)


# ---- the file


FILE = Path("assistant.yaml")


def write(text: str) -> None:
    """As an editor does: a new file in the place of the old one."""
    new = FILE.with_suffix(".new")
    new.write_text(text, "utf-8")
    os.utime(new, (1, 1))  # long ago: nobody is writing it any more
    new.replace(FILE)


def fill(text: str) -> None:
    """The other way: the same file, written over."""
    FILE.write_text(text, "utf-8")


def remove() -> None:
    FILE.unlink()


OFF = "policy: {everywhere: {answer: false}}"


def opened() -> tuple[PolicyFile, Clock]:
    clock = Clock()
    return PolicyFile(settings_file(), load_settings().policy, clock=clock), clock


async def test_a_changed_file_holds_at_the_next_decision_but_is_looked_at_once_a_second() -> None:
    write("")
    file, clock = opened()
    assert (await file.read()).everywhere.answer
    write(OFF)
    clock.now += POLL_S / 2
    assert (await file.read()).everywhere.answer
    clock.now += POLL_S / 2
    assert not (await file.read()).everywhere.answer


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("policy: {everywhere: {ask: [everyone]}}", "'policy.everywhere.ask.0' is 'everyone'"),
        ("policy: {everywhere: {scopes: [slak]}}", "'policy.everywhere.scopes' names 'slak'"),
        ("policy: {channels: {a: {scopes: [x]}}}", "'policy.channels.a.scopes' names 'x'"),
        ("polcy: {everywhere: {answer: false}}", "Did you mean 'policy'?"),
        ("limits: {cost_usd: much}", "'limits.cost_usd'"),
        ("policy: [", "not valid YAML"),
        (None, "cannot be read: no such file"),
    ],
)
async def test_while_the_file_is_wrong_nobody_is_answered_and_then_again(
    text: str | None, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    write("policy: {admins: [U0BOSS]}")
    file, clock = opened()
    assert (await file.read()).admins == ("U0BOSS",)
    write(text) if text else remove()
    for _ in range(3):
        clock.now += POLL_S
        with pytest.raises(PolicyFault) as fault:
            await file.read()
        assert fault.value.reason.startswith(
            "I answer nobody until my settings file assistant.yaml"
        )
        assert said in fault.value.reason
        assert str(Path.cwd()) not in fault.value.reason
    logged = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert len(logged) == 1
    assert logged[0].startswith(f"Nobody is answered until {settings_file()} is fixed: ")
    assert said in logged[0]
    write("policy: {admins: [U0EVA]}")
    clock.now += POLL_S
    assert (await file.read()).admins == ("U0EVA",)


async def test_a_file_that_appears_later_counts_from_then_on() -> None:
    file, clock = opened()
    assert (await file.read()).everywhere.answer
    write(OFF)
    clock.now += POLL_S
    assert not (await file.read()).everywhere.answer
    assert settings_file(env={}) is None
    still = PolicyFile(None, load_settings(env={}).policy)
    assert (await still.read()).everywhere.answer


async def test_a_file_that_is_being_written_is_not_believed_half_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(OFF)
    file, clock = opened()
    await file.read()
    monkeypatch.setattr(policy_module, "SETTLED_S", 60.0)
    monkeypatch.setattr("time.sleep", lambda seconds: fill(OFF))
    fill("")  # an editor has emptied it, and writes on in a moment
    clock.now += POLL_S
    assert not (await file.read()).everywhere.answer


# ---- all together


@asynccontextmanager
async def admitting(
    data_dir: Path, answers: dict[str, Any]
) -> AsyncIterator[tuple[Admission, Asking]]:
    store = await Store.open(data_dir)
    try:
        async with asking(answers) as at:
            file = PolicyFile(settings_file(), load_settings().policy)
            yield Admission(file, at.people, RequestQueue(store.database), 1.0), at
    finally:
        await store.aclose()


def incoming(kind: str = "mention", where: str = "C0OWN") -> Incoming:
    return Incoming(TEAM, where, "1.000001", "1.000001", "U0ANA", kind, {"text": "hello"})


async def test_what_a_kind_of_request_may_cost_gives_way_to_what_the_policy_says(
    data_dir: Path,
) -> None:
    answers = {"users.info": user("U0ANA")}
    for rules, usd in (("{}", 2.0), ("{direct: {cost_usd: 0.5}}", 0.5)):
        write(f"policy: {rules}")
        async with admitting(data_dir, answers) as (admission, _):
            decided = await admission.decide(incoming("dm", "D0ANA"), 2.0)
            assert isinstance(decided, Permitted)
            assert decided.cost_usd == usd


async def test_an_admission_asks_slack_and_the_store_and_only_what_it_needs(data_dir: Path) -> None:
    write("policy: {channels: {csm-*: {ask: [S0CSM]}}, user_daily_usd: 1.0}")
    answers = {
        "users.info": user("U0ANA"),
        "conversations.info": channel("C0OWN", name="csm-spain"),
        "usergroups.users.list S0CSM": {"ok": True, "users": ["U0ANA"]},
    }
    async with admitting(data_dir, answers) as (admission, at):
        assert isinstance(await admission.decide(incoming("dm", "D0ANA")), Permitted)
        assert [method for method, _ in at.slack.calls] == ["users.info"]
        assert isinstance(await admission.decide(incoming()), Permitted)
        assert at.slack.count("usergroups.users.list") == 1
        store = Store(admission.inbox.database)
        await store.start_run("r1", "ask", "q", "claude", {}, requester="U0ANA", request="k")
        await store.finish_run("r1", "complete", cost_usd=0.995)
        assert "You have spent $0.99 of the $1.00" in why(await admission.decide(incoming()))


async def test_while_the_file_is_wrong_colleagues_learn_that_and_nobody_learns_why(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write("")
    answers = {"users.info": user("U0ANA"), "conversations.info": channel("C0OWN", name="csm")}
    async with admitting(data_dir, answers) as (admission, _):
        write("policy: [")
        assert why(await admission.decide(incoming())) == CLOSED
        assert "not valid YAML" in caplog.text
        assert isinstance(await admission.decide(incoming("follow_up")), Silent)
        assert why(await admission.decide(incoming("dm", "D0ANA"))) == CLOSED


@pytest.mark.parametrize("who", [{"is_restricted": True}, {"is_stranger": True}, {"is_bot": True}])
async def test_while_the_file_is_wrong_others_learn_nothing(
    data_dir: Path, who: dict[str, bool]
) -> None:
    write("")
    answers = {
        "users.info": user("U0ANA", **who),
        "conversations.info": channel("C0OWN", name="csm"),
    }
    async with admitting(data_dir, answers) as (admission, _):
        write("policy: [")
        assert isinstance(await admission.decide(incoming()), Silent)
