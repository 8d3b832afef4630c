"""Whatever a person writes into settings, job files and policies: a mistake has its place, and our words.

Each key of each kind of file gets each of the wrong values below. Most are mistakes; where one is none, nothing is said.
"""

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from broker.core.errors import SettingsError, SpecError, UsageError
from broker.jobs.spec import parse_job
from broker.policy.load import mistakes
from broker.settings import CloudSection, Settings
from providers.aws.settings import AwsOptions
from providers.azure.settings import AzureOptions
from providers.coreweave.settings import CoreWeaveOptions
from providers.gcp.settings import GcpOptions
from providers.lambda_cloud.settings import LambdaOptions
from providers.local.settings import LocalOptions
from providers.registry import vendor_endpoints

RAW = re.compile(
    r"Input should|Field required|Extra inputs|should match pattern|valid (dictionary|string|integer|number|list|boolean)"
    r"|<class|Decimal\(|isoformat|instance of|unable to|type=|input_value|could not convert|Exceeds the limit|Traceback"
)
HUGE = "9" * 400
TOML_VALUES = [
    "5", "-1", "0", "1.5", "1e400", "inf", "nan", "true", '"x"', '""', '"5"', '"-5s"', '"1.5s"', f'"{HUGE}s"', f'"{HUGE}"',
    "[]", '["x", 5]', "[[5]]", "{}", "{x = 1}", "[{x = 1}]", "2026-01-01", "2026-01-01T00:00:00", "12:00:00",
]  # fmt: skip
YAML_VALUES = [
    "", "5", "-1", "0", "1.5", "1e400", ".inf", ".nan", "true", "x", '""', '"5"', "-5s", "1.5s", f"{HUGE}s", HUGE, f"H100:{HUGE}",
    "[]", "[x, 5]", "[[5]]", "[null]", "{}", "{x: 1}", "[{x: 1}]", "2026-01-01", "0x10", "150%", "nan%", "$5", "a/b/c/d", "1GiB",
]  # fmt: skip

NEEDED = ("name", "resources", "run", "policy")
JOB = """\
name: {name}
team: {team}
labels: {labels}
priority: {priority}
resources: {{gpus: {gpus}, nodes: {nodes}, market: {market}, allow: {allow}, deny: {deny}}}
setup: {setup}
run: {run}
env: {env}
data: {data}
checkpoint: {{dir: {dir}, every: {every}, keep_last: {keep_last}, keep_best: {keep_best}}}
stop: {{deadline: {deadline}}}
policy: {policy}
"""
JOB_FINE = {
    "name": "t", "team": "a", "labels": "{a: b}", "priority": "low", "gpus": "{type: H100, count: 8, memory: 80GiB, form: SXM}",
    "nodes": "2", "market": "[spot]", "allow": "[aws]", "deny": "[aws/x]", "setup": '"true"', "run": "nvidia-smi", "env": "{A: 1}",
    "data": "[{size: 1GiB, from: there}]", "dir": "c", "every": "10m", "keep_last": "3", "keep_best": "{metric: m, mode: max}",
    "deadline": "2026-12-01T00:00:00Z", "policy": "p",
}  # fmt: skip

POLICY = """\
policy: {policy}
description: {description}
mode: {mode}
match: {{team: {team}, labels: {labels}, priority: {priority}, project: {project}}}
precedence: {precedence}
candidates: {{clouds: {clouds}, regions: {regions}, max_quote_age: {max_quote_age}, where: {where}}}
objective: {objective}
place: {{order: {order}, skip_spot_when: {skip_spot_when}}}
migrate: {{min_saving: {min_saving}, min_saving_usd: {min_saving_usd}, max_payback: {max_payback}, hold: {hold}}}
verify: {{profile: {profile}, min_speed: {min_speed}, on_inconclusive: {on_inconclusive}}}
limits: {{migrations_per_job_per_day: {migrations}, max_usd_per_hour: {max_usd_per_hour}}}
"""
POLICY_FINE = {
    "policy": "p", "description": "d", "mode": "act", "team": "a", "labels": "{a: b}", "priority": "low", "project": "x",
    "precedence": "1", "clouds": "[aws]", "regions": '{deny: ["us-*"]}', "max_quote_age": "10m",
    "where": "['offer.gpu.memory_gib >= 80']", "objective": "cheapest", "order": "[spot]",
    "skip_spot_when": "['!job.has_checkpoint']", "min_saving": "20%", "min_saving_usd": "25", "max_payback": "3h", "hold": "10m",
    "profile": "quick", "min_speed": "90%", "on_inconclusive": "accept", "migrations": "4", "max_usd_per_hour": "400",
}  # fmt: skip


