"""Settings: `assistant.yaml` over the packaged `default.yaml`; secrets from the environment.

Every default, unit and meaning is written once, in `default.yaml`; here are the types.
Nothing else in the product reads the environment.
"""

from collections.abc import Hashable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import platformdirs
import yaml
from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from config.errors import SettingsError as SettingsError
from config.errors import expectation, explain, key_of
from config.schedules import Schedule, ScheduleName
from config.sections import Approvals as Approvals
from config.sections import Google as Google
from config.sections import Limits as Limits
from config.sections import Models as Models
from config.sections import Policy as Policy
from config.sections import Reply as Reply
from config.sections import Report, Retention, Section, Sweep, Url
from config.sections import Role as Role
from config.sections import Rules as Rules
from config.sections import Serve as Serve
from config.sections import Slack as Slack
from config.sections import Triage as Triage
from config.tools import DataInTime, Files, Mcp, Web


class Secrets(Section):
    """Keys and tokens; None = not set. Their text shows in no log, repr or error."""

    anthropic_api_key: SecretStr | None = None
    slack_bot_token: SecretStr | None = None
    slack_user_token: SecretStr | None = None
    slack_app_token: SecretStr | None = None
    slack_signing_secret: SecretStr | None = None
    database_url: SecretStr | None = None
    assistant_encryption_key: SecretStr | None = None
    google_client_secret: SecretStr | None = None
    google_access_token: SecretStr | None = None
    """A fixed token instead of a connected account, such as a stand-in takes."""
    brave_api_key: SecretStr | None = None
    tavily_api_key: SecretStr | None = None
    git_token: SecretStr | None = None
    """With which `git_push` reaches remotes over https."""


class Endpoints(Section):
    """Where the services are reached; None = the SDK's own address."""

    anthropic_base_url: Url | None = None
    """`ANTHROPIC_BASE_URL`, else `models.base_url`: the one to use."""
    slack_api_url: Url | None = None
    gmail_api_endpoint: Url | None = None
    google_oauth_endpoint: Url | None = None
    """Where accounts are connected and their tokens renewed."""
    pubsub_api_endpoint: Url | None = None
    bigquery_api_endpoint: Url | None = None
    sheets_api_endpoint: Url | None = None
    brave_api_endpoint: Url | None = None
    tavily_api_endpoint: Url | None = None


MODEL_ENDPOINT = "anthropic_base_url"
"""The one endpoint that the file may name as well."""


class Tunables(Section):
    """The keys that a YAML file may hold."""

    models: Models
    limits: Limits
    slack: Slack
    google: Google
    sweep: Sweep
    triage: Triage
    data: DataInTime
    web: Web
    files: Files
    mcp: Mcp
    schedules: dict[ScheduleName, Schedule]
    report: Report
    serve: Serve
    reply: Reply
    policy: Policy
    approvals: Approvals
    retention: Retention
    data_dir: Annotated[Path, Field(strict=False)]
    """Folder for the database and other state; absolute; whoever writes first creates it."""


class Settings(Tunables):
    """All that can be set: the tunables, and what only the environment may say."""

    secrets: Secrets
    endpoints: Endpoints
    key_file: Path
    """`ASSISTANT_KEY_FILE`, else one in the user's configuration: see config/keys.py."""

    @property
    def database_url(self) -> str | None:
        """The Postgres database of all state; None = files under `data_dir`."""
        url = self.secrets.database_url
        return url.get_secret_value() if url else None


class Environment(BaseSettings):
    """What the environment or `.env` may say (upper case there); empty counts as not set."""

    model_config = SettingsConfigDict(
        env_file=".env",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
    )

    anthropic_api_key: SecretStr | None = None
    slack_bot_token: SecretStr | None = None
    slack_user_token: SecretStr | None = None
    slack_app_token: SecretStr | None = None
    slack_signing_secret: SecretStr | None = None
    database_url: SecretStr | None = None
    assistant_encryption_key: SecretStr | None = None
    google_client_secret: SecretStr | None = None
    google_access_token: SecretStr | None = None
    brave_api_key: SecretStr | None = None
    tavily_api_key: SecretStr | None = None
    git_token: SecretStr | None = None
    gmail_api_endpoint: Url | None = None
    google_oauth_endpoint: Url | None = None
    pubsub_api_endpoint: Url | None = None
    bigquery_api_endpoint: Url | None = None
    sheets_api_endpoint: Url | None = None
    brave_api_endpoint: Url | None = None
    tavily_api_endpoint: Url | None = None
    anthropic_base_url: Url | None = None
    slack_api_url: Url | None = None
    assistant_data_dir: Path | None = None
    assistant_config: Path | None = None
    assistant_key_file: Path | None = None


