"""Reviews by the command and in Slack: reports, refusals before any model call, and kills."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bot_kit import Shell, configure, model_at, refusal_text
from engine_kit import call, channel_id, opening, results, say, sentence, turn, until, workspace
from fleet_kit import Fleet, fleet
from fork_server import forked_command
from panel_kit import (
    CODE,
    EACH,
    PanelModel,
    confirming_judge,
    contract,
    defends,
    point,
    review,
    specialist,
    to_judge,
    verdicts,
    write_profile,
)
from panel_kit import verdict as verdict_on
from serve_kit import ASKER, Served, mention, serve
from standins.model import ModelServer, Responder
from test_panels import judges_saying
from timing import Patience

from bot.local.model.answer import Answer
from bot.local.slack.state import BOT_USER


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(CODE)
    return path


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """A model in which each specialist finds one thing."""
    with model_at(monkeypatch, PanelModel(EACH)) as server:
        yield server


@pytest.mark.usefixtures("model")
def test_second_review_of_a_file_compares_with_the_first(shell: Shell, file: Path) -> None:
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


@pytest.mark.usefixtures("model")
def test_findings_of_a_forgotten_file_are_not_kept_for_the_next_review(
    shell: Shell, file: Path, data_dir: Path
) -> None:
    claims = [each["claim"] for each in shell("review", file, "--json").json["findings"]]
    done = shell("forget", "--source", file.name, "--json").json
    assert (done["runs"], done["issues"]) == (1, len(claims))
    for database in data_dir.glob("*.sqlite*"):
        content = database.read_bytes()
        assert [claim for claim in claims if claim.encode() in content] == []
    assert shell("review", file, "--json").json["compared"] is None


# ---- refusals before any model call


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda each: each["a"].update(affinities={"a": 1}), "specialists.a.affinities"),
        (lambda each: each.pop("c"), "specialists"),
        (lambda each: each["a"].update(prompt="../../secret.md"), "is not in this folder"),
    ],
    ids=["a wrong key", "two specialists", "a file outside"],
)
def test_invalid_profile_is_rejected_before_any_model_call(
    shell: Shell, file: Path, model: ModelServer, spoil: Callable[[Any], object], error: str
) -> None:
    path = write_profile(file.parent / "profiles")
    profile = json.loads(path.read_text())
    spoil(profile["specialists"])
    path.write_text(json.dumps(profile))
    configure(f"panel: {{profiles: {file.parent / 'profiles'}}}\n")
    done = shell("review", file, "--profile", "own", "--json")
    assert error in refusal_text(done, "bad_settings")
    assert model.requests == 0


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda path: path.write_bytes(b"\x00\x01\x02\xff" * 50), "material"),
        (lambda path: path.write_text(" \n"), "material is empty"),
        (lambda path: path.mkdir(), "material holds nothing to review"),
        (lambda path: path.write_text("word " * 4_000), "at most 5,000 are reviewed"),
        (lambda path: None, "material cannot be read"),
    ],
    ids=["binary", "empty", "an empty folder", "too large", "absent"],
)
def test_unusable_material_is_rejected_before_any_model_call(
    shell: Shell, tmp_path: Path, model: ModelServer, make: Callable[[Path], object], error: str
) -> None:
    make(tmp_path / "material")
    configure("panel: {material_tokens: 5000}\n")
    done = shell("review", tmp_path / "material", "--json")
    assert error in refusal_text(done, "bad_material")
    assert model.requests == 0
    assert shell("runs", "--json").json == []


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("address", ["https://example.com:8443/plan", "ftp://example.com/plan"])
def test_address_that_is_not_read_is_rejected_with_the_reason(shell: Shell, address: str) -> None:
    done = shell("review", address, "--json")
    error = "Only public http and https addresses without a login or a port"
    assert error in refusal_text(done, "bad_material")


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
def test_review_command_resumes_after_a_kill_without_repeating_finished_calls(
    shell: Shell, file: Path, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure("limits: {max_concurrency: 2}\n")
    responders = PanelModel(EACH, judges_saying("refute", "quality"))
    with model_at(monkeypatch, responders, latency_s=0.1) as model:
        with forked_command("review", str(file), "--json") as process:
            patience = Patience(60)
            while not in_phase(model, phase):
                assert not patience.over
                assert process.poll() is None, process.read_output()
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
    assert twice <= 2, "only calls under way are repeated"
    assert checked.code == 0, checked.out
    ended = shell("review", "--resume", run["id"], "--json")
    assert "has ended" in refusal_text(ended, "complete")


# ---- in Slack


Json = dict[str, Any]


def first_item(body: Json) -> tuple[str, str]:
    """Id and text of the first item of the material."""
    material = opening(body).partition("MATERIAL:")[2]
    found = re.search(r"\[([^\]]+)\][^\n]*?(?:: |\n\|)([^\n{]+)", material)
    assert found
    return found[1], found[2].strip()


def reads(body: Json) -> Answer:
    """Each specialist finds one thing at the first item, in its own words and category."""
    place, text = first_item(body)
    name = specialist(body)
    claim = f"Here {sentence(name, 9)} stays open"
    fields = {"claim": claim, "place": place, "quotes": [text], "severity": "critical"}
    return review(point(1, name, confidence=0.9, **fields))


def review_model(
    source: str, profile: str = "incident", responders: PanelModel | None = None
) -> Responder:
    """A parent that starts a review; `{thread}` in `source` is the thread of the request."""
    panel = responders or PanelModel(reads)

    def model(body: Json) -> Answer:
        if contract(body):
            return panel(body)
        text = opening(body)
        if "REVIEW of one material" in text or turn(body):
            return say("NONE")
        here = re.search(r"ASKED IN: .*?(C\w+/\d+\.\d+)", text)
        thread = here[1] if here else ""
        return call("review", source=source.replace("{thread}", thread), profile=profile)

    return model


async def result_of(bot: Served) -> Json:
    (run, *_) = await bot.store.runs(1)
    assert run.result
    return dict(run.result)


async def test_thread_review_posts_its_report_in_the_thread(tmp_path: Path) -> None:
    async with serve(tmp_path, review_model("{thread}")) as bot:
        root = bot.slack.people.say(ASKER, bot.channel, "At 09:10 all payments failed for hours")
        bot.ask("review this thread as incident", thread_ts=root)
        shown = await bot.answers(root, seconds=60)
        document = await result_of(bot)
    assert (document["kind"], document["profile"]) == ("panel", "incident")
    assert len(document["findings"]) == 4
    assert {f["outcome"] for f in document["findings"]} == {"confirmed"}
    assert all(f["place"].startswith(f"{bot.channel}/") for f in document["findings"])
    text = "\n".join(str(message.blocks) for message in shown)
    assert "4 confirmed" in text
    assert sentence("cause", 9) in text


def has_sent(bots: Fleet, kind: str, least: int) -> bool:
    return sum(contract(body) == kind for body in bots.model.recorded) >= least


@pytest.mark.system
async def test_slack_review_resumes_after_kills_and_repeats_few_calls(tmp_path: Path) -> None:
    limits: Json = {"max_concurrency": 2}
    with fleet(tmp_path, review_model("{thread}"), latency_s=0.2, limits=limits) as bots:
        (bot,) = await bots.start_bots()
        people, channel = bots.slack.people, bots.channel
        root = people.say(ASKER, channel, "At 09:10 all payments failed for hours")
        people.say(ASKER, channel, mention("review this thread"), root)
        for kind, least in (("review", 4), ("verdicts", 2)):
            await until(partial(has_sent, bots, kind, least), 90)
            bot.kill()
            bots.balancer.targets.clear()
            (bot,) = await bots.start_bots()
        await until(lambda: bots.finished_messages(root), 90)
        assert bots.count_repeated_calls() <= 6
        assert not bot.tracebacks()
    assert "4 confirmed" in str([shown.blocks for shown in bots.finished_messages(root)])


@pytest.mark.parametrize("channel", ["C0NOWHERE1", channel_id(2)], ids=["unknown", "unreadable"])
async def test_unreadable_thread_is_rejected_before_any_specialist_is_called(
    tmp_path: Path, channel: str
) -> None:
    space = workspace(2)
    closed = replace(space.channels[1], is_private=True, members=("U0LUIS", BOT_USER))
    space = replace(space, channels=(space.channels[0], closed))
    thread = f"{channel}/{closed.messages[0].ts}"
    async with serve(tmp_path, review_model(thread), space=space) as bot:
        link = f"https://acme.slack.com/archives/{channel}/p{thread[-17:].replace('.', '')}"
        await bot.answers(bot.ask(f"review {link}"), seconds=60)
        refusals = [r for body in bot.parents() for r in results(body)]
        assert not [b for b in bot.model.recorded if contract(b)]
    assert f"No thread {thread}." in str(refusals[0]["content"])


async def test_administrators_are_notified_of_many_alarms(tmp_path: Path) -> None:
    def careless(body: Json) -> Answer:
        if specialist(body) in ("cause", "impact"):
            return confirming_judge(body)
        ids = to_judge(body)
        return verdicts(*(verdict_on(id, "refute", evidence="made up by nobody") for id in ids))

    responders = PanelModel(reads, careless)
    admins = "policy: {admins: [U0EVA]}\n"
    policy = tmp_path / "policy.yaml"
    policy.write_text(admins)
    model = review_model("{thread}", responders=responders)
    async with serve(tmp_path, model, policy_path=policy) as bot:
        root = bot.slack.people.say(ASKER, bot.channel, "At 09:10 all payments failed for hours")
        bot.ask("review this thread", thread_ts=root)
        await bot.answers(root, seconds=60)
        document = await result_of(bot)
        messages = bot.slack.visible(bot.slack.people.dm("U0EVA"))
        metrics = bot.bench.metrics.render().decode()
    count = sum(alarm["count"] for alarm in document["alarms"])
    assert count >= 5
    assert f"{count} alarms" in "\n".join(message.text for message in messages)
    assert f'assistant_panel_alarms_total{{kind="no_evidence"}} {float(count)}' in metrics
