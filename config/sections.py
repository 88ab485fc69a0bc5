"""The sections of the settings file. Defaults, units and meanings are in `default.yaml`."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    ValidationInfo,
    model_validator,
)

PATTERN_DESCRIPTIONS: dict[str, str] = {}
"""Pattern of a text -> description of what it accepts."""


def text_pattern(pattern: str, words: str) -> StringConstraints:
    """Accept text of this pattern, which the words describe."""
    PATTERN_DESCRIPTIONS[pattern] = words
    return StringConstraints(pattern=pattern)


USER_ID = r"^[UW][A-Z0-9]{2,}$"
_PASSWORD_IN_URL = re.compile(
    r"^https?://[^/?#]*@|^(?!http)\w+://[^@?]*:[^@?]*@|[?&](ssl)?password=", re.IGNORECASE
)
"""A password in an address; after http also a user name alone, as it may be a token."""

Count = Annotated[int, Field(ge=0)]
PositiveCount = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Url = Annotated[str, text_pattern(r"^https?://", "an address that begins with http:// or https://")]
PublicUrl = Annotated[
    str,
    text_pattern(
        r"^(https://[A-Za-z0-9.-]+(:[0-9]+)?|http://(127\.0\.0\.1|localhost)(:[0-9]+)?)(/[\w./~-]*)?$",
        "an https:// address (http:// on this machine only) without ? and #",
    ),
]
Host = Annotated[
    str, text_pattern(r"^[a-z0-9-]+(\.[a-z0-9-]+)+$", "the name of a host such as example.com")
]
Name = Annotated[str, StringConstraints(min_length=1)]
Language = Annotated[
    str,
    text_pattern(r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$", "a language code such as en or pt-BR"),
]
SlackUser = Annotated[str, text_pattern(USER_ID, "a Slack user id such as U0123ABCD")]
Asker = Annotated[
    str,
    text_pattern(
        r"^(members|guests|external|[UWS][A-Z0-9]{2,})$",
        "members, guests, external, or the id of a user (U...) or of a user group (S...)",
    ),
]


def without_password(instead: str) -> BeforeValidator:
    """Refuse an address with a password, without repeating it; `instead` says what to do."""

    def check(value: Any) -> Any:
        if isinstance(value, str) and _PASSWORD_IN_URL.search(value):
            raise ValueError(f"no password or token is allowed in an address: {instead}")
        return value

    return BeforeValidator(check)


class Section(BaseModel):
    """Part of the settings: strictly typed as in YAML, unknown keys refused, immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Role(Section):
    model: Literal["main", "fast"]
    max_tokens: PositiveCount
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None
    thinking: Literal["adaptive", "between_tools", "disabled"] | None


class Roles(Section):
    parent: Role
    subagent_main: Role
    subagent_fast: Role


class Models(Section):
    provider: Literal["anthropic", "bedrock", "vertex"]
    region: Name | None
    project: Name | None
    main: Name
    fast: Name
    base_url: Annotated[Url, without_password("set ANTHROPIC_BASE_URL in the environment")] | None
    roles: Roles
    timeout_s: Seconds
    max_attempts: PositiveCount
    retry_after_cap_s: Seconds
    cache: bool
    strict_tools: bool

    @property
    def prices(self) -> str:
        """Return the price list for calls."""
        regional = self.provider == "vertex" and self.region != "global"
        return "vertex-regional" if regional else self.provider

    @model_validator(mode="after")
    def _fit_the_provider(self) -> Self:
        if self.provider != "anthropic" and not self.region:
            raise ValueError(f"provider {self.provider} needs region, such as eu-central-1")
        short = [name for name in (self.main, self.fast) if name.startswith("claude-")]
        if self.provider == "bedrock" and short:
            raise ValueError(
                f"on Bedrock {short[0]} is written as AWS lists it, such as eu.anthropic.{short[0]}"
            )
        return self


class ToolCalls(Section):
    turn: PositiveCount = 100
    context: PositiveCount = 1_000
    request: PositiveCount = 100_000


class LimitSettings(Section):
    subagent_steps: PositiveCount
    files_steps: PositiveCount
    parent_steps: PositiveCount
    child_context: PositiveCount
    parent_context: PositiveCount
    cost_usd: Dollars
    seconds: Seconds
    tokens: Count
    steps: Count
    max_concurrency: PositiveCount
    max_subagents: Count
    max_items: PositiveCount
    max_tool_output_tokens: PositiveCount
    max_brief_tokens: PositiveCount
    max_material_tokens: Count
    max_result_tokens: PositiveCount
    max_fanout_tokens: PositiveCount
    tool_timeout_s: Seconds
    remind_at: Fraction
    handoff_at: Fraction
    tool_calls: ToolCalls = ToolCalls()

    @model_validator(mode="after")
    def _reminds_before_handing_over(self) -> Self:
        if self.remind_at >= self.handoff_at:
            raise ValueError("remind_at must be smaller than handoff_at")
        return self

    def of_task(self, seconds: float, cost_usd: float | None = None) -> Self:
        """Return the limits of a task with its own time and, if it is given, its own budget."""
        cost_usd = self.cost_usd if cost_usd is None else cost_usd
        return self.model_copy(update={"seconds": seconds, "cost_usd": cost_usd})


