"""The part of App Home that connects a mailbox."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bot.accounts.connecting import Connecting, MailAccess

CONNECT, CODE, CANCEL, DISCONNECT, FORGET = (
    "home_mail_connect",
    "home_mail_code",
    "home_mail_cancel",
    "home_mail_disconnect",
    "home_mail_forget",
)
"""Action ids of its buttons, and of the field for the code."""
ACTIONS = (CONNECT, CODE, CANCEL, DISCONNECT, FORGET)
MOST_CORRECTED, MAX_CORRECTED = 20, 130
"""Corrections shown, and characters of each."""
LINK = "home_mail_link"
"""Of the button that only opens a page."""
OFF = (
    "Your mail cannot be connected here yet: an administrator has to set google.client_id, "
    "GOOGLE_CLIENT_SECRET and serve.public_url (docs/google.md)."
)

Block = dict[str, Any]


async def obey(connecting: Connecting, action: str, user: str, team: str, typed: str) -> MailAccess:
    """Do what a user pressed or typed; how it stands with their mailbox then. Raises StoreError."""
    if action == CONNECT:
        return await connecting.begin(user, team)
    if action == CODE:
        return await connecting.confirm(user, typed)
    if action == CANCEL:
        return await connecting.cancel(user)
    if action == DISCONNECT:
        return await connecting.disconnect(user)
    if action == FORGET:
        return await connecting.forget_corrections(user)
    return await connecting.access(user)


def blocks(mail: MailAccess) -> Iterator[Block]:
    """How it stands with the mailbox, and what can be done about it."""
    yield {"type": "header", "text": _plain("Your mail")}
    if mail.note:
        yield _section(mail.note)
    if mail.state == "off":
        yield _section(OFF)
    elif mail.state == "delegated":
        yield _section("I may read the mailbox of your own address, by your company's rules.")
        yield from _news(mail)
    elif mail.state == "absent":
        yield _section("Gmail is not connected. What I read in your mailbox is for you alone.")
        yield _actions(_button(CONNECT, "Connect Gmail", style="primary"))
    elif mail.state == "offered":
        yield _section(
            "Go on in the browser within ten minutes: allow it at Google, and come back with the "
            "code that you are shown at the end."
        )
        link = _button(LINK, "Open the page", style="primary", url=mail.link)
        yield _actions(link, _button(CANCEL, "Cancel"))
    elif mail.state == "waiting":
        yield from _waiting(mail.address)
    else:
        yield _section(f"Gmail is connected as {mail.address}.")
        yield from _news(mail)
        again = [_button(CONNECT, "Connect again", style="primary")] if mail.shut else []
        end = _button(DISCONNECT, "Disconnect", style="danger", confirm=_sure(mail))
        yield _actions(*again, end)
    if mail.corrected:
        yield from _corrected(mail.corrected)


def _news(mail: MailAccess) -> Iterator[Block]:
    """What came since the last digest, or that it cannot be known any more."""
    if mail.shut:
        yield _section(mail.shut)
    elif mail.new:
        threads = "1 thread" if mail.new == 1 else f"{mail.new:,} threads"
        yield _section(f"{threads} with new mail since your last digest.")
    elif mail.new == 0:
        yield _section("No new mail since your last digest.")


def _corrected(corrected: Sequence[str]) -> Iterator[Block]:
    """What later digests are told; addresses are a stranger's choice, so they are cut."""
    lines = [f"• {each[:MAX_CORRECTED]}" for each in corrected[:MOST_CORRECTED]]
    more = len(corrected) - MOST_CORRECTED
    lines += [f"and {more} more"] if more > 0 else []
    yield _section("\n".join(["What you have set right in digests:", *lines]))
    yield _actions(_button(FORGET, "Forget all of it"))


def _waiting(address: str) -> Iterator[Block]:
    yield _section(f"{address} waits for the code on the page in your browser, for ten minutes.")
    yield {
        "type": "input",
        "dispatch_action": True,
        "label": _plain("Code"),
        "hint": _plain("Type it yourself, from your own browser, and press Enter."),
        "element": {
            "type": "plain_text_input",
            "action_id": CODE,
            "max_length": 20,
            "dispatch_action_config": {"trigger_actions_on": ["on_enter_pressed"]},
        },
    }
    yield _actions(_button(CANCEL, "Cancel"))


def _sure(mail: MailAccess) -> Block:
    told = f"I forget how to open {mail.address}, and tell Google so. Your mail stays as it is."
    return {
        "title": _plain("Disconnect Gmail?"),
        "text": _plain(told[:300]),
        "confirm": _plain("Disconnect"),
        "deny": _plain("Cancel"),
    }


def _button(action: str, words: str, **more: Any) -> Block:
    return {"type": "button", "action_id": action, "text": _plain(words), **more}


def _actions(*buttons: Block) -> Block:
    return {"type": "actions", "elements": list(buttons)}


def _section(text: str) -> Block:
    return {"type": "section", "text": _plain(text[:3000])}


def _plain(text: str) -> Block:
    return {"type": "plain_text", "text": text, "emoji": False}
