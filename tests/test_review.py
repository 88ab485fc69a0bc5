"""The command `review`: what it prints, what it refuses before any model is called, and a kill."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from bot_kit import Shell, configure, model_at, refused
from engine_kit import MUX
from fork_server import forked
from panel_kit import CODE, SPECIALISTS, Minds, contract, defends, finds, point, write_profile
from standins.model import ModelServer
from test_panels import divided
from timing import Patience


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(CODE)
    return path


EACH = {name: finds(point(n, name)) for n, name in enumerate(SPECIALISTS, 1)}


def test_a_file_is_reviewed_and_the_next_review_knows_the_last(
    shell: Shell, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with model_at(monkeypatch, Minds(EACH)):
        first = shell("review", file, "--json")
        again = shell("review", file, "--language", "de")
        markdown = shell("review", file, "--markdown")
    assert first.code == 0, first.err
    assert len(first.json["findings"]) == 5
    assert "Prüfung von app.py" in again.out
    assert "0 neu, 0 behoben, 5 offen" in again.out
    assert markdown.out.startswith("# Review of app")
    assert "`app.py:1`" in markdown.out
    run = first.json["run_id"]
    checked = shell("audit", run)
    assert checked.code == 0
    assert " 0 leaks" in checked.out


# ---- what is refused by name, before any model is called


def wrong_key(folder: Path) -> None:
    path = write_profile(folder)
    text = json.loads(path.read_text())
    text["specialists"]["a"]["affinities"] = {"a": 1}
    path.write_text(json.dumps(text))


def two_specialists(folder: Path) -> None:
    path = write_profile(folder)
    text = json.loads(path.read_text())
    del text["specialists"]["c"]
    path.write_text(json.dumps(text))


def outside(folder: Path) -> None:
    path = write_profile(folder)
    path.write_text(path.read_text().replace('"prompt.md"', '"../../secret.md"'))


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (wrong_key, "specialists.a.affinities"),
        (two_specialists, "specialists"),
        (outside, "is not in this folder"),
    ],
)
def test_a_profile_that_is_wrong_is_refused_by_name(
    shell: Shell,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path], None],
    told: str,
) -> None:
    spoil(file.parent / "profiles")
    configure(f"panel: {{profiles: {file.parent / 'profiles'}}}\n")
    with model_at(monkeypatch, Minds()) as model:
        done = shell("review", file, "--profile", "own", "--json")
    assert told in refused(done, "bad_settings")
    assert model.requests == 0


def binary(path: Path) -> Path:
    path.write_bytes(b"\x00\x01\x02\xff" * 50)
    return path


def empty(path: Path) -> Path:
    path.write_text(" \n")
    return path


def nothing(path: Path) -> Path:
    path.mkdir()
    return path


def large(path: Path) -> Path:
    path.write_text("word " * 4_000)
    return path


def absent(path: Path) -> Path:
    return path


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (binary, "material"),
        (empty, "material is empty"),
        (nothing, "material holds nothing to review"),
        (large, "at most 5,000 are reviewed (panel.material_tokens"),
        (absent, "material cannot be read"),
    ],
)
def test_a_material_that_is_none_is_refused_by_name(
    shell: Shell,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], Path],
    told: str,
) -> None:
    configure("panel: {material_tokens: 5000}\n")
    with model_at(monkeypatch, Minds()) as model:
        done = shell("review", make(tmp_path / "material"), "--json")
    assert told in refused(done, "bad_material")
    assert model.requests == 0
    assert shell("runs", "--json").json == []


# ---- a kill in each phase


def in_phase(model: ModelServer, phase: str) -> bool:
    """Whether the calls of a phase have begun, and one of them at least was answered."""
    kinds = [contract(body) for body in model.recorded]
    if phase == "read":
        return kinds.count("review") >= 4
    if phase == "defence":
        return any(defends(body) for body in model.recorded)
    return kinds.count("verdicts") >= 3 if phase == "challenge" else "" in kinds


@pytest.mark.system
@pytest.mark.parametrize("phase", ["read", "challenge", "defence", "report"])
def test_a_killed_review_goes_on_and_pays_for_nothing_twice(
    shell: Shell, file: Path, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure("limits: {max_concurrency: 2}\n")
    minds = Minds(EACH, divided("quality"))
    model = ModelServer(minds, latency_s=0.1, record=True)
    with MUX.serving(model.app) as url:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
        with forked("review", str(file), "--json") as process:
            patience = Patience(60)
            while not in_phase(model, phase):
                assert not patience.over
                assert process.poll() is None, process.said()
                signal.sigtimedwait([], 0.01)
        (run,) = shell("runs", "--json").json
        done = shell("review", "--resume", run["id"], "--json")
    assert done.code == 0, done.err
    document = done.json
    checked = shell("audit", run["id"])
    assert (document["run_id"], document["status"]) == (run["id"], "complete")
    assert len(document["findings"]) == 5
    sent = [json.dumps(body["messages"]) for body in model.recorded]
    twice = len(sent) - len(set(sent))
    assert twice <= 2, "only what was under way is asked again"
    assert checked.code == 0, checked.out
    ended = shell("review", "--resume", run["id"], "--json")
    assert "has ended" in refused(ended, "complete")
