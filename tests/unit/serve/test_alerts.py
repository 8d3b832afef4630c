"""deploy/prometheus speaks of metrics, labels, pages and an endpoint that exist. `promtool` is not among our tools."""

import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from broker.clock import SystemClock
from broker.serve.metrics import METRICS
from broker.serve.tls import ensure_tls
from broker.settings import Settings
from broker.store.access import SWITCHES
from tests.unit.serve.test_tls import shake_hands

ROOT = Path(__file__).parents[3]
(GROUP,) = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())["groups"]
LABELS = {name: labels for name, _, labels in METRICS}
FUNCTIONS = {"absent"}


def test_the_scrape_job_reaches_the_endpoint_and_trusts_its_certificate(bench, monkeypatch, tmp_path):
    document = yaml.safe_load((ROOT / "deploy/prometheus/scrape.yaml").read_text())
    assert set(document) == {"rule_files", "scrape_configs"}
    assert document["rule_files"][0] in (ROOT / "deploy/prometheus/alerts.yaml").read_text()
    (job,) = document["scrape_configs"]
    assert (job["scheme"], bench.client.get(job["metrics_path"]).status_code) == ("https", 200)
    (target,) = job["static_configs"][0]["targets"]
    assert f'public_url = "https://{target}"' in (ROOT / "deploy/broker.toml").read_text()
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "tls-state"))
    settings = Settings.parse(f'[server]\npublic_url = "https://{target}"\n')
    shake_hands(ensure_tls(settings, SystemClock().now_ms()), job["tls_config"]["server_name"])


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
