"""deploy/prometheus/alerts.yaml speaks of metrics, labels and pages that exist. `promtool` is not among our tools."""

import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from broker.serve.metrics import METRICS
from broker.store.access import SWITCHES

ROOT = Path(__file__).parents[3]
(GROUP,) = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())["groups"]
LABELS = {name: labels for name, _, labels in METRICS}
FUNCTIONS = {"absent"}


@pytest.mark.parametrize("rule", GROUP["rules"], ids=lambda rule: rule["alert"])
def test_a_rule_speaks_of_what_exists(rule):
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Broker[A-Z]\w+", rule["alert"])
    assert re.fullmatch(r"\d+[smhd]", rule.get("for", "0s"))
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "runbook"}

    names = set(re.findall(r"[a-z_]{4,}", re.sub(r"\{.*?\}", "", rule["expr"]))) - FUNCTIONS
    assert names, "a rule about nothing"
    assert names <= set(LABELS)
    for name, label, value in re.findall(r'(\w+)\{(\w+)="(\w+)"\}', rule["expr"]):
        assert label in LABELS[name]
        assert name != "broker_switch" or value in SWITCHES
    for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
        assert all(label in LABELS[name] for name in names)


@pytest.mark.parametrize("rule", GROUP["rules"], ids=lambda rule: rule["alert"])
def test_a_rule_has_its_page(rule):
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_every_metric_of_a_rule_is_on_the_endpoint(bench):
    served = {family.name for family in text_string_to_metric_families(bench.client.get("/metrics").text)}
    used = {name for rule in GROUP["rules"] for name in re.findall(r"broker_\w+", rule["expr"])}
    assert used <= served
