"""Slack exports, commands and local services for the tests of the bot.

Commands run in this process, against real servers on loopback; no part of the bot is replaced.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from engine_kit import MUX, call, is_child, line, results, say, submission, turns, use
from pg_kit import with_store
from standins.model import ModelServer, Responder
from standins.slack import API_PATH, LocalSlack

from bot.__main__ import main
from bot.local.model.answer import Answer
from bot.local.offline.conversation import items_of
from bot.local.offline.model import answer as offline_model

Json = dict[str, Any]

AS_OF = "2025-03-15"
"""The end of the exports that are written here; their messages are of March 2025."""
USERS = {"U0ANA": "Ana Ruiz", "U0LUIS": "Luis Gil", "U0EVA": "Eva Roth", "U0TOM": "Tom Vance"}

# ---- exports


def ts(at: str) -> str:
    """The Slack timestamp of "DD HH:MM" in March 2025, UTC."""
    moment = datetime.strptime(f"2025-03-{at}", "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
    return f"{int(moment.timestamp())}.000100"


def export_message(at: str, text: str, user: str = "U0ANA", thread: str = "", **more: Any) -> Json:
    """A message of an export; `thread` is the time of the root that it replies to."""
    message = {"type": "message", "ts": ts(at), "user": user, "text": text}
    return message | ({"thread_ts": ts(thread)} if thread else {}) | more


def export(
    folder: Path,
    channels: Mapping[str, Iterable[Json]],
    private: Mapping[str, Sequence[str]] | None = None,
) -> Path:
    """A Slack export of these channels (name -> messages), each with the id `C0<NAME>`.

    `private` maps names to the members of the channel.
    """
    hidden = private or {}
    users = [{"id": i, "name": n.split()[0].lower(), "real_name": n} for i, n in USERS.items()]
    listed = [{"id": channel_id(n), "name": n, "members": list(USERS)} for n in channels]
    parts: dict[str, bytes] = {
        "users.json": json.dumps(users).encode(),
        "channels.json": json.dumps([c for c in listed if c["name"] not in hidden]).encode(),
        "groups.json": json.dumps(
            [{**c, "members": list(hidden[str(c["name"])])} for c in listed if c["name"] in hidden]
        ).encode(),
    }
    for name, messages in channels.items():
        days: dict[str, list[Json]] = {}
        for message in messages:
            day = f"{datetime.fromtimestamp(float(message['ts']), UTC):%Y-%m-%d}"
            days.setdefault(day, []).append(message)
        parts |= {f"{name}/{day}.json": json.dumps(each).encode() for day, each in days.items()}
    path = folder / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, raw in parts.items():
            archive.writestr(name, raw)
    return path


def channel_id(name: str) -> str:
    return "C0" + name.upper().replace("-", "")


def small_export(folder: Path) -> Path:
    """Two channels: an open question, an answered one, and small talk."""
    return export(
        folder,
        {
            "support-es": [
                export_message("10 09:00", "No puedo pagar con tarjeta, ¿qué hago?"),
                export_message("11 09:00", "La factura sale dos veces, ¿alguien lo mira?", "U0EVA"),
                export_message("11 09:30", "Arreglado, prueba otra vez", "U0LUIS", "11 09:00"),
                export_message("11 10:00", "Funciona, muchas gracias", "U0EVA", "11 09:00"),
            ],
            "support-en": [
                export_message(
                    "12 09:00", "The export button does nothing, how do I fix this?", "U0TOM"
                ),
                export_message(
                    "12 09:20", "Try it in another browser please", "U0LUIS", "12 09:00"
                ),
            ],
        },
    )


# ---- commands


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Shell:
    """Runs commands as if typed. All else is read from what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *args: object) -> Done:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(arg) for arg in args])
        code = ended.value.code
        output = self._capsys.readouterr()
        return Done(code if isinstance(code, int) else 1, output.out, output.err)

    def sweep(self, zip_file: Path, channels: str = "*", *more: str) -> Json:
        """The document of an offline sweep of the days before AS_OF."""
        _prepare_store()
        done = self(
            *("sweep", "--channels", channels, "--slack-export", zip_file, "--as-of", AS_OF),
            *("--since", "30d", "--model", "offline", "--json", *more),
        )
        document: Json = done.json
        return document

    def ask(self, zip_file: Path, question: str, *more: str) -> Json:
        _prepare_store()
        done = self(
            *("ask", question, "--slack-export", zip_file, "--as-of", AS_OF, "--since", "30d"),
            *("--model", "offline", "--json", *more),
        )
        document: Json = done.json
        return document


def _prepare_store() -> None:
    """Copy the store that a first command would take time to create."""
    with_store(Path(os.environ["ASSISTANT_DATA_DIR"]))


def refusal_text(done: Done, code: str) -> str:
    """Return the sentence of a refusal; check that it is one, with exit code 2 and no traceback."""
    assert done.code == 2, done.err
    assert "Traceback" not in done.err
    if done.out:
        error = done.json["error"]
        assert error.keys() == {"code", "message", "hint"}
        assert error["code"] == code
        assert done.err.strip().endswith(f"{error['message']} {error['hint']}".strip())
    assert done.err.startswith("error: ")
    return done.err.strip()


# ---- services


@contextmanager
def model_at(
    monkeypatch: pytest.MonkeyPatch, responder: Responder = offline_model, latency_s: float = 0.0
) -> Iterator[ModelServer]:
    """A Messages API on loopback, which `--model claude` uses; its requests are recorded."""
    server = ModelServer(responder, latency_s=latency_s, record=True)
    with MUX.served_app(server.app) as url:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
        yield server


def delegating_model(
    *tasks: tuple[str, str, str], readers: Mapping[str, Responder] | None = None
) -> Responder:
    """A parent with a subagent for each (task, scope, handle); it cites what each found first.

    The subagents follow the offline rules, or are the `readers` of their tasks.
    """
    briefs = [
        use("run_subagent", task=task, description=task[:40], scope=scope, handles=[handle])
        for task, scope, handle in tasks
    ]
    claims = " ".join(f"Found [F{n}.1]." for n in range(1, len(tasks) + 1))
    parent = turns(Answer(briefs), say(claims))

    def responder(body: Json) -> Answer:
        if not is_child(body):
            return parent(body)
        return (readers or {}).get(line(body, "TASK"), offline_model)(body)

    return responder


def finding_model(tool: str, **arguments: Any) -> Responder:
    """A subagent that calls a tool, and submits the first item of its result."""

    def submit_first_item(body: Json) -> Answer:
        item = next(items_of(results(body)[0]["content"]))
        return submission("Found.", findings=[{"claim": item.text[:100], "evidence": [item.id]}])

    return turns(call(tool, **arguments), submit_first_item)


def in_one_turn(server: ModelServer) -> list[str]:
    """Names of the tools that the parent's first turn with calls uses."""
    parents = [body for body in server.recorded if not is_child(body)]
    return [block["name"] for block in parents[1]["messages"][1]["content"]]


@contextmanager
def slack_at(monkeypatch: pytest.MonkeyPatch, slack: LocalSlack) -> Iterator[LocalSlack]:
    """A Slack on loopback, which commands without `--slack-export` read."""
    with MUX.served_app(slack.app) as url:
        monkeypatch.setenv("SLACK_API_URL", url + API_PATH)
        monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-local")
        yield slack


def configure(text: str) -> None:
    """Write `assistant.yaml` into the working directory of this test."""
    Path("assistant.yaml").write_text(text, "utf-8")
