"""The card of a push shows all that would leave, within what a card can hold."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pygit2
import pytest
from files_kit import BOOK, BRANCH, ProjectRun, commit_paths, git, repository, with_remote
from standins.slack_blocks import check_blocks
from standins.slack_shown import flat

from bot.approvals import cards
from bot.approvals.cards import MOST_MESSAGES, ApprovalCard
from bot.slack.messages import MessagePart
from scopes.files import MAX_PUSHED
from scopes.folders.git_push import MAX_COMMITS_CHARS, format_commits
from scopes.tool import ToolContext
from subagents import gate
from subagents.gate import MAX_PROPOSED, Action, new_id

NOW = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
SENTENCE = "The harbour opens at dawn & closes when the last ferry is in. "


@pytest.fixture
def tools(tmp_path: Path) -> ProjectRun:
    tools = ProjectRun(tmp_path, push=True)
    with_remote(repository(tools.root), tmp_path / "bare.git")
    return tools


async def propose_push(
    tools: ProjectRun, files: dict[str, str], message: str = "Add them", by: str = "s1"
) -> Action:
    await commit(tools, files, message, by)
    card = await tools.asks("git_push", by=by, folder=BOOK)
    assert isinstance(card, gate.Card), card
    return card.action


async def commit(tools: ProjectRun, files: dict[str, str], message: str, by: str = "s1") -> None:
    ctx: ToolContext = tools.context(by)
    for path, text in files.items():
        if (tools.root / path).exists():
            await tools.use("read_file", by=ctx, path=path, folder=BOOK)
        await tools.use("write_file", by=ctx, path=path, text=text, folder=BOOK)
    await tools.use("git_commit", by=ctx, message=message, folder=BOOK)


def text_of_parts(parts: Sequence[MessagePart]) -> str:
    """Return the text of messages; fail if Slack refuses one of them."""
    return "\n".join(flat(block) for part in parts for block in check_blocks(part.blocks))


def card_of(*actions: Action) -> ApprovalCard:
    card = cards.pending_card(actions[0], NOW) if len(actions) == 1 else (
        cards.batch(new_id(), actions, NOW))  # fmt: skip
    assert card
    return card


async def test_card_shows_the_same_diff_as_git(tools: ProjectRun) -> None:
    new = "def one():\n    return 10\n\n\ndef two():\n    return 2\n"
    action = await propose_push(
        tools, {"src/app.py": new, "a.md": "One\n"}, "Say ten\n\nAs she asked."
    )
    heading, _, lines = action.told["commit 1"].partition("\n")
    assert heading == "Say ten (a.md +1 -0, src/app.py +1 -1)"
    of_git = git(tools.root, "show", "--format=%w(0,4,4)%B", BRANCH)
    assert lines.split() == of_git.split()
    assert "    As she asked.\n\n    Requested-by: U0ANA\n" in lines
    assert "-    return 1\n+    return 10\n" in lines
    card = card_of(action)
    assert card.before == ()
    assert all(line in text_of_parts([card.last]) for line in lines.splitlines())


async def test_gitattributes_and_nul_bytes_do_not_hide_changed_lines(tools: ProjectRun) -> None:
    files = {".gitattributes": "*.md binary\n*.md -diff\n", "a.md": "To be read\n"}
    diff = (await propose_push(tools, files)).told["commit 1"]
    assert "+To be read\n" in diff
    assert "a.md +1 -0" in diff
    nul = (await propose_push(tools, {"b.md": "a\0b\n"}, by="s2")).told["commit 1"]
    assert "+a\0b\n" in nul


def test_binary_file_is_marked_in_the_diff_of_a_commit(tmp_path: Path) -> None:
    repo = repository(tmp_path)
    (tmp_path / "logo.png").write_bytes(b"\x89PNG\r\n\xff\xfe")
    logo = repo.get(commit_paths(repo, "Add a logo", "logo.png"))
    assert isinstance(logo, pygit2.Commit)
    (text,) = format_commits(repo, [logo], "book")
    assert text.startswith("Add a logo (logo.png, binary)\n")
    assert "Binary file logo.png is not shown.\n" in text


async def test_markup_and_invisible_characters_in_a_diff_are_shown_as_text(
    tools: ProjectRun,
) -> None:
    text = "<!channel> *bold* <https://evil.example|here> :tada:\nif admin\u202e\u2066 {\u200b\n"
    card = card_of(await propose_push(tools, {"a.md": text}))
    kinds = {leaf["type"] for block in card.last.blocks if block["type"] == "rich_text"
             for group in block["elements"] for leaf in group["elements"]}  # fmt: skip
    assert kinds <= {"text", "user", "date"}
    output = text_of_parts([card.last])
    assert "+<!channel> *bold* <https://evil.example|here> :tada:" in output
    assert "+if admin\\u202e\\u2066 {\\u200b" in output


async def test_long_diff_is_truncated_without_hiding_other_files(tools: ProjectRun) -> None:
    long = "".join(f"Line {n} of a long file\n" for n in range(2_000))
    files = {"a.md": long, "b.md": long.upper(), "z.md": "Small, and last\n"}
    action = await propose_push(tools, files)
    diff = action.told["commit 1"]
    assert "+LINE 1 OF A LONG FILE\n" in diff
    assert "+Small, and last\n" in diff
    marker = next(line for line in diff.splitlines() if line.startswith("… "))
    id = action.args["commits"][:12]
    assert marker.endswith(f" characters more: git show {id} in the folder book")
    omitted = int(marker.split()[1].replace(",", ""))
    whole = git(tools.root, "show", "--format=", id, "--", "a.md")
    start = diff.index("diff --git")
    kept = diff[start : diff.index(f"\n{marker}")]
    assert whole.startswith(kept)
    assert omitted == len(whole) - len(kept)
    assert diff.count("… ") == 2
    assert MAX_COMMITS_CHARS * 0.9 < len(diff) < MAX_COMMITS_CHARS * 1.1


async def test_card_for_many_long_pushes_fits_in_the_message_limit(tools: ProjectRun) -> None:
    actions = [
        await propose_push(tools, {f"{n}.md": SENTENCE * 400}, f"Write on topic {n}", by=f"s{n}")
        for n in range(MAX_PROPOSED)
    ]
    card = card_of(*actions)
    assert 0 < len(card.before) <= MOST_MESSAGES
    last, whole = text_of_parts([card.last]), text_of_parts(card.before)
    for n, action in enumerate(actions):
        assert f"{n + 1}. Push commits to files:book" in last
        assert f"Write on topic {n} ({n}.md +1 -0)" in whole
        assert f"characters more: git show {action.args['commits'][:12]} in" in whole
    assert f"All of it is in the {len(card.before)} messages before this one." in last


async def test_card_shows_the_maximum_of_commits_and_more_are_rejected(tools: ProjectRun) -> None:
    for n in range(MAX_PUSHED):
        await commit(tools, {f"{n}.md": SENTENCE * 40}, f"Write on topic {n}")
    proposal: Any = await tools.asks("git_push", folder=BOOK)
    card = card_of(proposal.action)
    assert len(card.before) <= MOST_MESSAGES
    whole = text_of_parts([*card.before, card.last])
    assert all(f"Write on topic {n} ({n}.md +1 -0)" in whole for n in range(MAX_PUSHED))
    await commit(tools, {"more.md": "x\n"}, "One more")
    error = await tools.fails("git_push", folder=BOOK)
    assert error == f"{MAX_PUSHED} commits may be pushed at once."
