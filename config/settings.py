"""Settings: `assistant.yaml` over the packaged `default.yaml`; secrets by environment.

Every default, unit and meaning is written once, in `default.yaml`; the types are here. Nothing else
in the product reads the environment.
"""

import difflib
import re
import reprlib
from collections.abc import Hashable, Iterator, Mapping
from contextvars import ContextVar
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, TypeGuard, get_args

import platformdirs
import yaml
from pydantic import BaseModel, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from config.schedules import Schedule, ScheduleName
from config.sections import (
    PATTERN_DESCRIPTIONS,
    ApprovalSettings,
    CheckedDataSettings,
    ConsoleSettings,
    FileSettings,
    GoogleSettings,
    LimitSettings,
    McpSettings,
    Models,
    PanelSettings,
    Policy,
    ReplySettings,
    ReportSettings,
    RetentionSettings,
    Section,
    ServeSettings,
    SlackSettings,
    SweepSettings,
    TraceSettings,
    TriageSettings,
    Url,
    WebSettings,
)


class SettingsError(Exception):
    """Settings that cannot be used; the text tells the user what to change."""


def explain(error: ErrorDetails, valid: type[BaseModel]) -> str:
    """Describe one error of a settings file, whose keys should be those of `valid`."""
    key = key_of(error)
    match error:
        case {"type": "extra_forbidden" | "invalid_key"}:
            return _unknown_key(key, valid)
        case {"loc": (*_, "[key]")}:
            return f"the key '{key}' {expectation(error)}."
        case {"type": "missing"}:
            return f"'{key}' is missing."
        case {"type": "value_error", "ctx": {"error": fault}}:
            return f"'{key}': {fault}."
    value = error["input"]
    shown = str(value) if isinstance(value, date) else reprlib.repr(value)
    return f"'{key}' is {shown}, but it {expectation(error)}."


def expectation(error: ErrorDetails) -> str:
    """Return what was expected, as the end of a sentence that begins with the key."""
    match error:
        case {"type": "model_type" | "dict_type"}:
            return "must be a section with keys below it"
        case {"type": "path_type"}:
            return "must be text in quotes"
        case {"type": "string_pattern_mismatch", "ctx": {"pattern": pattern}}:
            return f"must be {PATTERN_DESCRIPTIONS.get(pattern, 'written otherwise')}"
    text = re.sub(r"^\w+ should", "must", error["msg"]).split(" after validation")[0]
    return text.replace("a valid string", "text in quotes").replace("a valid tuple", "a list")


def key_of(error: ErrorDetails) -> str:
    """Return the dotted key of an error, without parts in brackets, which are types: `[list]`."""
    return ".".join(str(part) for part in error["loc"] if not str(part).startswith("["))


def _unknown_key(key: str, valid: type[BaseModel]) -> str:
    last = key.rsplit(".", 1)[-1].lower()
    if key.startswith("secrets") or last.endswith(("api_key", "token", "password", "secret")):
        return (
            f"unknown key '{key}'. Secrets are read only from the environment or .env, "
            "never from this file: take it out."
        )
    keys = list(_keys(valid, key.split(".")))
    near = difflib.get_close_matches(key, keys, n=1) or [k for k in keys if k.endswith(f".{last}")]
    if near:
        return f"unknown key '{key}'. Did you mean '{near[0]}'?"
    if valid is not Tunables:
        return f"unknown key '{key}'. The valid ones are {', '.join(keys)}."
    return f"unknown key '{key}'. config/default.yaml lists the valid ones."


def _keys(section: type[BaseModel], names: list[str], above: str = "") -> Iterator[str]:
    """Yield all keys of a section; if its keys are names, those of the given name's entry."""
    for name, field in section.model_fields.items():
        yield f"{above}{name}"
        if _is_section(field.annotation):
            yield from _keys(field.annotation, names[1:], f"{above}{name}.")
        for below in filter(_is_section, get_args(field.annotation)[1:]):
            if names[:1] == [name] and len(names) > 2:
                yield from _keys(below, names[2:], f"{above}{name}.{names[1]}.")


