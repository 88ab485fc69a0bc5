"""Post approval cards, authorize clicks on them, and execute approved actions."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.approvals import cards
from bot.approvals.cards import (
    APPROVE,
    CHOOSE,
    EDIT,
    ApprovalCard,
    CardClicked,
    FormSubmitted,
    editable,
    tool_of,
)
from bot.approvals.store import (
    BATCH,
    GRANT,
    INTERNAL_TOOLS,
    STATES,
    UNDECIDED_STATES,
    Actions,
    Batch,
    CardDecision,
    CardPlace,
    GrantOffer,
    StoredAction,
)
from bot.background import repeat
from bot.errors import StoreError
from bot.policy.directory import Grants
from bot.policy.policy import Admission, PolicyFault
from bot.requests.delivery import Delivery
from bot.runs.durable import Durable
from bot.slack.assistant_pane import attempt
from bot.slack.client import (
    ChannelClosed,
    ContentRefused,
    MessageGone,
    OutcomeUnknown,
    TokenRefused,
    WriteFailed,
    is_away,
    retry_until,
)
from bot.slack.messages import Mark, MessagePart
from bot.slack.writer import MessageWriter
from bot.storage.requests import Choice, StoredRequest
from config.sections import ApprovalSettings, Policy
from config.words import Text, in_language, phrase
from scopes.intent import Intent
from scopes.label import TRUSTED_LABEL, Label
from scopes.tool import ToolError
from subagents.directory import Directory
from subagents.gate import Action, Decision, Deny

log = logging.getLogger(__name__)

MOST_CARDS = 3
"""Maximum separate cards of one request; more actions share one card."""
QUESTION_FOR = timedelta(days=1)
"""How long a question waits for an answer."""
FINAL_STATES = ("denied", "expired", "done", "failed")
"""States in which a card is final; the card of an edited action shows its replacement."""


@dataclass(frozen=True, slots=True)
class CardPoster:
    """Posts cards, each exactly once, and updates them.

    Its methods raise WriteFailed and StoreError.
    """

    actions: Actions
    """Uses a database that retries, because a workflow waits for it."""
    writer: MessageWriter
    admission: Admission
    directory: Directory
    address: str
    """Address of the workspace: only addresses that begin with it become links on a card."""
    settings: ApprovalSettings

    async def show(self, run: str, request: StoredRequest) -> int:
        """Post cards for the proposals of a run; return how many actions wait now.

        All external look-ups share one card. May be called again.
        """
        rows = await self.actions.of_run(run)
        acts = [row for row in rows if not (row.action.asks or row.action.is_question)]
        many = len(acts) > MOST_CARDS
        unseen = [row for row in rows if row.state == "proposed" and row.card is None]
        lookups = [row for row in unseen if row.action.asks]
        questions = [row for row in unseen if row.action.is_question]
        others = [row for row in unseen if row in acts]
        for group, shared in ((lookups, True), (questions, False), (others, many)):
            for together in [group] if shared and group else [[row] for row in group]:
                await self._show(together, request)
        return sum(row.state == "asked" for row in await self.actions.of_run(run))

    async def _show(self, rows: Sequence[StoredAction], request: StoredRequest) -> None:
        """Post one card for an action, or for a batch, which names its actions in its arguments."""
        until = self._until(rows[0].action)
        if rows[1:]:
            head = await self.actions.add(_batch_of(rows))
            card = cards.batch(head.id, [row.action for row in rows], until)
        else:
            head, card = rows[0], cards.pending_card(rows[0].action, until)
        async for channel, thread in self._places(head.action.label, request):
            if card is None:
                break
            after = request.ts if channel == request.channel else ""
            try:
                ts = await self._post(card.messages(f"action/{head.id}"), channel, thread, after)
            except ChannelClosed as error:
                log.warning("no card in %s: %s", channel, error)
                continue
            except ContentRefused as error:
                log.warning("Slack does not show %s: %s", head.id, error)
                break
            homes = homes_of(request)
            place = CardPlace(messages=((channel, ts),), thread=thread, teams=homes, drawn="asked")
            part = place.model_copy(update={"messages": (), "batch": head.id})
            await self.actions.ask({**{row.id: part for row in rows}, head.id: place}, until)
            return
        root = None if request.thread_ts == request.ts else request.thread_ts
        await self._drop([head, *(rows if rows[1:] else ())], request.channel, root)

    async def _places(self, label: Label, request: StoredRequest) -> AsyncIterator[tuple[str, str]]:
        """Yield the places for the card: at the answer, else to the requester alone."""
        if not await self.directory.obstacles(label, request.channel):
            yield request.channel, request.thread_ts
        if not await self.directory.obstacles(label, request.user):
            try:
                channel = await self.writer.direct(request.user)
            except ChannelClosed as error:
                log.warning("no direct conversation with %s: %s", request.user, error)
            else:
                yield channel, ""

    async def offer_grant(
        self, run: str, requester: str, sources: Mapping[str, str], destination: str
    ) -> None:
        """Ask the administrators whether text of these sources may be shown in a place permanently.

        `sources` is id -> name. May be called again.
        """
        admins = await self.admission.file.admins()
        if not admins:
            log.info("nobody can be asked about a grant for %s", destination)
            return
        facts = await self.admission.people.channel(destination)
        name = f"#{facts.name}" if facts and facts.name else destination
        offer = Action(
            id=_id(GRANT, run, destination, *sorted(sources)),
            run=run,
            context="",
            tool=GRANT,
            scope="",
            args=GrantOffer(
                sources=dict(sources), destination=destination, destination_name=name
            ).model_dump(),
            requester=requester,
            label=TRUSTED_LABEL,
            handles={},
            intent=Intent(),
            rule="audience",
            made=datetime.now(UTC),
        )
        stored = await self.actions.add(offer)
        if stored.state == "proposed":
            await self._offer(stored, admins)

    async def _offer(self, row: StoredAction, admins: Sequence[str]) -> None:
        until = datetime.now(UTC) + timedelta(hours=self.settings.grant_hours)
        card, messages = cards.offer(row.action, until), []
        if card is None:
            log.warning("nobody is asked about %s: its sources are too many to be shown", row.id)
            return
        for admin in admins:
            try:
                channel = await self.writer.direct(admin)
                key = f"action/{row.id}/{admin}"
                messages.append((channel, await self._post(card.messages(key), channel, "")))
            except WriteFailed as error:
                if is_away(error) or isinstance(error, TokenRefused):
                    raise
                log.warning("%s is not asked about a grant: %s", admin, error)
        if messages:
            place = CardPlace(messages=tuple(messages), drawn="asked")
            await self.actions.ask({row.id: place}, until)

    async def _post(
        self, messages: Mapping[str, MessagePart], channel: str, thread: str, after: str = ""
    ) -> str:
        """Post messages that may have been posted already, by key; return the ts of the last one.

        Raises ContentRefused if Slack accepts no form of a message that shows all of it.
        """
        ts, where = "", (channel, thread or None)
        for key, part in messages.items():
            ts = await self.writer.post(
                Mark(key), *where, part, look_first=True, exact=True, after=after
            )
        return ts

    async def _drop(self, rows: Sequence[StoredAction], channel: str, thread: str | None) -> None:
        """Close actions that cannot be shown and thus not approved, and notify their requester."""
        user = rows[0].requester
        for row in rows:
            await self.actions.decide(row, CardDecision("denied", ""), among=("proposed",))
        log.warning("%s cannot be shown to %s", [row.id for row in rows], user)
        try:
            await self.writer.whisper(channel, user, phrase("card.unshowable"), thread)
        except WriteFailed as error:
            log.warning("%s is not told: %s", user, error)

    async def reshow(self, row: StoredAction) -> None:
        """Show an edited action in the card of the action that it replaces."""
        place, until = row.place, self._until(row.action)
        with in_language(await self.language_of(row)):
            card = cards.pending_card(row.action, until)
        if card and await self._replace(row, card):
            await self.actions.ask({row.id: place.model_copy(update={"drawn": "asked"})}, until)
            return
        for channel, _ in place.messages[:1]:
            await self._drop([row], channel, place.thread or None)

    async def _replace(self, row: StoredAction, card: ApprovalCard) -> bool:
        """Replace the messages of a card; return whether they still exist."""
        key, place = f"action/{row.id}", row.place
        texts = card.messages(key)
        last = texts.pop(key)
        try:
            for channel, ts in place.messages:
                await self._post(texts, channel, place.thread, ts)
                await self.writer.update(Mark(key), channel, ts, last, exact=True)
        except (MessageGone, ChannelClosed, ContentRefused) as error:
            log.warning("the card of %s cannot be shown: %s", row.id, error)
            return False
        return True

    async def draw(self, id: str) -> None:
        """Update a card to its action's current state; a deleted card is ignored.

        Best effort: a failed update is repeated later.
        """
        row = await self.actions.get(id)
        if row and row.place.batch:
            row = await self.actions.get(row.place.batch)
        if row is None or not row.place.messages or row.state not in (*FINAL_STATES, "approved"):
            return
        parts = await self.actions.parts(row)
        with in_language(await self.language_of(row)):
            part = cards.result_message(parts, self.address)
        for channel, ts in row.place.messages:
            try:
                await self.writer.update(Mark(f"action/{row.id}"), channel, ts, part)
            except (MessageGone, ChannelClosed) as error:
                log.info("the card of %s is not there any more: %s", row.id, error)
            except WriteFailed as error:
                log.warning("the card of %s is not up to date: %s", row.id, error)
                return
        await self.actions.mark_shown(row.id, row.place.model_copy(update={"drawn": row.state}))

    async def tidy(self, since: datetime) -> None:
        """Show edited actions, and update outdated cards of actions since then."""
        for row in await self.actions.in_state("proposed"):
            if row.instead_of and row.card:
                await self.reshow(row)
        for row in await self.actions.in_state(*FINAL_STATES, since=since):
            place = row.place
            if place.messages and not place.batch and place.drawn != row.state:
                await self.draw(row.id)

    async def language(self, user: str, channel: str, said: str = "") -> str:
        return await self.admission.people.language(user, channel, said)

    async def language_of(self, row: StoredAction) -> str:
        """Return the language of a card: the language of its answer."""
        channel = row.place.messages[0][0] if row.place.messages else ""
        return await self.language(row.requester, channel, row.action.intent.text)

    def _until(self, action: Action) -> datetime:
        minutes = timedelta(minutes=self.settings.expires_minutes)
        return datetime.now(UTC) + (QUESTION_FOR if action.is_question else minutes)


def _batch_of(rows: Sequence[StoredAction]) -> Action:
    """Return the action that represents several, each named in its arguments."""
    ids = tuple(row.id for row in rows)
    return replace(
        rows[0].action,
        id=_id(BATCH, *ids),
        tool=BATCH,
        scope="",
        args=Batch(ids=ids, tools=tuple(row.tool for row in rows)).model_dump(mode="json"),
        label=reduce(Label.join, (row.action.label for row in rows)),
        handles={},
        made=datetime.now(UTC),
        told={},
        asks=(),
    )


def homes_of(request: StoredRequest) -> tuple[str, ...]:
    """Return the workspaces that the requester may belong to, from the signed event."""
    teams = (request.team, request.event.get("user_team"), request.event.get("team"))
    return tuple(dict.fromkeys(each for each in teams if isinstance(each, str) and each))


def _id(*parts: str) -> str:
    """Return the same id for the same action, so that its approval is requested once."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


