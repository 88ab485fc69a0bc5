"""A dry run: what a schedule would read and where it would post. No model is called, nothing is
sent, nothing is stored."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp

from bot.accounts.credentials import Credentials
from bot.approval.grants import Grants
from bot.cli.outcome import DONE, INCOMPLETE, dump, say
from bot.mail.mailboxes import Mailboxes
from bot.mail.state import MailState
from bot.mail.sync import new_threads
from bot.policy.directory import SlackDirectory
from bot.policy.people import People
from bot.policy.policy_file import PolicyFile
from bot.schedule import telling
from bot.schedule.book import ScheduleBook, ScheduleError
from bot.schedule.budget import planned_usd
from bot.schedule.checking import Checking, NotChecked, Wrong
from bot.schedule.command import on_database
from bot.schedule.desk import in_the_way
from bot.schedule.planning import Plan, Planning
from bot.schedule.records import StoredSchedule, Tick
from bot.schedule.ticks import Ticks
from bot.serving.workspace import clients, who_am_i
from bot.storage.database import Database
from bot.triage.looked import INBOX
from config.settings import Settings
from scopes.google.client import GoogleError
from scopes.members import Members
from scopes.slack_client import Absent, SlackRefused, open_session
from scopes.slack_reader import ChannelInfo, SlackReader
from scopes.tool import Window, estimate_tokens, iso

Json = dict[str, Any]
MOST_SHOWN = 40
"""Channels that the terminal is shown; --json names all."""


def run_dry(name: str, as_json: bool) -> int:
    """Exit code 1 where it could not run, or its report could not be delivered."""
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)

    async def work(settings: Settings, database: Database) -> int:
        async with _checking(settings, database) as checking:
            document = await tried(settings, database, checking, name)
        dump(document) if as_json else say("\n".join(_lines(document)))
        return INCOMPLETE if document["wrong"] or document["in_the_way"] else DONE

    return on_database(work, as_json)


@asynccontextmanager
async def _checking(settings: Settings, database: Database) -> AsyncIterator[Checking]:
    """The same checks as serve makes."""
    async with open_session(settings.slack) as session:
        client, _ = clients(settings, session)
        bot, _ = await who_am_i(client)
        members, people = Members(client), People(client)
        directory = SlackDirectory(members, people, Grants(database).covering, bot.user, bot.team)
        mail = Mailboxes(settings, Credentials(database), people.address)
        reader = SlackReader(client, timedelta(days=settings.slack.lookback_days), members=members)
        try:
            yield Checking(reader, directory, PolicyFile(None, settings.policy), mail)
        finally:
            await members.aclose()


async def tried(settings: Settings, database: Database, checking: Checking, name: str) -> Json:
    """What a run at this moment would come to. Raises ScheduleError and StoreError."""
    row, now = await ScheduleBook(database).get(name), datetime.now(UTC)
    if row is None and name in settings.schedules:
        row = StoredSchedule(name, "config", "active", "", settings.schedules[name], now, now)
    if row is None:
        known = ", ".join(sorted(settings.schedules)) or "none"
        raise ScheduleError(f"There is no schedule {name[:40]!r}.", f"There are: {known}.")
    spec, reader = row.spec, checking.reader.fresh()
    document: Json = {
        "name": name,
        "kind": spec.kind,
        "state": row.state,
        "at": iso(now),
        "next_runs": spec.timetable.next(telling.SHOWN, now),
        **{"window": None, "channels": [], "channels_added": [], "channels_gone": []},
        **{"notes": [], "messages": 0, "tokens": 0, "cost_usd": None, "threads": None},
        **{"budget_usd": spec.budget_usd, "to": spec.to, "in_the_way": [], "wrong": None},
    }
    try:
        plan = await Planning(settings, checking, Ticks(database)).plan(
            row, Tick(name, now, "due"), reader
        )
        document |= await _read(settings, database, checking, plan, reader)
        found = await _obstacles(checking, plan, reader)
        document["in_the_way"] = [asdict(each) for each in found]
    except (Wrong, NotChecked) as fault:
        document["wrong"] = str(fault)
    finally:
        await reader.aclose()
    return document


async def _read(
    settings: Settings, database: Database, checking: Checking, plan: Plan, reader: SlackReader
) -> Json:
    """What would be read, and about what that would cost."""
    window = {"oldest": iso(plan.oldest), "latest": iso(plan.latest)}
    told: Json = {"window": window, "notes": list(plan.notes)}
    if plan.spec.kind == "triage":
        return {**told, "threads": await _threads(database, checking, plan)}
    gate = asyncio.Semaphore(settings.limits.max_concurrency)

    async def look(channel: ChannelInfo) -> Json:
        async with gate:
            return await _channel(channel, plan, reader)

    channels = await asyncio.gather(*map(look, plan.channels))
    sizes = [each["tokens"] for each in channels]
    models = settings.models
    return {
        **told,
        "channels": channels,
        "channels_added": list(plan.added),
        "channels_gone": list(plan.gone),
        "messages": sum(each["messages"] for each in channels),
        "tokens": sum(sizes),
        "cost_usd": planned_usd(models.fast, models.main, sizes),
    }


async def _channel(channel: ChannelInfo, plan: Plan, reader: SlackReader) -> Json:
    since = (plan.since or {}).get(channel.id, plan.oldest)
    told: Json = {"id": channel.id, "name": channel.name, "since": iso(since), "fault": None}
    try:
        found = await reader.conversations(channel.id, Window(since, plan.latest))
    except (Absent, SlackRefused, aiohttp.ClientError, TimeoutError) as error:
        return {**told, "messages": 0, "threads": 0, "tokens": 0, "fault": str(error)}
    tokens = sum(estimate_tokens(item.line()) + 1 for each in found for item in each.items)
    messages = sum(each.in_window for each in found)
    return {**told, "messages": messages, "threads": len(found), "tokens": tokens}


async def _threads(database: Database, checking: Checking, plan: Plan) -> int:
    """How many threads of the mailbox are new since the last digest. Raises NotChecked."""
    opened, owner = await checking.mailboxes.open(plan.spec.owner), plan.spec.owner
    if opened is None:
        raise NotChecked("The mailbox cannot be opened at present.")
    window = Window(plan.oldest, plan.latest)
    try:
        found = await new_threads(opened.gmail, MailState(database), owner, INBOX, window)
        return len(found.refs)
    except GoogleError as error:
        raise NotChecked(str(error)) from error
    finally:
        await opened.aclose()


async def _obstacles(checking: Checking, plan: Plan, reader: SlackReader) -> Sequence[Any]:
    """What keeps the report from its readers, as of now."""
    bare = plan.spec.to.removeprefix("#").casefold()
    named = [c.id for c in await reader.channels() if c.name.casefold() == bare]
    place = named[0] if plan.spec.to.startswith("#") and named else plan.spec.to
    return await in_the_way(checking, plan.spec, plan.channels, place, trusted=True)


def _lines(document: Json) -> Iterator[str]:
    """A dry run for the terminal."""
    yield f"{document['name']}: a {document['kind']}, {document['state']}. Nothing was sent."
    times = "; ".join(telling.moment(at) for at in document["next_runs"])
    yield f"next runs: {times or 'never'}"
    if document["wrong"]:
        yield f"It could not run: {document['wrong']}"
        return
    window = document["window"]
    yield f"window: {window['oldest']} to {window['latest']}"
    if document["kind"] == "triage":
        yield f"it would read {document['threads']:,} mail threads"
    else:
        yield from _channels(document)
    yield from (f"note: {note}" for note in document["notes"])
    yield f"it may spend ${document['budget_usd']:.2f}"
    yield f"it would go to {document['to']}"
    for each in document["in_the_way"]:
        grant = "; an administrator could allow it" if each["grantable"] else ""
        yield f"  but not as it is: {each['name']}: {each['why']}{grant}"
    if not document["in_the_way"]:
        yield "  all who read it there may read what it is made of"


def _channels(document: Json) -> Iterator[str]:
    for each in document["channels"][:MOST_SHOWN]:
        read = f"{each['messages']:,} messages, about {each['tokens']:,} tokens"
        what = f"not readable ({each['fault']})" if each["fault"] else read
        yield f"  #{each['name']}  since {each['since']}: {what}"
    more = len(document["channels"]) - MOST_SHOWN
    if more > 0:
        yield f"  and {more:,} channels more"
    for key, said in (("channels_added", "new since last time"), ("channels_gone", "gone")):
        if document[key]:
            yield f"{said}: {', '.join(f'#{name}' for name in document[key])}"
    cost = document["cost_usd"]
    about = "unknown" if cost is None else f"${cost:.2f}"
    channels = f"{len(document['channels']):,} channels"
    yield (
        f"it would read {document['messages']:,} messages of {channels}, about "
        f"{document['tokens']:,} tokens; estimated cost {about}"
    )
