"""The command `review`: what it prints, what it refuses before any model is called, and a kill."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bot_kit import Shell, configure, model_at, refused
from fork_server import forked
from panel_kit import CODE, EACH, Minds, contract, defends, write_profile
from standins.model import ModelServer
from test_panels import divided
from timing import Patience


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(CODE)
    return path


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


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda each: each["a"].update(affinities={"a": 1}), "specialists.a.affinities"),
        (lambda each: each.pop("c"), "specialists"),
        (lambda each: each["a"].update(prompt="../../secret.md"), "is not in this folder"),
    ],
    ids=["a wrong key", "two specialists", "a file outside"],
)
def test_a_profile_that_is_wrong_is_refused_by_name(
    shell: Shell,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Any], object],
    told: str,
) -> None:
    path = write_profile(file.parent / "profiles")
    profile = json.loads(path.read_text())
    spoil(profile["specialists"])
    path.write_text(json.dumps(profile))
    configure(f"panel: {{profiles: {file.parent / 'profiles'}}}\n")
    with model_at(monkeypatch, Minds()) as model:
        done = shell("review", file, "--profile", "own", "--json")
    assert told in refused(done, "bad_settings")
    assert model.requests == 0


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: path.write_bytes(b"\x00\x01\x02\xff" * 50), "material"),
        (lambda path: path.write_text(" \n"), "material is empty"),
        (lambda path: path.mkdir(), "material holds nothing to review"),
        (
            lambda path: path.write_text("word " * 4_000),
            "at most 5,000 are reviewed (panel.material_tokens",
        ),
        (lambda path: None, "material cannot be read"),
    ],
    ids=["binary", "empty", "an empty folder", "too large", "absent"],
)
def test_a_material_that_is_none_is_refused_by_name(
    shell: Shell,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], object],
    told: str,
) -> None:
    make(tmp_path / "material")
    configure("panel: {material_tokens: 5000}\n")
    with model_at(monkeypatch, Minds()) as model:
        done = shell("review", tmp_path / "material", "--json")
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
    with model_at(monkeypatch, minds, latency_s=0.1) as model:
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
