"""Eight subagents write eight articles at once, each its own, and one click pushes them all."""

from __future__ import annotations

import json
from pathlib import Path

from card_kit import cards, payload, people, reaches
from engine_kit import (
    Json,
    is_child,
    line,
    results,
    say,
    scripted_parent,
    sentence,
    submission,
    turn,
    use,
)
from files_kit import BOOK, branches, git, repository, subjects, text_at, with_remote
from serve_kit import ASKER, Served, serve, with_sections

from bot.local.model.answer import Answer
from bot.memory import NoteStore
from config.sections import ProjectSettings
from scopes.label import Label
from scopes.notes import NewNote

TOPICS = ("harbour", "signals", "ferries", "lanterns", "pilots", "anchors", "charts", "tides")
INDEX = "index.txt"
OWN = Label(False, frozenset({ASKER}), frozenset({"notes:own"}))


def fact(topic: str) -> str:
    return sentence(f"fact of {topic}", 16)


def index(state: str) -> str:
    """Return the text of a shared file with a line of each topic."""
    return "\n\n".join(f"{topic}: {state}\n" for topic in TOPICS)


def write_article(body: Json) -> Answer:
    """Searches the facts, writes them down, ticks the topic off, commits, asks to push."""
    topic, step = line(body, "TASK").rpartition(" ")[2], turn(body)
    if step == 0:
        return Answer([use("search_notes", query=topic), use("read_file", path=INDEX, folder=BOOK)])
    if step == 1:
        found = str(results(body)[0]["content"])
        note = next(each for each in found.splitlines() if f"{topic}: " in each)
        text = f"# {topic}\n\n{note.partition(f'{topic}: ')[2]}\n"
        tick = {"old": f"{topic}: open\n", "new": f"{topic}: done\n"}
        edit = use("edit_file", folder=BOOK, path=INDEX, **tick)
        return Answer([use("write_file", folder=BOOK, path=f"{topic}.md", text=text), edit])
    if step == 2:
        return Answer([use("git_commit", folder=BOOK, message=f"Write on {topic}")])
    if step == 3:
        return Answer([use("git_push", folder=BOOK)])
    return submission(f"Drafted {topic}.", findings=[])


def delegate(topic: str) -> Json:
    task = f"Write the article on {topic}"
    handles = [BOOK, "notes:own"]
    return use("run_subagent", task=task, description=task, scope="files", handles=handles)


def requests_on(bot: Served, topic: str) -> str:
    """Return the requests of the subagent that writes on a topic."""
    bodies = [body for body in bot.model.recorded if is_child(body)]
    return json.dumps([body for body in bodies if line(body, "TASK").endswith(f" {topic}")])


async def test_eight_articles_at_once_are_written_and_pushed_by_one_click(tmp_path: Path) -> None:
    repo = repository(tmp_path / "book", {INDEX: index("open")})
    remote = with_remote(repo, tmp_path / "bare.git")
    parts = Answer([delegate(topic) for topic in TOPICS])
    model = scripted_parent(parts, say("They wait to be pushed."), children=write_article)
    book = ProjectSettings(path=tmp_path / "book", push=True, readers=(ASKER,))
    change = with_sections(files={"projects": {"book": book}}, limits={"seconds": 120.0})
    async with serve(tmp_path, model, space=people(), change=change) as bot:
        shelf = NoteStore(bot.store.database)
        for topic in TOPICS:
            note = NewNote(f"user:{ASKER}", f"k/{topic}", topic, fact(topic), OWN, "r0")
            await shelf.save(note)
        direct = bot.slack.people.dm(ASKER)
        bot.ask("Write an article on each topic into the book, and push them.", channel=direct)
        waiting = await reaches(bot, "asked")
        assert sorted(row.tool for row in waiting) == ["batch", *["git_push"] * 8]
        (card,) = cards(bot, direct)
        assert all(f"{topic}.md +3 -0" in card.text for topic in TOPICS)
        assert subjects(remote, "main") == ["Begin"]  # nothing leaves before the click
        bot.slack.put("interactive", payload(card, channel=direct, action="action_approve_all"))
        assert {row.state for row in await reaches(bot, "done", "failed")} == {"done"}
        for topic in TOPICS:
            told = requests_on(bot, topic)
            assert [each for each in TOPICS if fact(each) in told] == [topic]
    assert sorted(subjects(remote, "main")) == sorted(["Begin", *(f"Write on {t}" for t in TOPICS)])
    for topic in TOPICS:
        assert text_at(remote, f"{topic}.md", "main") == f"# {topic}\n\n{fact(topic)}\n"
    assert text_at(remote, INDEX, "main") == index("done")
    assert git(tmp_path / "bare.git", "fsck", "--no-dangling") == ""
    assert subjects(repo, "main") == ["Begin"]  # its owner merges
    assert len(branches(repo)) == 2  # no draft is left
    assert git(tmp_path / "book", "status", "--porcelain") == ""