class SlackSettings(Section):
    app_distribution: Literal["internal", "distributed"]
    mode: Literal["socket", "http"]
    client_id: Name | None
    sockets: Annotated[int, Field(ge=1, le=10)]
    deaf_after_s: Seconds
    backfill_hours: Count
    lookback_days: Count
    page_size: Annotated[int, Field(ge=1, le=999)]
    timeout_s: PositiveCount
    retry_attempts: Count
    paced: bool
    lists: dict[Name, Name]
    languages: dict[Annotated[str, Field(pattern=r"^[CGD][A-Z0-9]{2,}$")], Language]
    search: bool
    reactions: dict[Annotated[str, Field(pattern=r"^[a-z0-9_+'-]{1,100}$")], Name]


class SweepSettings(Section):
    since_days: PositiveCount
    threads_per_subagent: PositiveCount
    time_s: Seconds


class GoogleSettings(Section):
    client_id: str | None
    service_account: str | None
    units_per_minute: PositiveCount
    timeout_s: Seconds
    max_attempts: PositiveCount


class TriageSettings(Section):
    since_days: PositiveCount
    categories: dict[Name, Name] = Field(min_length=1)
    budget_usd: Dollars
    time_s: Seconds


class PanelSettings(Section):
    profiles: Path | None = Field(strict=False)
    budget_usd: Dollars
    time_s: Seconds
    rounds: Annotated[int, Field(ge=2, le=10)]
    material_tokens: PositiveCount
    alarms: PositiveCount


class ReportSettings(Section):
    language: Language | None


class RetentionSettings(Section):
    workflows_days: Annotated[int, Field(ge=7)]
    trajectories_days: PositiveCount | None
    results_days: Annotated[int, Field(ge=7)] | None
    actions_days: PositiveCount | None
    notes_days: PositiveCount | None


class ConsoleSettings(Section):
    public_url: PublicUrl | None
    client_id: Name | None


class TraceSettings(Section):
    contents: bool


class ApprovalSettings(Section):
    expires_minutes: Annotated[float, Field(gt=0, le=1440)]
    grant_hours: Annotated[float, Field(gt=0, le=720)]


class ServeSettings(Section):
    host: Name
    port: Annotated[int, Field(ge=0, le=65535)]
    public_url: PublicUrl | None
    max_requests: PositiveCount
    max_crashes: PositiveCount
    drain_s: Seconds
    outage_retry_s: Seconds
    outage_give_up_s: Seconds
    subagents_per_minute: PositiveCount | None
    log_format: Literal["json", "text"]
    log_level: Literal["debug", "info", "warning", "error"]


class ReplySettings(Section):
    update_s: Seconds
    stream_s: Seconds
    max_rows: PositiveCount
    since_days: PositiveCount
    max_since_days: Annotated[int, Field(ge=1, le=36_500)]
    message_chars: Annotated[int, Field(ge=500, le=12_000)]
    link_hosts: tuple[Host, ...] = Field(strict=False)
    thread_tokens: PositiveCount
    max_files: Count
    max_file_mb: Annotated[float, Field(gt=0)]
    max_file_tokens: PositiveCount


class PolicyRules(Section):
    """Rules for one conversation or one user; None = as the wider rule says."""

    answer: bool | None = None
    mention_needed: bool | None = None
    shared: bool | None = None
    ask: tuple[Asker, ...] | None = Field(default=None, strict=False)
    scopes: tuple[Name, ...] | None = Field(default=None, strict=False)
    models: tuple[Literal["fast", "main"], ...] | None = Field(None, strict=False, min_length=1)
    cost_usd: Dollars | None = None


class Policy(Section):
    everywhere: PolicyRules
    direct: PolicyRules
    channels: dict[Name, PolicyRules]
    users: dict[SlackUser, PolicyRules]
    user_daily_usd: Dollars | None
    daily_usd: Dollars | None
    admins: tuple[SlackUser, ...] = Field(strict=False)
    approvers: tuple[SlackUser, ...] = Field(strict=False)
    schedulers: tuple[Asker, ...] = Field(strict=False)

    @model_validator(mode="after")
    def _everywhere_says_it_all(self) -> Self:
        unsaid = [n for n, v in self.everywhere if v is None and n != "cost_usd"]
        if unsaid:
            raise ValueError(f"everywhere.{unsaid[0]} must be set")
        return self


LIST_TAG = "[list]"

