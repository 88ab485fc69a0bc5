"""Eight subagents write eight articles at once, each its own, and one click pushes them all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from card_kit import cards, payload, people, reaches
from engine_kit import Json, is_child, line, results, say, sentence, submission, turn, use
from files_kit import git, repository, subjects, text_at, with_remote
from serve_kit import ASKER, Served, change_settings, request_in, serve

from bot.local.model.answer import Answer
from bot.local.model.server import Responder
from bot.memory import NoteStore
from config.sections import ProjectSettings
from config.settings import Settings
from scopes.label import Label
from scopes.notes import NewNote

TOPICS = ("harbour", "signals", "ferries", "lanterns", "pilots", "anchors", "charts", "tides")
EARLIER = "How long is an article of ours"
STYLE = f"It is short: {sentence('style', 12)}"
VOICE = f"Voice sample: {sentence('voice', 12)}"
OWN = Label(False, frozenset({ASKER}), frozenset({"notes:own"}))


def fact(topic: str) -> str:
    return sentence(f"fact of {topic}", 16)


def book(root: Path, *, push: bool = False) -> Callable[[Settings], Settings]:
    """Settings with one project, which only the asker may read."""
    project = ProjectSettings(path=root, push=push, readers=(ASKER,))

    def change(settings: Settings) -> Settings:
        return change_settings(
            settings, files={"projects": {"book": project}}, limits={"seconds": 120.0}
        )

    return change


def delegate(task: str, *handles: str) -> Json:
    arguments = {"task": task, "description": task[:60], "scope": "files"}
    return use("run_subagent", **arguments, handles=["files:book", *handles])


def last(body: Json) -> str:
    return "\n".join(str(block["content"]) for block in results(body))


def write_article(body: Json) -> Answer:
    """Searches, reads the voice and the facts, drafts, writes, commits, asks to push."""
    topic = line(body, "TASK").rpartition(" ")[2]
    step = turn(body)
    if step == 0:
        return Answer([use("search_notes", query=topic), use("search_notes", query="voice"),
                       use("search_conversations", query="article")])  # fmt: skip
    if step == 1:
        found = [text for text in last(body).split() if text.startswith("[note/")]
        ids = dict.fromkeys(each.strip("[]") for each in found)
        return Answer([use("read_note", note=id) for id in ids])
    if step == 2:
        note = next(t for t in last(body).splitlines() if f"{topic}: " in t)
        text = f"# {topic}\n\n{note.partition(f'{topic}: ')[2]}\n"
        return Answer([use("write_file", folder="files:book", path=f"{topic}.md", text=text)])
    if step == 3:
        return Answer([use("git_commit", folder="files:book", message=f"Write on {topic}")])
    if step == 4:
        return Answer([use("git_push", folder="files:book")])
    return submission(f"Drafted {topic}.", findings=[])


def parent_model(children: Responder, *briefs: Json, end: str = "It is done.") -> Responder:
    def responder(body: Json) -> Answer:
        if is_child(body):
            return children(body)
        if EARLIER in request_in(body):
            return say(STYLE)
        return Answer(list(briefs)) if turn(body) == 0 else say(end)

    return responder


async def note_down(bot: Served) -> None:
    shelf = NoteStore(bot.store.database)
    texts = {topic: fact(topic) for topic in TOPICS} | {"voice": VOICE}
    for title, text in texts.items():
        await shelf.save(NewNote(f"user:{ASKER}", f"k/{title}", title, text, OWN, "r0"))


def children(bot: Served) -> dict[str, list[Json]]:
    """Topic -> the requests of the subagent that wrote on it."""
    bodies = [body for body in bot.model.recorded if is_child(body)]
    return {t: [b for b in bodies if line(b, "TASK").endswith(f" {t}")] for t in TOPICS}


async def test_eight_articles_at_once_are_written_and_pushed_by_one_click(tmp_path: Path) -> None:
    repo = repository(tmp_path / "book", {"README.md": "# Articles\n"})
    remote = with_remote(repo, tmp_path / "bare.git")
    parts = [delegate(f"Write the article on {topic}", "notes:own") for topic in TOPICS]
    responder = parent_model(write_article, *parts, end="Eight articles wait to be pushed.")
    change = book(tmp_path / "book", push=True)
    async with serve(tmp_path, responder, space=people(), change=change) as bot:
        await note_down(bot)
        direct = bot.slack.people.dm(ASKER)
        await bot.answer(bot.ask(EARLIER, channel=direct), channel=direct)
        bot.ask("Write an article on each topic into the book, and push them.", channel=direct)
        waiting = await reaches(bot, "asked")
        assert [row.tool for row in waiting if row.tool == "git_push"] == ["git_push"] * 8
        (card,) = cards(bot, direct)
        assert all(f"Write on {topic} ({topic}.md +3 -0)" in card.text for topic in TOPICS)
        assert subjects(remote, "main") == ["Begin"]  # nothing leaves before the click
        bot.slack.put("interactive", payload(card, channel=direct, action="action_approve_all"))
        assert {row.state for row in await reaches(bot, "done", "failed")} == {"done"}
        for topic, bodies in children(bot).items():
            requests = json.dumps(bodies)
            assert fact(topic) in requests
            assert VOICE in requests
            assert STYLE in requests  # of an earlier conversation
            assert not [other for other in TOPICS if other != topic and fact(other) in requests]
    assert sorted(subjects(remote, "main")) == sorted(["Begin", *(f"Write on {t}" for t in TOPICS)])
    for topic in TOPICS:
        assert text_at(remote, f"{topic}.md", "main") == f"# {topic}\n\n{fact(topic)}\n"
    assert git(tmp_path / "book", "status", "--porcelain") == ""
    assert git(tmp_path / "bare.git", "fsck", "--no-dangling") == ""
    assert subjects(repo, "main") == ["Begin"]  # its owner merges
