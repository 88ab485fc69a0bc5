"""The dashboard and the alerts name metrics and labels that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from bot.metrics import Metrics

DEPLOY = Path(__file__).parent.parent / "deploy"
BUILT_IN = {"up": {"job"}}
"""What Prometheus itself counts."""


def expressions() -> Iterator[str]:
    dashboard = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "5m")
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
    for rule in alerts["groups"][0]["rules"]:
        yield rule["expr"]


def metrics() -> dict[str, set[str]]:
    """Labels by name of each sample that the bot can show."""
    made = Metrics()
    made.count_request("done", 1.0)
    made.count_feedback("bad")
    made.count_feedback("bad", "wrong")
    made.count_subagent("complete")
    made.count_model_call("model", "ok", {"input": 1}, 0.1)
    made.count_panel_alarm("instruction", 1)
    made.count_slack_calls("chat.postMessage")
    found = dict(BUILT_IN)
    for family in text_string_to_metric_families(made.render().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_each_expression_names_what_exists(expression: str) -> None:
    promql_parser.parse(expression)  # raises ValueError for what is no PromQL

    known = metrics()
    text = re.sub(r'"[^"]*"', '""', expression)
    names = set(re.findall(r"\b(?:assistant_\w+|up)\b", text))
    labels = set(re.findall(r"(\w+)\s*!?=~?\s*\"\"", text))
    for group in re.findall(r"by \(([^)]*)\)", text):
        labels |= {each.strip() for each in group.split(",")}
    assert names
    assert names <= known.keys()
    assert labels <= set().union(*(known[name] for name in names))