def told(error: UsageError, key: str = "", place: str | None = None) -> int:
    """Judge a mistake; 1, to count them."""
    assert not RAW.search(str(error)), error
    assert len(error.message) < 900, error.message
    assert key in str(error)
    assert place is None or str(error.place).startswith(place), error
    return 1


def settings_keys() -> list[tuple[str, str, Any]]:
    sections = [(name, field.annotation) for name, field in Settings.model_fields.items() if name != "clouds"]
    return [
        (section, field.alias or name, field.annotation)
        for section, model in [*sections, ("clouds.aws", CloudSection)]
        for name, field in model.model_fields.items()
        if not field.exclude
    ]


@pytest.mark.parametrize(("section", "key", "annotation"), settings_keys())
def test_every_key_of_the_settings(monkeypatch, section, key, annotation):
    said = 0
    for value in TOML_VALUES:
        try:
            Settings.parse(f"[{section}]\n{key} = {value}\n", "broker.toml")
        except SettingsError as error:
            said += told(error, key, "broker.toml:2:1")
    assert said > 3
    if any(kind in (str, Path) for kind in (annotation, *get_args(annotation))):
        return  # any text will do
    monkeypatch.setenv(f"BROKER_{section.replace('.', '__').upper()}__{key.upper()}", "{}")
    with pytest.raises(SettingsError, match=f"environment variable BROKER_.*__{key.upper()}: {key}: "):
        Settings.parse("")


@pytest.mark.parametrize("section", list(Settings.model_fields))
def test_every_section_of_the_settings(monkeypatch, section):
    for value in ("5", '"x"', "[]", "true", "2026-01-01"):
        with pytest.raises(SettingsError, match=rf"1:1: {section}: expected a table, got"):
            Settings.parse(f"{section} = {value}\n")
    with pytest.raises(SettingsError, match=rf"1:1: {section}: expected a table, got a list"):
        Settings.parse(f"[[{section}]]\n")
    monkeypatch.setenv(f"BROKER_{section.upper()}", "x")
    with pytest.raises(SettingsError, match=rf"BROKER_{section.upper()}: \[{section}\] is a section, no key"):
        Settings.parse("")


OPTIONS = {
    "aws": (AwsOptions, {"regions": ["us-east-1"], "image_id": "ami-1"}),
    "azure": (AzureOptions, {"regions": ["eastus"]}),
    "gcp": (GcpOptions, {"project": "p", "regions": ["us-central1"], "image": "i"}),
    "coreweave": (CoreWeaveOptions, {}),
    "lambda": (LambdaOptions, {}),
    "local": (LocalOptions, {"dir": "/x", "gpu": "L4-24GB", "price_usd_h": 1}),
}
FOR_LAUNCHES = ("image_id", "image")  # without them a cloud's prices are read and nothing is launched
PLAIN_VALUES = [
    5,
    -1,
    1.5,
    float("nan"),
    10**400,
    True,
    None,
    "x",
    "",
    HUGE,
    [],
    ["x", 5],
    [[5]],
    {},
    {"x": 1},
    {"x": [[]]},
]


@pytest.mark.parametrize("cloud", OPTIONS)
def test_every_option_of_a_cloud(cloud):
    model, fine = OPTIONS[cloud]
    for key in model.model_fields:
        for value in PLAIN_VALUES:
            try:
                vendor_endpoints(cloud, fine | {key: value})
            except SettingsError as error:
                told(error, f"clouds.{cloud}.{key}")
    for key in fine:
        without = {name: value for name, value in fine.items() if name != key}
        if key in FOR_LAUNCHES:
            vendor_endpoints(cloud, without)
            continue
        with pytest.raises(SettingsError, match=rf"clouds\.{cloud}\.{key}: missing"):
            vendor_endpoints(cloud, without)


def short(template: str, key: str) -> str:
    """The lines that every file needs, and that of the key: reading YAML is slow."""
    lines = template.splitlines(keepends=True)
    return "".join(line for line in lines if f"{{{key}}}" in line or line.split(":")[0] in NEEDED)


def test_files_without_a_mistake_are_read(tmp_path: Path):
    parse_job(JOB.format(**JOB_FINE), "t.yaml", tmp_path)
    assert mistakes(POLICY.format(**POLICY_FINE), "p.yaml") == []


@pytest.mark.parametrize("key", JOB_FINE)
def test_every_key_of_a_job_file(tmp_path: Path, key):
    said = 0
    for value in YAML_VALUES:
        try:
            parse_job(short(JOB, key).format(**JOB_FINE | {key: value}), "t.yaml", tmp_path)
        except SpecError as error:
            said += told(error, place="t.yaml:")
    assert said > 3 or key in ("team", "setup", "run", "policy")