def _is_section(kind: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


class Secrets(Section):
    """Keys and tokens; None = not set. Their text is in no log, repr or error."""

    anthropic_api_key: SecretStr | None = None
    aws_bearer_token_bedrock: SecretStr | None = None
    slack_bot_token: SecretStr | None = None
    slack_user_token: SecretStr | None = None
    slack_app_token: SecretStr | None = None
    slack_signing_secret: SecretStr | None = None
    slack_client_secret: SecretStr | None = None
    """With it workspaces install the app, and the console lets people sign in with Slack."""
    database_url: SecretStr | None = None
    assistant_encryption_key: SecretStr | None = None
    google_client_secret: SecretStr | None = None
    google_access_token: SecretStr | None = None
    """A fixed token instead of a connected account, as a simulator accepts."""
    brave_api_key: SecretStr | None = None
    tavily_api_key: SecretStr | None = None
    git_token: SecretStr | None = None
    """Token with which `git_push` authenticates to remotes over https."""


class Endpoints(Section):
    """Addresses of the services; None = the SDK's own address."""

    anthropic_base_url: Url | None = None
    """Address of the chosen provider: its variable in MODEL_ENDPOINTS, else `models.base_url`."""
    slack_api_url: Url | None = None
    gmail_api_endpoint: Url | None = None
    google_oauth_endpoint: Url | None = None
    """Address to connect accounts and to renew their tokens."""
    bigquery_api_endpoint: Url | None = None
    sheets_api_endpoint: Url | None = None
    brave_api_endpoint: Url | None = None
    tavily_api_endpoint: Url | None = None
    otel_exporter_otlp_endpoint: Url | None = None
    otel_exporter_otlp_traces_endpoint: Url | None = None

    @property
    def traces(self) -> str | None:
        """Return the address to send spans to, by OTLP over HTTP; None = nowhere."""
        base = self.otel_exporter_otlp_endpoint
        whole = self.otel_exporter_otlp_traces_endpoint
        return whole or (f"{base.rstrip('/')}/v1/traces" if base else None)


MODEL_ENDPOINT = "anthropic_base_url"
"""The one endpoint that the file may set as well."""
MODEL_ENDPOINTS = {
    "anthropic": MODEL_ENDPOINT,
    "bedrock": "anthropic_bedrock_base_url",
    "vertex": "anthropic_vertex_base_url",
}
"""Provider of the models -> the variable with its address, as the SDK names it."""


def _or_default(data_dir: Any) -> Any:
    return data_dir or platformdirs.user_data_path("workspace-assistant", appauthor=False)


class Tunables(Section):
    """The keys that a YAML file may contain."""

    models: Models
    limits: LimitSettings
    slack: SlackSettings
    google: GoogleSettings
    sweep: SweepSettings
    triage: TriageSettings
    panel: PanelSettings
    data: CheckedDataSettings
    web: WebSettings
    files: FileSettings
    mcp: McpSettings
    schedules: dict[ScheduleName, Schedule]
    report: ReportSettings
    serve: ServeSettings
    console: ConsoleSettings
    reply: ReplySettings
    policy: Policy
    approvals: ApprovalSettings
    retention: RetentionSettings
    traces: TraceSettings
    data_dir: Annotated[Path, Field(strict=False), BeforeValidator(_or_default)]
    """Folder for the database and other state; absolute; created by the first write."""


class Settings(Tunables):
    """All settings: those of the file, and those that only the environment may set."""

    secrets: Secrets
    endpoints: Endpoints
    key_file: Path
    """`ASSISTANT_KEY_FILE`, else a file in the user's configuration: see config/keys.py."""
    team: str = ""
    """Id of the workspace that these settings are for, if several are served: see `for_team`."""
    is_company_token: bool = False
    """Whether the bot token is valid for all workspaces of a company, not only for `team`."""

    @property
    def database_url(self) -> str | None:
        """Return the Postgres database of all state; None = files under `data_dir`.

        The address for a team includes its schema.
        """
        url = self.secrets.database_url
        address = url.get_secret_value() if url else ""
        if address and self.team:
            separator = "&" if "?" in address else "?"
            address += f"{separator}options=-csearch_path%3Dassistant_{self.team.lower()}"
        return address or None

    @property
    def model_key(self) -> str | None:
        """Return the API key of the chosen provider; None = none is set, or it needs none."""
        keys = {
            "anthropic": self.secrets.anthropic_api_key,
            "bedrock": self.secrets.aws_bearer_token_bedrock,
        }
        key = keys.get(self.models.provider)
        return key.get_secret_value() if key else None

    @property
    def local_data_dir(self) -> Path:
        """Return the folder for the state of `serve --local`, which is emptied at each start."""
        return self.data_dir / "local"


class Environment(BaseSettings, Secrets, Endpoints):
    """Variables of the environment or `.env` (upper case there); empty counts as not set."""

    model_config = SettingsConfigDict(
        env_file=".env",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
        strict=False,
    )

    anthropic_bedrock_base_url: Url | None = None
    anthropic_vertex_base_url: Url | None = None
    assistant_data_dir: Path | None = None
    assistant_team: str | None = None
    assistant_config: Path | None = None
    assistant_key_file: Path | None = None


def load_settings(path: Path | None = None, env: Mapping[str, str] | None = None) -> Settings:
    """Read the settings.

    `path` names the YAML file; without it `ASSISTANT_CONFIG` does, else `assistant.yaml` in the
    working directory is used if it exists. A given `env` replaces everything outside: the process
    environment, `.env` and the working directory are ignored then.

    Raises SettingsError with one line for each fault.
    """
    environment = _read_environment(env)
    chosen = path or environment.assistant_config
    if chosen is None and env is None and Path("assistant.yaml").exists():
        chosen = Path("assistant.yaml")
    values = _values(chosen)
    if environment.assistant_data_dir:
        values |= {"data_dir": environment.assistant_data_dir}
    tunables = _check(values, str(chosen or "default.yaml"))
    settings = _with_environment(tunables, environment)
    team = TEAM.get() or environment.assistant_team
    return for_team(settings, team, chosen) if team else settings


TEAM: ContextVar[str] = ContextVar("team", default="")
"""Workspace that `--team` names; empty = the one of `ASSISTANT_TEAM`, if any."""
TEAMS = "teams"
"""Folder of the workspaces' data in `data_dir`, and of their settings next to the file."""
OF_ONE_TEAM = (
    *("data.databases", "data.sheets", "files.projects", "mcp.servers", "schedules"),
    *("slack.lists", "slack.languages", "google.service_account"),
    *("policy.channels", "policy.users", "policy.admins", "policy.approvers"),
    *("secrets.slack_bot_token", "secrets.slack_user_token", "secrets.google_access_token"),
)
"""Settings that open data to people of one workspace, or name them."""


def for_team(settings: Settings, team: str, path: Path | None) -> Settings:
    """Return the settings of one of several workspaces: its own file over the common one.

    Its state has a folder of its own, in Postgres a schema. `path` names the common file. Raises
    SettingsError.
    """
    if not re.fullmatch("T[A-Z0-9]{1,40}", team):
        raise SettingsError(f"{team!r} is no workspace: give its id, such as T0123ABCD.")
    values = {name: getattr(settings, name) for name in Tunables.model_fields}
    own = team_file(path, team)
    if own and own.exists():
        plain = Tunables(**values).model_dump(by_alias=True)
        values = dict(_check(_merge(plain, read_yaml(own)), str(own)))
    own_place = {"team": team, "data_dir": settings.data_dir / TEAMS / team}
    return settings.model_copy(update={**values, **own_place})


def team_file(path: Path | None, team: str) -> Path | None:
    """Return the file of a workspace's own settings, next to the common file."""
    return path.parent / TEAMS / f"{team}.yaml" if path else None


def check_common(settings: Tunables) -> None:
    """Raise SettingsError if the common settings contain something of one workspace only."""
    for key in OF_ONE_TEAM:
        value: object = settings
        for part in key.split("."):
            value = getattr(value, part, None)
        if value:
            name = key.removeprefix("secrets.")
            raise SettingsError(
                f"{name.upper()} opens one workspace, and several are served: unset it."
                if name != key
                else f"'{key}' is of one workspace: write it into {TEAMS}/T....yaml instead."
            )


def settings_file() -> Path:
    """Return the file that `load_settings` reads, even if it does not exist yet.

    Raises SettingsError.
    """
    return (_read_environment(None).assistant_config or Path("assistant.yaml")).absolute()


def load_policy(path: Path, own: Path | None = None) -> Policy:
    """Load the policy from a file, and from a workspace's `own` over it if there is one.

    Both are checked as a whole. Raises SettingsError.
    """
    values = _values(path if path.exists() or not own else None)
    if own:
        check_common(_check(values, path.name))
    if own and own.exists():
        values, path = _merge(values, read_yaml(own)), own
    return _check(values, path.name).policy


def _values(path: Path | None) -> dict[str, Any]:
    """Return the defaults, overridden by a file."""
    defaults = (files("config") / "default.yaml").read_text("utf-8")
    values: dict[str, Any] = yaml.load(defaults, _FAST_LOADER)
    return _merge(values, read_yaml(path)) if path else values


def key_file_of(environment: Environment) -> Path:
    """Return the path of the encryption key file, used while no key is in the environment."""
    # A folder next to that of the data, which some systems keep with the configuration.
    folder = platformdirs.user_config_path("workspace-assistant-key", appauthor=False)
    return (environment.assistant_key_file or folder / "key").expanduser().absolute()


def _with_environment(tunables: Tunables, environment: Environment) -> Settings:
    sections = dict(tunables)
    data_dir = sections.pop("data_dir").expanduser().absolute()
    values = dict(environment)
    return Settings(
        **sections,
        data_dir=data_dir,
        key_file=key_file_of(environment),
        secrets=Secrets(**{name: values[name] for name in Secrets.model_fields}),
        endpoints=Endpoints(
            **{name: values[name] for name in Endpoints.model_fields if name != MODEL_ENDPOINT},
            anthropic_base_url=values[MODEL_ENDPOINTS[tunables.models.provider]]
            or tunables.models.base_url,
        ),
    )


def _read_environment(env: Mapping[str, str] | None) -> Environment:
    try:
        if env is None:
            return Environment()
        values: dict[str, Any] = {n: env.get(n.upper()) or None for n in Environment.model_fields}
        values["_env_file"] = None
        return Environment(**values)
    except ValidationError as error:
        lines = (f"{key_of(e).upper()} {expectation(e)}." for e in error.errors())
        raise SettingsError("\n".join(lines)) from None
    except (OSError, ValueError) as error:
        raise SettingsError(f".env cannot be read: {_reason(error)}.") from None


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the sections of a YAML file; no key may occur twice. Raises SettingsError."""
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
"""libyaml's loader, if PyYAML was built with it: 1 ms for the defaults instead of 18."""


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a key that is written twice; YAML would silently drop the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                problem = f"the key {key.value!r} occurs twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


REPLACED_KEYS = ("categories",)
"""Keys whose entries have names chosen by the user: a value replaces all of it."""


def _merge(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `above` over `below`, section by section; an empty section changes nothing."""
    merged = dict(below)
    for key, value in above.items():
        under = below.get(key)
        if not isinstance(under, dict) or (key in REPLACED_KEYS and value is not None):
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