def load_settings(path: Path | None = None, env: Mapping[str, str] | None = None) -> Settings:
    """Read the settings.

    `path` names the YAML file; without it `ASSISTANT_CONFIG` does, else `assistant.yaml` in the
    working directory counts if it is there. A given `env` stands for the whole outside: neither
    the process environment, nor `.env`, nor the working directory is looked at then.

    Raises SettingsError with one line for each thing that is wrong.
    """
    environment = _read_environment(env)
    chosen = path or environment.assistant_config
    if chosen is None and env is None and Path("assistant.yaml").exists():
        chosen = Path("assistant.yaml")
    values = _values(chosen)
    if environment.assistant_data_dir or values["data_dir"] is None:
        values["data_dir"] = environment.assistant_data_dir or _default_data_dir()
    tunables = _check(values, str(chosen or "default.yaml"))
    return _with_environment(tunables, environment)


def settings_file(path: Path | None = None, env: Mapping[str, str] | None = None) -> Path | None:
    """The file that `load_settings` reads; `assistant.yaml` here even while there is none yet.

    None where a given `env` leaves it at the defaults. Raises SettingsError.
    """
    chosen = path or _read_environment(env).assistant_config
    if chosen is None and env is None:
        chosen = Path("assistant.yaml")
    return chosen.absolute() if chosen else None


def load_policy(path: Path) -> Policy:
    """The policy that a file holds now; the whole file is checked. Raises SettingsError."""
    values = _values(path)
    return _check({**values, "data_dir": values["data_dir"] or Path()}, path.name).policy


def _values(path: Path | None) -> dict[str, Any]:
    """The defaults, and over them what a file says."""
    defaults = (files("config") / "default.yaml").read_text("utf-8")
    values: dict[str, Any] = yaml.load(defaults, _FAST_LOADER)
    return _merge(values, _read_yaml(path)) if path else values


def _default_data_dir() -> Path:
    return platformdirs.user_data_path("workspace-assistant", appauthor=False)


def key_file_of(environment: Environment) -> Path:
    """Where the key lies that encrypts what is stored, while none is in the environment."""
    # A folder beside that of the data, which some systems keep with the configuration.
    beside = platformdirs.user_config_path("workspace-assistant-key", appauthor=False)
    return (environment.assistant_key_file or beside / "key").expanduser().absolute()


def _with_environment(tunables: Tunables, environment: Environment) -> Settings:
    sections = dict(tunables)
    data_dir = sections.pop("data_dir").expanduser().absolute()
    given = dict(environment)
    return Settings(
        **sections,
        data_dir=data_dir,
        key_file=key_file_of(environment),
        secrets=Secrets(**{name: given[name] for name in Secrets.model_fields}),
        endpoints=Endpoints(
            **{name: given[name] for name in Endpoints.model_fields if name != MODEL_ENDPOINT},
            anthropic_base_url=environment.anthropic_base_url or tunables.models.base_url,
        ),
    )


def _read_environment(env: Mapping[str, str] | None) -> Environment:
    try:
        if env is None:
            return Environment()
        given: dict[str, Any] = {n: env.get(n.upper()) or None for n in Environment.model_fields}
        given["_env_file"] = None
        return Environment(**given)
    except ValidationError as error:
        lines = (f"{key_of(e).upper()} {expectation(e)}." for e in error.errors())
        raise SettingsError("\n".join(lines)) from None
    except (OSError, ValueError) as error:
        raise SettingsError(f".env cannot be read: {_reason(error)}.") from None


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.load(path.read_text("utf-8"), _UniqueKeyLoader)
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read: {_reason(error)}.") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path}, line {mark.line + 1}, column {mark.column + 1}" if mark else str(path)
        raise SettingsError(f"{place}: this is not valid YAML ({error.problem}).") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{path} is not valid YAML: {str(error).splitlines()[0]}.") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise SettingsError(f"{path}: expected sections such as 'limits:' at the top level.")
    return values


_FAST_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's, which takes 1 ms for the defaults instead of 18, where PyYAML was built with it."""


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a key that is written twice, of which YAML would silently drop the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                problem = f"the key {key.value!r} occurs twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


WHOLE = ("categories",)
"""Keys whose entries have names of the user's own: what is written stands in place of all of it."""


def _merge(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`, section by section; a section left empty changes nothing."""
    merged = dict(below)
    for key, value in above.items():
        under = below.get(key)
        if not isinstance(under, dict) or (key in WHOLE and value is not None):
            merged[key] = value
        elif value is not None:
            merged[key] = _merge(under, value) if isinstance(value, dict) else value
    return merged


def _check(values: dict[str, Any], source: str) -> Tunables:
    try:
        return Tunables.model_validate(values)
    except ValidationError as error:
        lines = (f"{source}: {explain(e, Tunables)}" for e in error.errors())
        raise SettingsError("\n".join(lines)) from None


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return str(getattr(error, "strerror", None) or error).lower()