@pytest.mark.parametrize("key", POLICY_FINE)
def test_every_key_of_a_policy(key):
    said = 0
    for value in YAML_VALUES:
        for error in mistakes(short(POLICY, key).format(**POLICY_FINE | {key: value}), "p.yaml"):
            said += told(error, place="p.yaml:")
    assert said > 3


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[server]\nlisten = 5", "listen: expected an address and port, got the number 5", None),
        ('[server]\nlisten = "8700"', "listen: '8700' is not an address and port; write 127.0.0.1:8700 or [::1]:8700", None),
        ('[server]\npublic_url = "https://[::1"', "public_url is no address", "write https://host or https://host:port"),
        ('[server]\ntls_cert = ["a"]', "tls_cert: expected a path, got a list", None),
        ('[clock]\nrate = "fast"', "rate: expected a number, got the text 'fast'", None),
        ("[clock]\nrate = 2000", "rate: 2000 is more than 1000", None),
        ("[clock]\nrate = 0", "rate: 0 is not more than 0", None),
        ('[store]\nkind = "S3"', "kind: 'S3' is not one of s3, folder", "did you mean s3?"),
        ('[log]\nlevel = "loud"', "level: 'loud' is not one of debug, info, warning, error", None),
        ("[limits]\nmax_nodes = 1.5", "max_nodes: expected a whole number, got the number 1.5", None),
        ("[limits]\nmax_nodes = -1", "max_nodes: -1 is less than 0", None),
        ('[limits]\nmax_nodes = "1_3"', "max_nodes: expected a number, got the text '1_3'", None),
        ('[clock]\nrate = "1_0"', "rate: expected a number, got the text '1_0'", None),
        ('[timing]\nbeat = "1_0s"', "beat: '1_0s' is not a duration; write 90s, 10m, 2h or 1d", None),
        ('[server]\nlisten = "127.0.0.1:\u0668\u0667"', "listen: '127.0.0.1:\u0668\u0667' is not an address and port; write 127.0.0.1:8700 or [::1]:8700", None),
        ('[limits]\nmax_usd_per_hour = "1e999999999"', "max_usd_per_hour: 1e999999999 is more dollars than there are", None),
        ('[limits]\nmax_usd_per_hour = "lots"', "max_usd_per_hour: 'lots' is not an amount of dollars", None),
        ('[timing]\nbeat = "0s"', "beat: '0s' is shorter than 1s", None),
        ("[timing]\nbeat = {}", "beat: expected a duration, got a table; write 90s, 10m or 2h", None),
        ("[clouds.aws]\nenabled = {}", "enabled: expected true or false, got a table", None),
        ('[clouds]\naws = "on"', "aws: expected a table, got the text 'on'", None),
        ("[timing.beat]\nx = 1", "beat: expected a duration, got a table; write 90s, 10m or 2h", None),
    ],
)  # fmt: skip
def test_what_is_said_of_settings(text, message, hint):
    with pytest.raises(SettingsError) as caught:
        Settings.parse(text + "\n")
    assert (caught.value.message, caught.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("cloud", "changes", "message"),
    [
        ("aws", {"regions": 5}, "clouds.aws.regions: expected a list, got the number 5"),
        ("aws", {"regions": ["x", 5]}, "clouds.aws.regions[1]: expected text, got the number 5"),
        ("aws", {"regions": []}, "clouds.aws.regions: empty"),
        ("aws", {"image_id": 5}, "clouds.aws.image_id: expected a table or text, got the number 5"),
        ("local", {"count": 100}, "clouds.local.count: 100 is more than 64"),
        (
            "local",
            {"price_usd_h": "dear"},
            "clouds.local.price_usd_h: expected a number, got the text 'dear'",
        ),
        (
            "gcp",
            {"external_ip": "perhaps"},
            "clouds.gcp.external_ip: expected true or false, got the text 'perhaps'",
        ),
    ],
)
def test_what_is_said_of_a_clouds_options(cloud, changes, message):
    with pytest.raises(SettingsError) as caught:
        vendor_endpoints(cloud, OPTIONS[cloud][1] | changes)
    assert caught.value.message == message


@pytest.mark.parametrize(
    "text", [f"x = {'9' * 5000}", "x = " + "[" * 5000, "x = {", 'x = "\\u12"', "= 5", "[a]\n[a]"]
)
def test_what_is_no_toml_is_told_as_such(text):
    with pytest.raises(SettingsError, match="not TOML"):
        Settings.parse(text)


def test_json_values_in_variables_are_judged_like_the_file(monkeypatch):
    monkeypatch.setenv("BROKER_LOG", json.dumps({"level": "loud"}))
    with pytest.raises(SettingsError, match=r"level: 'loud' is not one of debug"):
        Settings.parse("")
