"""Datasets of BigQuery that the settings name."""

from __future__ import annotations

from bot.tooling.google import google_of
from config.settings import Settings
from config.tools import Database
from scopes.databases.bigquery import SCOPE, BigQuery


def bigquery_of(
    settings: Settings, name: str, config: Database, *, operator: bool
) -> BigQuery | None:
    """The dataset of `data.databases.<name>`; None = there is nothing to open it with.

    `operator`: the fixed token of the environment counts, too. Raises SetupError where a key file
    cannot be used, ValueError where `config` is no dataset.
    """
    if not config.bigquery:
        raise ValueError(f"{name} is no dataset of BigQuery")
    project, _, dataset = config.bigquery.rpartition(".")
    endpoint, source = settings.endpoints.bigquery_api_endpoint, f"data.databases.{name}"
    own = config.service_account
    google = google_of(settings, source, own, SCOPE, endpoint, operator=operator)
    if google is None:
        return None
    limits = settings.data
    size = limits.max_result_mb * 1_000_000
    return BigQuery(google, project, dataset, limits.query_s, limits.bigquery_usd, size)
