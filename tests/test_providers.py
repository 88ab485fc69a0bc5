"""The models at Amazon Bedrock and Google Vertex: the SDK's own clients over loopback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from bot_kit import Shell, configure
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from engine_kit import MUX, Json, engine, say, settings_for, turns, words
from google_data_kit import key_file
from standins.cloud_models import ACCESS_KEY, BEARER, REGION, SECRET_KEY, Bedrock, Cloud, Vertex
from standins.model import ModelServer
from test_model import complete

from config.settings import SettingsError, load_settings
from subagents import providers
from subagents.errors import ModelFailed, ModelMisconfigured
from subagents.model import ModelClient, ModelReply
from subagents.prices import Usage, cost_nanousd

MODELS: dict[str, Json] = {
    "bedrock": {
        "region": REGION,
        "main": "eu.anthropic.claude-sonnet-5-5",
        "fast": "eu.anthropic.claude-haiku-5-5",
    },
    "vertex": {"region": "global", "main": "claude-sonnet-5-5", "fast": "claude-haiku-5-5"},
}
ROLES = ("main", "fast")
PROVIDERS = pytest.mark.parametrize("provider", ["bedrock", "vertex"])


Start = Callable[[str], tuple[Cloud, str]]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Start]:
    """Provider -> its stand-in and address; the credentials are in the environment."""
    stack = ExitStack()
    for name, value in {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)

    def go(provider: str) -> tuple[Cloud, str]:
        server = ModelServer(turns(say("All is well. " * 20)), record=True)
        cloud: Cloud = Bedrock(server) if provider == "bedrock" else Vertex(server)
        url = stack.enter_context(MUX.served_app(cloud))
        if isinstance(cloud, Vertex):
            file = key_file(tmp_path)
            account = json.loads(file.read_text("utf-8"))
            key = load_pem_private_key(account["private_key"].encode(), None).public_key()
            cloud.public_key = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            own = {"project_id": "acme", "token_uri": f"{url}/token"}
            file.write_text(json.dumps(account | own), "utf-8")
            monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        return cloud, url

    with stack:
        yield go


async def ask_provider(
    provider: str, url: str, key: str | None = None, **fields: Any
) -> tuple[ModelReply, int]:
    """Ask once; return the reply and the spent nanodollars."""
    models = {"provider": provider, **MODELS[provider]}
    async with engine(turns(say("Not this one.")), settings_for(models=models)) as e:
        await e.run.model.aclose()
        e.run.model = ModelClient(e.settings.models, key, url)
        try:
            reply = await complete(e, **fields)
        finally:
            await e.run.model.aclose()
        assert not e.requests
        return reply, e.run.budget.spent.nanousd


@PROVIDERS
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
async def test_a_call_is_answered_priced_and_cached(
    provider: str, streams: bool, start: Start
) -> None:
    cloud, url = start(provider)
    chunks: list[str] = []
    content = [words("Hello."), words("Who waits? ünïcode \U0001f600")]
    reply, spent = await ask_provider(
        provider,
        url,
        messages=[{"role": "user", "content": content}],
        on_text=chunks.append if streams else None,
    )
    assert reply.content[0]["text"] == "All is well. " * 20
    assert (reply.attempts, reply.stop_reason) == (1, "end_turn")
    assert "".join(chunks) == ("All is well. " * 20 if streams else "")
    name = MODELS[provider]["fast"]
    assert reply.cost_usd
    assert spent == cost_nanousd(name, reply.usage, provider)
    (sent,) = cloud.sent
    assert name in cloud.paths[0]
    assert sent["messages"][0]["content"][1]["cache_control"] == {"type": "ephemeral"}
    assert sent["messages"][0]["content"][1]["text"] == content[1]["text"]
    assert sent["system"][-1]["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in content[1]


async def test_bedrock_takes_an_api_key_instead_of_a_signature(start: Start) -> None:
    _, url = start("bedrock")
    reply, _ = await ask_provider("bedrock", url, BEARER)
    assert reply.stop_reason == "end_turn"
    with pytest.raises(ModelMisconfigured, match="403: The security token"):
        await ask_provider("bedrock", url, "another")


@PROVIDERS
async def test_transient_refusals_are_retried_and_permanent_ones_are_not(
    provider: str, start: Start
) -> None:
    for status, kind in ((429, "rate_limit"), (503, "model_error"), (424, "model_error")):
        cloud, url = start(provider)
        cloud.refusals = [status]
        assert (await ask_provider(provider, url))[0].attempts == 2
        cloud.refusals = [status, status]
        with pytest.raises(ModelFailed, match="not now") as failed:
            await ask_provider(provider, url)
        assert failed.value.kind == kind
    for status in (401, 403, 404):
        cloud, url = start(provider)
        cloud.refusals = [status]
        with pytest.raises(ModelMisconfigured, match="not now"):
            await ask_provider(provider, url)
        assert len(cloud.sent) == 1
    cloud.refusals = [400]
    with pytest.raises(ModelFailed, match="not now"):
        await ask_provider(provider, url)


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        ("throttlingException", "rate_limit"),
        ("internalServerException", "model_error"),
    ],
)
async def test_broken_bedrock_stream_is_retried(broken: str, kind: str, start: Start) -> None:
    cloud, url = start("bedrock")
    chunks: list[str] = []
    cloud.broken_streams = [broken]
    reply, _ = await ask_provider("bedrock", url, on_text=chunks.append)
    assert (reply.attempts, reply.content[0]["text"]) == (2, "All is well. " * 20)
    cloud.broken_streams = [broken, broken]
    with pytest.raises(ModelFailed, match=broken) as failed:
        await ask_provider("bedrock", url, on_text=chunks.append)
    assert failed.value.kind == kind


async def test_failed_credential_refresh_raises_a_model_error(start: Start) -> None:
    cloud, url = start("vertex")
    assert isinstance(cloud, Vertex)
    cloud.public_key = b""  # no signature is right
    with pytest.raises(ModelFailed, match="the credentials cannot be used"):
        await ask_provider("vertex", url)
    assert cloud.sent == []


def test_prices_depend_on_provider_and_region() -> None:
    usage = Usage(1_000_000, 1_000_000)
    listed = cost_nanousd("claude-sonnet-5-5", usage)
    assert listed
    assert cost_nanousd("global.anthropic.claude-sonnet-5-5", usage, "bedrock") == listed
    assert cost_nanousd("eu.anthropic.claude-sonnet-5-5", usage, "bedrock") == round(listed * 1.1)
    assert cost_nanousd("claude-sonnet-5-5@20260901", usage, "vertex") == listed
    assert cost_nanousd("claude-sonnet-5-5", usage, "vertex-regional") == round(listed * 1.1)
    for region, prices in (("global", "vertex"), ("eu", "vertex-regional")):
        assert settings_for(models={"provider": "vertex", "region": region}).models.prices == prices


@pytest.mark.parametrize(
    ("models", "error"),
    [
        ("{provider: bedrock}", "provider bedrock needs region"),
        ("{provider: vertex}", "provider vertex needs region"),
        ("{provider: bedrock, region: eu-central-1}", "such as eu.anthropic.claude-sonnet-5-5"),
    ],
)
def test_settings_name_what_the_provider_needs(tmp_path: Path, models: str, error: str) -> None:
    file = tmp_path / "assistant.yaml"
    file.write_text(f"models: {models}", "utf-8")
    with pytest.raises(SettingsError, match=error):
        load_settings(file, env={})


@PROVIDERS
def test_missing_provider_extra_is_reported_with_an_install_hint(
    provider: str, shell: Shell, monkeypatch: pytest.MonkeyPatch, start: Start
) -> None:
    start(provider)
    write_settings(provider)
    monkeypatch.setattr(providers, "find_spec", lambda name: None)
    done = shell("ask", "What is open?", "--sample")
    assert done.code == 2
    assert f"Install workspace-assistant[{provider}]." in done.err


def test_missing_cloud_credentials_are_reported_with_a_hint(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, start: Start, tmp_path: Path
) -> None:
    start("vertex")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    for provider, says in (
        ("bedrock", "No AWS credentials were found. Give the process a role"),
        ("vertex", "No Google credentials were found. Run `gcloud auth"),
    ):
        write_settings(provider)
        assert says in " ".join(shell("ask", "What is open?", "--sample").err.split())


@PROVIDERS
def test_doctor_calls_each_model_and_explains_its_errors(
    provider: str, shell: Shell, monkeypatch: pytest.MonkeyPatch, start: Start
) -> None:
    cloud, url = start(provider)
    monkeypatch.setenv(f"ANTHROPIC_{provider.upper()}_BASE_URL", url)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")  # not of this provider
    write_settings(provider)

    def verdicts() -> list[str]:
        says = {c["check"]: c["says"] for c in shell("doctor", "--json").json["checks"]}
        return [says[f"model {role}"] for role in ROLES]

    names = [MODELS[provider][role] for role in ROLES]
    assert verdicts() == [f"{name} answers on {providers.NAMES[provider]}" for name in names]
    for status, says in (
        (403, "allow it there"),
        (404, "fix models.{role} or its region"),
        (429, "try again in a minute"),
        (400, "check `models`"),
    ):
        cloud.refusals = [status, status]
        for role, verdict in zip(ROLES, verdicts(), strict=True):
            assert says.format(role=role) in verdict


def write_settings(provider: str) -> None:
    models = {"provider": provider, **MODELS[provider]}
    configure(json.dumps({"models": models}))