SourceName = Annotated[
    str,
    text_pattern(
        r"^[a-z][a-z0-9_-]{0,39}$",
        "small letters, digits, - and _, a letter first, 40 at most, such as sales",
    ),
]
Reader = Annotated[
    str, text_pattern(r"^(members|[UW][A-Z0-9]{2,})$", "`members` or a user id such as U0123ABCD")
]
Readers = Annotated[tuple[Reader, ...], Field(strict=False)]
"""Who may read it in Slack: `members` (all full members) or user ids; empty = nobody there."""
File = Annotated[Path, Field(strict=False)]
PostgresUrl = Annotated[
    str,
    text_pattern(r"^postgres(ql)?://", "an address that begins with postgresql://"),
    without_password("put it into a file and name that as password_file, or into ~/.pgpass"),
]
Dataset = Annotated[
    str,
    text_pattern(r"^[A-Za-z0-9:.-]+\.\w+$", "a project and a dataset such as my-project.events"),
]
McpUrl = Annotated[Url, without_password("put it into a file and name that as token_file")]
SearchUrl = Annotated[Url, without_password("let the server take us without one")]


def _kind(readers: Any) -> str | None:
    if isinstance(readers, list | tuple):
        return LIST_TAG
    return "public" if readers == "public" else None


PublicOrReaders = Annotated[
    Annotated[Readers, Tag(LIST_TAG)] | Annotated[Literal["public"], Tag("public")],
    Discriminator(
        _kind,
        custom_error_type="readers",
        custom_error_message="Input should be `public` or a list of `members` and user ids",
    ),
]
"""Discriminated by kind, so that a mistake is reported once, not for each kind."""


class DatabaseSettings(Section):
    """One database; exactly one of path, postgres and bigquery locates it."""

    path: File | None = None
    postgres: PostgresUrl | None = None
    bigquery: Dataset | None = None
    schema_: Name | None = Field(default=None, alias="schema")
    password_file: File | None = None
    service_account: File | None = None
    readers: Readers = ()

    @model_validator(mode="after")
    def _is_in_one_place(self) -> Self:
        if sum(bool(place) for place in (self.path, self.postgres, self.bigquery)) != 1:
            raise ValueError("exactly one of path, postgres and bigquery must be set")
        return self

    @model_validator(mode="after")
    def _says_nothing_in_vain(self) -> Self:
        if self.password_file and not self.postgres:
            raise ValueError("password_file is of a postgres database alone")
        if self.service_account and not self.bigquery:
            raise ValueError("service_account is of a bigquery dataset alone")
        if self.schema_ and self.bigquery:
            raise ValueError("schema is of path and postgres: bigquery names its dataset itself")
        return self


class SheetSettings(Section):
    id: Name
    service_account: File | None = None
    readers: Readers = ()


class DataSettings(Section):
    databases: dict[SourceName, DatabaseSettings]
    sheets: dict[SourceName, SheetSettings]
    query_s: Seconds
    memory_mb: PositiveCount
    max_rows: PositiveCount
    bigquery_usd: Dollars


def _in_time(data: DataSettings, info: ValidationInfo) -> DataSettings:
    limits = info.data.get("limits")  # missing if they are invalid themselves
    if limits and data.databases and data.query_s > limits.tool_timeout_s:
        raise ValueError("query_s must be at most limits.tool_timeout_s, which ends any call")
    return data


CheckedDataSettings = Annotated[DataSettings, AfterValidator(_in_time)]
"""Settings of `data` whose `query_s` is at most `limits.tool_timeout_s`."""


class WebSettings(Section):
    search: Literal["anthropic", "brave", "tavily", "searxng"] | None
    searxng_url: SearchUrl | None
    timeout_s: Seconds
    max_mb: Annotated[float, Field(gt=0)]

    @model_validator(mode="after")
    def _knows_its_searxng(self) -> Self:
        if self.search == "searxng" and not self.searxng_url:
            raise ValueError("search: searxng needs searxng_url, the address of your server")
        return self


class ProjectSettings(Section):
    path: File
    remote: Name = "origin"
    push: bool = False
    readers: Readers = ()


class FileSettings(Section):
    projects: dict[SourceName, ProjectSettings]
    max_file_kb: PositiveCount
    max_folder_mb: PositiveCount
    sandbox: tuple[Name, ...] | None = Field(strict=False)
    sandbox_s: Seconds

    @model_validator(mode="after")
    def _leaves_run_alone(self) -> Self:
        if "run" in self.projects:
            raise ValueError("no project may be called run: that is each request's own folder")
        return self


class McpServer(Section):
    """One server; exactly one of command and url says how it is reached."""

    command: tuple[Name, ...] | None = Field(default=None, strict=False)
    url: McpUrl | None = None
    token_file: File | None = None
    scope: Name
    access: Literal["read", "write", "search", "send"] = "send"
    readers: PublicOrReaders = ()
    tools: tuple[Name, ...] | None = Field(default=None, strict=False)
    timeout_s: Seconds = 30.0

    @model_validator(mode="after")
    def _is_reached_in_one_way(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("exactly one of command and url must be set")
        return self


class McpSettings(Section):
    servers: dict[SourceName, McpServer]
