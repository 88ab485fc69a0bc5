"""The sections of the settings on what tools work with besides Slack and mail: databases, the web,
folders, notes and servers of tools. Defaults, units and meanings stand in `default.yaml`."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    ValidationInfo,
    model_validator,
)

from config.sections import (
    Count,
    Dollars,
    Name,
    PositiveCount,
    Seconds,
    Section,
    Url,
    without_password,
)

SOURCE_NAME = r"^[a-z][a-z0-9_-]{0,39}$"
READER = r"^(members|[UW][A-Z0-9]{2,})$"
POSTGRES = r"^postgres(ql)?://"
DATASET = r"^[A-Za-z0-9:.-]+\.\w+$"
LISTED = "[list]"

SourceName = Annotated[str, StringConstraints(pattern=SOURCE_NAME)]
Reader = Annotated[str, StringConstraints(pattern=READER)]
Readers = Annotated[tuple[Reader, ...], Field(strict=False)]
"""Who may read it in Slack: `members` (all full members), ids of users; empty = nobody there."""
File = Annotated[Path, Field(strict=False)]
Postgres = Annotated[
    str,
    StringConstraints(pattern=POSTGRES),
    without_password("put it into a file and name that as password_file, or into ~/.pgpass"),
]
McpUrl = Annotated[Url, without_password("put it into a file and name that as token_file")]
SearchUrl = Annotated[Url, without_password("let the server take us without one")]


def _kind(readers: Any) -> str | None:
    if isinstance(readers, list | tuple):
        return LISTED
    return "public" if readers == "public" else None


PublicOrReaders = Annotated[
    Annotated[Readers, Tag(LISTED)] | Annotated[Literal["public"], Tag("public")],
    Discriminator(
        _kind,
        custom_error_type="readers",
        custom_error_message="Input should be `public` or a list of `members` and user ids",
    ),
]
"""Told apart by their kind, so that a mistake is one complaint, not one for each of the two."""


class Database(Section):
    """One database; exactly one of path, postgres and bigquery says where it is."""

    path: File | None = None
    postgres: Postgres | None = None
    bigquery: Annotated[str, StringConstraints(pattern=DATASET)] | None = None
    """`project.dataset`."""
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


class Sheet(Section):
    id: Name
    service_account: File | None = None
    readers: Readers = ()


class Data(Section):
    databases: dict[SourceName, Database]
    sheets: dict[SourceName, Sheet]
    query_s: Seconds
    memory_mb: PositiveCount
    max_rows: PositiveCount
    max_result_mb: PositiveCount
    bigquery_usd: Dollars


def _in_time(data: Data, info: ValidationInfo) -> Data:
    limits = info.data.get("limits")  # none where these are wrong themselves
    if limits and data.databases and data.query_s > limits.tool_timeout_s:
        raise ValueError("query_s must be at most limits.tool_timeout_s, which ends any call")
    return data


DataInTime = Annotated[Data, AfterValidator(_in_time)]
"""Below the limits, which it is held to."""


class Web(Section):
    search: Literal["anthropic", "brave", "tavily", "searxng"] | None
    searxng_url: SearchUrl | None
    timeout_s: Seconds
    max_mb: Annotated[float, Field(gt=0)]
    cache_minutes: Count
    python_s: Seconds
    python_mb: PositiveCount

    @model_validator(mode="after")
    def _knows_its_searxng(self) -> Self:
        if self.search == "searxng" and not self.searxng_url:
            raise ValueError("search: searxng needs searxng_url, the address of your server")
        return self


class Project(Section):
    path: File
    branch: Name | None = None
    remote: Name = "origin"
    push: bool = False
    readers: Readers = ()


class Files(Section):
    projects: dict[SourceName, Project]
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


class Mcp(Section):
    servers: dict[SourceName, McpServer]