CLICKER, BOUND, EXPIRY, ONCE, RECHECK = "clicker", "bound", "expiry", "once", "recheck"
CLICK_RULES = frozenset({CLICKER, BOUND, EXPIRY, ONCE, RECHECK})
"""All of them always apply; only tests pass fewer."""
OWN_DECISIONS = frozenset(
    {"schedule_create", "remember_preference", "forget_preference", "set_channel_instructions"}
    | {"ask_user", "remind_me"}
)
"""Tools whose calls keep acting for their requester, so that nobody else can approve them."""
PERSON_S = 2.0
"""Seconds for asking Slack who clicked; Slack expires the click after three."""

UNKNOWN, UNBOUND, EXPIRED = Text("click.unknown"), Text("click.unbound"), Text("click.expired")
UNCHECKED_MESSAGE = Text("click.unchecked")

WORKFLOW = "action"
"""Name of the workflow that runs `Approvals.execute`."""
SLACK_GONE_S = 900.0
"""How long Slack may be unavailable before an approved action is given up."""
HOLDS_FOR = timedelta(days=1)
"""How long an approval stays valid while nothing can be executed."""

TIDY_EVERY_S = 20.0
UNSEEN_FOR = timedelta(days=1)
"""Time after which an action that was never shown expires."""
REDRAWN_FOR = timedelta(days=2)
"""How long an outdated card is retried."""

