"""The sections of the settings on what tools work with besides Slack and mail: databases, the web,
folders, notes and servers of tools. Defaults, units and meanings stand in `default.yaml`."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from config.sections import Count, Dollars, Name, PositiveCount, Seconds, Section, Url

SOURCE_NAME = r"^[a-z][a-z0-9_-]{0,39}$"
READER = r"^(members|[UW][A-Z0-9]{2,})$"
POSTGRES = r"^postgres(ql)?://"
DATASET = r"^[A-Za-z0-9:.-]+\.\w+$"

SourceName = Annotated[str, StringConstraints(pattern=SOURCE_NAME)]
Reader = Annotated[str, StringConstraints(pattern=READER)]
Readers = Annotated[tuple[Reader, ...], Field(strict=False)]
"""Who may read it in Slack: `members` (all full members), ids of users; empty = nobody there."""
File = Annotated[Path, Field(strict=False)]


class Database(Section):
    """One database; exactly one of path, postgres and bigquery says where it is."""

    path: File | None = None
    postgres: Annotated[str, StringConstraints(pattern=POSTGRES)] | None = None
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


class Web(Section):
    search: Literal["anthropic", "brave", "tavily", "searxng"] | None
    searxng_url: Url | None
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
    url: Url | None = None
    token_file: File | None = None
    scope: Name
    access: Literal["read", "write", "search", "send"] = "send"
    readers: Readers | Literal["public"] = ()
    tools: tuple[Name, ...] | None = Field(default=None, strict=False)
    timeout_s: Seconds = 30.0

    @model_validator(mode="after")
    def _is_reached_in_one_way(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("exactly one of command and url must be set")
        return self


class Mcp(Section):
    servers: dict[SourceName, McpServer]
