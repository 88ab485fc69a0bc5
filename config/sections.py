"""The sections of the settings file. Defaults, units and meanings stand in `default.yaml`."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

URL = r"^https?://"
PUBLIC_URL = (
    r"^(https://[A-Za-z0-9.-]+(:[0-9]+)?|http://(127\.0\.0\.1|localhost)(:[0-9]+)?)(/[\w./~-]*)?$"
)
LANGUAGE = r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$"
USER_ID = r"^[UW][A-Z0-9]{2,}$"
HOST = r"^[a-z0-9-]+(\.[a-z0-9-]+)+$"
TOPIC = r"^projects/[^/\s]+/topics/[^/\s:]+$"
SUBSCRIPTION = r"^projects/[^/\s]+/subscriptions/[^/\s:]+$"
ASKER = r"^(members|guests|external|[UWS][A-Z0-9]{2,})$"
_LOGIN = re.compile(
    r"^https?://[^/?#]*@|^(?!http)\w+://[^@?]*:[^@?]*@|[?&](ssl)?password=", re.IGNORECASE
)
"""A password in an address; behind http also a name alone, as it may be a token."""

Count = Annotated[int, Field(ge=0)]
PositiveCount = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Url = Annotated[str, StringConstraints(pattern=URL)]
PublicUrl = Annotated[str, StringConstraints(pattern=PUBLIC_URL)]
Host = Annotated[str, StringConstraints(pattern=HOST)]
Name = Annotated[str, StringConstraints(min_length=1)]
Language = Annotated[str, StringConstraints(pattern=LANGUAGE)]
Topic = Annotated[str, StringConstraints(pattern=TOPIC)]
Subscription = Annotated[str, StringConstraints(pattern=SUBSCRIPTION)]
SlackUser = Annotated[str, StringConstraints(pattern=USER_ID)]
Asker = Annotated[str, StringConstraints(pattern=ASKER)]


def without_password(instead: str) -> BeforeValidator:
    """Refuses an address with a password, which is not repeated; `instead` says what to do."""

    def check(value: Any) -> Any:
        if isinstance(value, str) and _LOGIN.search(value):
            raise ValueError(f"no password or token may stand in an address: {instead}")
        return value

    return BeforeValidator(check)


class Section(BaseModel):
    """Part of the settings: typed as YAML typed it, unknown keys refused, unchangeable."""

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
    main: Name
    fast: Name
    base_url: Annotated[Url, without_password("set ANTHROPIC_BASE_URL in the environment")] | None
    roles: Roles
    timeout_s: Seconds
    max_attempts: PositiveCount
    retry_after_cap_s: Seconds
    cache: bool
    prime_cache: bool
    strict_tools: bool


class ToolCalls(Section):
    turn: PositiveCount = 100
    context: PositiveCount = 1_000
    request: PositiveCount = 100_000


class Limits(Section):
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
    """A run that was stored by an earlier version names none."""

    @model_validator(mode="after")
    def _reminds_before_handing_over(self) -> Self:
        if self.remind_at >= self.handoff_at:
            raise ValueError("remind_at must be smaller than handoff_at")
        return self


class Slack(Section):
    app_distribution: Literal["internal", "distributed"]
    mode: Literal["socket", "http"]
    sockets: Annotated[int, Field(ge=1, le=10)]
    deaf_after_s: Seconds
    backfill_hours: Count
    lookback_days: Count
    page_size: Annotated[int, Field(ge=1, le=999)]
    timeout_s: PositiveCount
    retry_attempts: Count
    paced: bool
    lists: dict[Name, Name]


class Sweep(Section):
    since_days: PositiveCount
    threads_per_subagent: PositiveCount
    time_s: Seconds


class Google(Section):
    client_id: str | None
    service_account: str | None
    poll_minutes: Annotated[float, Field(ge=0, le=1440)]
    pubsub_topic: Topic | None
    pubsub_subscription: Subscription | None
    pubsub_service_account: str | None
    units_per_minute: PositiveCount
    workers: Annotated[int, Field(ge=1, le=32)]
    timeout_s: Seconds
    max_attempts: PositiveCount

    @model_validator(mode="after")
    def _told_by_pubsub_as_a_whole(self) -> Self:
        if bool(self.pubsub_topic) != bool(self.pubsub_subscription):
            raise ValueError("pubsub_topic and pubsub_subscription belong together: set both")
        if self.pubsub_topic and not (self.pubsub_service_account or self.service_account):
            raise ValueError(
                "pubsub_subscription needs pubsub_service_account, the key file that may pull"
            )
        return self


class Triage(Section):
    since_days: PositiveCount
    categories: dict[Name, Name] = Field(min_length=1)
    thread_tokens: PositiveCount
    language: Language | None
    budget_usd: Dollars
    time_s: Seconds


class Report(Section):
    language: Language | None


class Retention(Section):
    workflows_days: Annotated[int, Field(ge=7)]
    trajectories_days: PositiveCount | None
    results_days: Annotated[int, Field(ge=7)] | None
    actions_days: PositiveCount | None
    notes_days: PositiveCount | None


class Approvals(Section):
    expires_minutes: Annotated[float, Field(gt=0, le=1440)]
    grant_hours: Annotated[float, Field(gt=0, le=720)]


class Serve(Section):
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


class Reply(Section):
    update_s: Seconds
    stream_s: Seconds
    max_rows: PositiveCount
    since_days: PositiveCount
    message_chars: Annotated[int, Field(ge=500, le=12_000)]
    link_hosts: tuple[Host, ...] = Field(strict=False)
    thread_tokens: PositiveCount
    max_files: Count
    max_file_mb: Annotated[float, Field(gt=0)]
    max_file_tokens: PositiveCount


class Rules(Section):
    """What holds in one conversation or for one user; None = as the wider rule says."""

    answer: bool | None = None
    mention_needed: bool | None = None
    shared: bool | None = None
    ask: tuple[Asker, ...] | None = Field(default=None, strict=False)
    scopes: tuple[Name, ...] | None = Field(default=None, strict=False)
    models: tuple[Literal["fast", "main"], ...] | None = Field(None, strict=False, min_length=1)
    cost_usd: Dollars | None = None


class Policy(Section):
    everywhere: Rules
    direct: Rules
    channels: dict[Name, Rules]
    users: dict[SlackUser, Rules]
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
