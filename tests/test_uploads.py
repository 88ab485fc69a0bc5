"""Files that are put into a thread: once each, whatever fails on the way."""

from __future__ import annotations

import pytest
from outbox_kit import ASKED, CHANNEL, Desk, desk, workspace
from standins.slack import BOT_TOKEN, LocalSlack
from standins.slack_faults import Fault

from bot.local.slack.state import BOT_ID, BOT_SCOPES, BOT_USER, Identity
from bot.local.workspace import File
from bot.slack.client import ChannelClosed, OutcomeUnknown, TokenRefused, WriteFailed

NAME, CONTENT = "findings.csv", b"claim,owner\nlate,nobody\n"
ASK, DONE = "files.getUploadURLExternal", "files.completeUploadExternal"


def files(slack: LocalSlack) -> list[File]:
    return [file for each in slack.visible(CHANNEL, ASKED) for file in each.files]


async def share(made: Desk) -> str:
    return await made.writer.uploads.share(CHANNEL, ASKED, NAME, CONTENT, "Findings")


async def test_a_file_stands_in_the_thread_once_however_often_it_is_shared() -> None:
    async with desk() as made:
        ts = await share(made)
        assert await share(made) == ts
        (file,) = files(made.slack)
        assert (file.name, file.title, file.content) == (NAME, "Findings", CONTENT)
        assert made.slack.calls[DONE] == 1


@pytest.mark.parametrize(
    ("method", "kind"),
    [(ASK, "500"), ("upload", "drop"), ("upload", "429"), (DONE, "lost"), (DONE, "500")],
)
async def test_a_failure_on_the_way_neither_loses_nor_doubles_it(method: str, kind: str) -> None:
    async with desk() as made:
        made.slack.faults.append(Fault(method, kind, 1.0))
        try:
            await share(made)
        except WriteFailed:
            await share(made)  # as the next try of a delivery does
        assert [each.name for each in files(made.slack)] == [NAME]


async def test_without_the_scope_or_the_channel_it_is_said_which() -> None:
    poor = Identity(BOT_USER, BOT_ID, BOT_SCOPES - {"files:write"})
    async with desk(LocalSlack(workspace(), tokens={BOT_TOKEN: poor})) as made:
        with pytest.raises(TokenRefused, match="missing_scope"):
            await share(made)
    async with desk() as made:
        made.slack.state.members[CHANNEL].pop(BOT_USER)
        with pytest.raises(ChannelClosed):
            await share(made)


async def test_a_file_that_slack_took_once_is_looked_for_and_not_put_up_again() -> None:
    async with desk() as made:
        uploads = made.writer.uploads
        id = await uploads.hand_over(NAME, CONTENT)
        made.slack.unshared = 1
        with pytest.raises(OutcomeUnknown, match="not_shown"):
            await uploads.show(CHANNEL, ASKED, id, NAME)
        looks = made.slack.calls["conversations.replies"]
        with pytest.raises(WriteFailed, match="file_not_found"):
            await uploads.show(CHANNEL, ASKED, id, NAME)
        assert made.slack.calls["conversations.replies"] > looks + 1
        assert files(made.slack) == []