REFUSAL_TEXT_KEYS = {
    "audience": "refused.audience",
    "entitlement": "refused.entitlement",
    "handles": "refused.entitlement",
}
"""Rule of the gate -> key of the reason for refusing an approved action."""


class NotDone(Exception):
    """An approved action was not executed; the text explains why, in a sentence for people."""


Click = CardClicked | FormSubmitted
Refusal = Text | str | None
"""Why a click is rejected; None = it is accepted."""
FollowUp = Coroutine[Any, Any, None]
"""The work that follows a click after its ack."""


@dataclass(frozen=True, slots=True)
class Approvals:
    """Authorizes clicks and executes approved actions. Its methods raise StoreError."""

    actions: Actions
    """Its database does not retry, because a click must be acked within three seconds."""
    cards: CardPoster
    grants: Grants
    web: AsyncWebClient
    durable: Durable
    team: str
    """The workspace where we are installed."""
    delivery: Delivery
    rules: frozenset[str] = CLICK_RULES

    async def on_click(self, click: Click) -> FollowUp:
        """Decide and store before the ack; return the work for after the ack."""
        row = await self.actions.get(click.id) if click.id else None
        if row is None:
            return await self._refuse(click, row, BOUND, UNKNOWN)
        for rule, check in (
            (BOUND, self._check_place),
            (CLICKER, self._check_clicker),
            (ONCE, self._check_state),
            (EXPIRY, self._check_expiry),
            (RECHECK, self._check_paused),
        ):
            if rule in self.rules and (sentence := await check(click, row)):
                return await self._refuse(click, row, rule, sentence)
        if isinstance(click, FormSubmitted):
            return await self._edit(click, row)
        if click.what == EDIT:
            return self._open_form(click, row)
        return await self._decide(click, row)

    async def _check_place(self, click: Click, row: StoredAction) -> Refusal:
        """Check that the click came from a place where the card is shown."""
        if row.state == "proposed":
            return Text("click.proposed")
        if isinstance(click, FormSubmitted):
            fixed = row.tool in INTERNAL_TOOLS or row.action.is_question
            return UNBOUND if fixed or row.place.batch else None
        shown = (click.channel, click.ts) in row.place.messages
        whole = click.all == (row.tool == BATCH) and not row.place.batch
        fits_kind = row.action.is_question == (click.what == CHOOSE)
        if row.action.is_question:
            fits_kind = fits_kind and click.option < len(row.question.options)
        fits = fits_kind and (click.what != EDIT or row.tool not in INTERNAL_TOOLS)
        return None if shown and whole and fits else UNBOUND

    async def _check_clicker(self, click: Click, row: StoredAction) -> Refusal:
        admission = self.cards.admission
        try:
            policy = await admission.file.read()
        except PolicyFault:
            return UNCHECKED_MESSAGE
        if not _may_decide(policy, click, row, self.team):
            if row.tool == GRANT:
                return Text("click.not_admin")
            return Text("click.not_others" if _is_own_decision(row) else "click.not_yours")
        try:
            async with asyncio.timeout(PERSON_S):
                person = await admission.people.person(click.user, self.team, fresh=True)
        except TimeoutError:
            return UNCHECKED_MESSAGE
        if person is None:
            return admission.people.refusal("user", click.user) or UNCHECKED_MESSAGE
        is_allowed = person.kind == "member" or row.action.is_question
        return None if is_allowed else Text("click.not_member")

    async def _check_state(self, click: Click, row: StoredAction) -> Refusal:
        return None if row.state == "asked" else _format_decider(row)

    async def _check_expiry(self, click: Click, row: StoredAction) -> Refusal:
        late = row.state == "expired" or row.expires is None or row.expires <= datetime.now(UTC)
        return EXPIRED if late else None

    async def _check_paused(self, click: Click, row: StoredAction) -> Refusal:
        """Reject approvals while all work is paused; a denial or an edit is allowed."""
        if isinstance(click, FormSubmitted) or click.what not in (APPROVE, CHOOSE):
            return None
        by = await self.cards.admission.inbox.paused_by()
        return Text("click.paused", {"by": by}) if by else None

    async def _decide(self, click: CardClicked, row: StoredAction) -> FollowUp:
        approved = click.what in (APPROVE, CHOOSE)
        state = "approved" if approved else "denied"
        option = row.question.options[click.option] if click.what == CHOOSE else ""
        lines = await self._lines(click, row, state)
        decision = CardDecision(state, click.user, option)
        among = ("asked",) if ONCE in self.rules else STATES
        if not await self.actions.decide(row, decision, lines, among=among):
            return await self._too_late(click, row)
        log.info("%s has %s the action %s", click.user, state, row.id)
        return self._begin(row.id) if approved else self.cards.draw(row.id)

    async def _edit(self, click: FormSubmitted, row: StoredAction) -> FollowUp:
        old = row.action
        if not click.texts.keys() <= editable(old).keys():
            return await self._refuse(click, row, BOUND, UNBOUND)
        new = old.with_arguments(click.texts)
        if new.args != old.args:
            lines = await self._lines(click, row, "edited")
            if not await self.actions.replace(row, new, click.user, lines):
                return await self._too_late(click, row)
            log.info("%s has edited the action %s, now %s", click.user, row.id, new.id)
        return self._reshow(new.id)

    async def _too_late(self, click: Click, row: StoredAction) -> FollowUp:
        """Handle a click after somebody else has decided."""
        now = await self.actions.get(row.id) or row
        return await self._refuse(click, now, ONCE, _format_decider(now))

    async def _refuse(
        self, click: Click, row: StoredAction | None, rule: str, sentence: Text | str
    ) -> FollowUp:
        log.warning("a click of %s on %s counts for nothing: %s", click.user, click.id, rule)
        await self.actions.log(await self._lines(click, row, "refused", rule))
        return self._tell(click, row, sentence)

    async def _lines(
        self, click: Click, row: StoredAction | None, verdict: str, rule: str = ""
    ) -> Sequence[Decision]:
        """Return the gate's log of a click; one line for each action of a batch.

        `rule` is the rule that the click violates, else the rule that requires approval.
        """
        now = datetime.now(UTC)
        if row is None:
            return [Decision("", "", "click", "", verdict, rule, now, click.user)]
        return [
            Decision(
                *(each.run, each.id, each.tool, each.digest[:16]),
                *(verdict, rule or each.action.rule, now, click.user),
            )
            for each in await self.actions.parts(row)
        ]

    async def _tell(self, click: Click, row: StoredAction | None, sentence: Text | str) -> None:
        """Tell only the person who clicked, in their language."""
        place = row.place if row else CardPlace()
        (channel, _), thread = (place.messages or (("", ""),))[0], place.thread
        if isinstance(click, CardClicked):
            channel, thread = click.channel, click.thread_ts
        try:
            if channel:
                with in_language(await self.cards.language(click.user, channel)):
                    text = str(sentence)
                await self.cards.writer.whisper(channel, click.user, text, thread or None)
        except WriteFailed as error:
            log.warning("%s is not told of a click: %s", click.user, error)
        if row and row.state not in UNDECIDED_STATES:
            await self.cards.draw(row.id)

    async def _open_form(self, click: CardClicked, row: StoredAction) -> None:
        with in_language(await self.cards.language(click.user, click.channel)):
            view = cards.form(row.action)
        opening = self.web.views_open(trigger_id=click.trigger, view=view) if view else None
        if opening is None or await attempt("the form of a card", opening):
            await self._tell(click, row, Text("click.no_form"))

    async def _reshow(self, id: str) -> None:
        row = await self.actions.get(id)
        if row and row.state == "proposed":
            await self.cards.reshow(row)

    async def _begin(self, id: str) -> None:
        await self.durable.begin(WORKFLOW, f"{WORKFLOW}/{id}", id)

    async def execute(self, id: str, is_lost: bool = False) -> dict[str, Any]:
        """Run the workflow of an approved action, or of a batch in order."""
        actions = self.cards.actions
        row = await actions.get(id)
        if row is None:
            return {"state": "gone"}
        if row.state == "approved":
            await self.cards.draw(id)  # disable its buttons
            with in_language(await self.cards.language_of(row)):
                await (self._give_up if is_lost else self._carry_all_out)(row)
            if row.tool == BATCH:
                await actions.finish(id, "done", "")
        await self.cards.draw(id)
        found = await actions.get(id)
        return {"state": found.state if found else "gone"}

    async def _carry_all_out(self, row: StoredAction) -> None:
        actions, lookups = self.cards.actions, list[StoredAction]()
        for each in await actions.parts(row):
            if each.state != "approved":
                continue
            if why := await self._objection(each):
                await actions.finish(each.id, "failed", why)
            elif each.action.asks:
                lookups.append(each)
            else:
                done = await (self._answer if each.action.is_question else self._carry_out)(each)
                await actions.finish(each.id, *done)
        asks = [ask for each in lookups for ask in each.action.asks]
        first = next(iter(lookups), row)
        again = bool(asks) and await self.delivery.again(first.run, asks)
        for each in lookups:
            text = phrase("action.looked_up" if again else "action.overtaken")
            await actions.finish(each.id, "done" if again else "failed", text)

    async def _carry_out(self, row: StoredAction) -> tuple[str, str]:
        """Return the final state, and a sentence on it."""
        try:
            return "done", await retry_until(lambda: self._do(row), SLACK_GONE_S)
        except NotDone as refusal:
            return "failed", str(refusal)
        except WriteFailed as error:
            log.warning("the action %s failed: %s", row.id, error)
            unsettled = isinstance(error, OutcomeUnknown)
            key = "action.unsettled" if unsettled else "action.not_taken"
            return "failed", phrase(key, code=error.code)
        except StoreError:
            raise
        except Exception:  # top-level boundary: one action must not take down the worker
            log.exception("the action %s failed", row.id)
            return "failed", phrase("action.failed")

    async def _answer(self, row: StoredAction) -> tuple[str, str]:
        """Answer a request again, with its requester's choice; return the same as `_carry_out`."""
        label = row.action.label.to_json()
        choice = Choice(question=row.question.question, option=row.said, label=label)
        again = await self.delivery.again(row.run, choice=choice)
        return ("done", row.said) if again else ("failed", phrase("action.overtaken"))

    async def _do(self, row: StoredAction) -> str:
        if row.tool != GRANT:
            return await self._perform(row.action)
        offer, by = row.grant, row.decided_by or ""
        await self.grants.add(filter(None, offer.sources), offer.destination, by, row.id)
        shown = await self.delivery.publish(row.run)
        return phrase("action.granted" if shown else "action.granted_only")

    async def _perform(self, action: Action) -> str:
        """Execute an approved action exactly as stored; return what was done, in a sentence.

        It may be called again: its writes happen once for the action's id. Raises NotDone for an
        action that must not or cannot be done, WriteFailed if Slack is unavailable.
        """
        async with self.delivery.runs.at_work(action.run) as live:
            run = live.run
            tool = tool_of(action, run.clients)
            if tool is None:
                raise NotDone(phrase("action.no_tool", tool=action.tool))
            ctx = run.context(action.label, intent=action.intent, key=f"action/{action.id}")
            try:
                async with asyncio.timeout(run.limits.tool_timeout_s):
                    found = await run.gate.perform(action, ctx, tool)
            except ToolError as error:
                raise NotDone(str(error)) from error
            except TimeoutError:
                raise NotDone(phrase("action.no_answer", tool=tool.name)) from None
        if isinstance(found, Deny):
            raise NotDone(phrase(REFUSAL_TEXT_KEYS.get(found.rule, "refused.other")))
        return found.note or phrase("done.done")

    async def _objection(self, row: StoredAction) -> str:
        """Return why an action must not be executed although it was approved."""
        if row.decided_at is None or datetime.now(UTC) - row.decided_at > HOLDS_FOR:
            return phrase("action.late")
        by = await self.delivery.inbox.paused_by() if RECHECK in self.rules else None
        return phrase("action.paused", by=by) if by else ""

    async def _give_up(self, row: StoredAction) -> None:
        """End an action, or all of a batch, that cannot be carried out."""
        for each in (*await self.cards.actions.parts(row), row):
            await self.cards.actions.finish(each.id, "failed", phrase("action.crashed"))

    async def recover(self) -> None:
        """Start approved actions whose process may have died before it started the workflow."""
        for row in await self.cards.actions.in_state("approved"):
            if not row.place.batch:
                await self._begin(row.id)

    async def run(self) -> None:
        """Start approved actions, expire undecided ones and update outdated cards, until
        cancelled."""
        fault = "the cards are not up to date"
        await repeat(self.tidy, TIDY_EVERY_S, fault, known=(StoreError, WriteFailed))

    async def tidy(self) -> None:
        """Recover, expire and update once. Raises WriteFailed."""
        await self.recover()
        now = datetime.now(UTC)
        await self.cards.actions.expire(now, now - UNSEEN_FOR)
        await self.cards.tidy(now - REDRAWN_FOR)


def _may_decide(policy: Policy, click: Click, row: StoredAction, team: str) -> bool:
    if row.tool == GRANT:
        return click.user in policy.admins and click.team == team
    if click.user == row.requester:
        return bool(click.team) and click.team in row.place.teams
    approver = click.user in policy.approvers and click.team == team
    return approver and not _is_own_decision(row)


def _is_own_decision(row: StoredAction) -> bool:
    """Return whether only the requester may decide on the action, or on one of a batch."""
    tools = row.batch.tools if row.tool == BATCH else (row.tool,)
    return not OWN_DECISIONS.isdisjoint(tools)


def _format_decider(row: StoredAction) -> Text:
    """Format who decided, in a text that Slack parses: only an id becomes a mention."""
    by = row.decided_by
    name = f"<@{by}>" if by and by[0] in "UW" and by.isalnum() else (by or Text("click.somebody"))
    is_answer = row.action.is_question and row.state in ("approved", "done", "failed")
    state = "answered" if is_answer else "unknown" if row.state == "asked" else row.state
    return Text(f"click.{state}", {"by": name})
