"""Settings: defaults, the environment, places of mistakes, what one key cannot know of another."""

import os
import sys
import types

import pytest

from broker.core.errors import SettingsError
from broker.settings import Settings

FILE = """\
[server]
listen = "127.0.0.1:9000"
public_url = "https://broker.example:9000/"

[clouds.aws]
poll_interval = "1m"
regions = ["us-east-1"]

[clouds.gcp]
enabled = false

[limits]
max_usd_per_hour = 400.50

[timing]
run_lease = "1h30m"
"""


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith("BROKER_") or name == "STATE_DIRECTORY":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_a_file_is_read_with_units():
    settings = Settings.parse(FILE)
    assert (settings.server.host, settings.server.port, settings.server.url) == (
        "127.0.0.1",
        9000,
        "https://broker.example:9000",
    )
    assert settings.timing.run_lease_s == 5400
    assert settings.limits.max_micro_usd_per_hour == 400_500_000
    assert settings.clouds["aws"].poll_interval_s == 60
    assert settings.clouds["aws"].options == {"regions": ["us-east-1"]}
    assert list(settings.open_clouds) == ["aws"]


def test_defaults_are_local(monkeypatch, tmp_path):
    monkeypatch.setenv("STATE_DIRECTORY", f"{tmp_path}/state:/elsewhere")
    settings = Settings.parse("")
    assert settings.server.url == "https://127.0.0.1:8700"
    assert settings.state_dir == tmp_path / "state"
    assert settings.store.kind == "folder"
    assert settings.store_dir == tmp_path / "state" / "checkpoints"


def test_settings_are_frozen():
    settings = Settings.parse(FILE)
    with pytest.raises(ValueError, match="frozen"):
        settings.server.listen = "x"  # type: ignore[misc]


def test_the_environment_outranks_the_file(monkeypatch):
    monkeypatch.setenv("BROKER_TIMING__RUN_LEASE", "20m")
    monkeypatch.setenv("BROKER_CLOUDS__AWS__ENABLED", "false")
    settings = Settings.parse(FILE)
    assert settings.timing.run_lease_s == 1200
    assert settings.clouds["aws"].options == {"regions": ["us-east-1"]}
    assert settings.open_clouds == {}


@pytest.mark.parametrize(
    ("text", "place", "message", "hint"),
    [
        ('[server]\nlitsen = "a:1"\n', "2:1", "unknown key 'litsen'", "did you mean listen?"),
        ("\n[servr]\n", "2:1", "unknown key 'servr'", "did you mean server?"),
        ("[timing]\nbeat = 5\n", "2:1", "has no unit", None),
        ('[timing]\n  beat = "5x"\n', "2:3", "is not a duration", None),
        ('[clouds.awz]\nregions = ["x"]\n', "1:1", "unknown cloud 'awz'", "did you mean aws?"),
        ("[clock]\nrate = 20\n", "2:1", "a rate needs an anchor", "add anchor"),
        ('[clock]\nanchor = "2026-01-01T00:00:00"\n', "2:1", "has no time zone", None),
        ('[store]\nkind = "s3"\n', "2:1", "needs a bucket", "bucket"),
        ('[server]\ntls_cert = "a.pem"\n', "2:1", "belong together", None),
        ('[server]\npublic_url = "http://x"\n', "2:1", "https://", None),
        ("[limits]\nmax_usd_per_hour = true\n", "2:1", "not an amount", None),
        ("[server\n", "1:8", "not TOML", None),
    ],
)
def test_a_mistake_is_told_with_its_place(text, place, message, hint):
    with pytest.raises(SettingsError) as caught:
        Settings.parse(text, "broker.toml")
    error = caught.value
    assert str(error.place) == f"broker.toml:{place}"
    assert message in error.message
    if hint:
        assert error.hint is not None
        assert hint in error.hint
    assert str(error).splitlines()[2].strip() == "^"


def test_a_slip_in_a_variable_is_refused(monkeypatch):
    monkeypatch.setenv("BROKER_TIMING__BEET", "5s")
    with pytest.raises(SettingsError, match=r"BROKER_TIMING__BEET.*unknown key 'beet'"):
        Settings.parse("")
    monkeypatch.delenv("BROKER_TIMING__BEET")
    monkeypatch.setenv("BROKER_TIMNG__BEAT", "5s")
    with pytest.raises(SettingsError, match=r"no section \[timng\]"):
        Settings.parse("")


def test_search_order(monkeypatch, tmp_path):
    (tmp_path / "broker.toml").write_text('[timing]\nbeat = "1s"\n')
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "two.toml").write_text('[timing]\nbeat = "2s"\n[policies]\ndir = "rules"\n')
    assert Settings.load().timing.beat_s == 1
    monkeypatch.setenv("BROKER_CONFIG", "sub/two.toml")
    assert Settings.load().timing.beat_s == 2
    assert Settings.load().policies.dir == tmp_path / "sub" / "rules"
    assert Settings.load(tmp_path / "broker.toml").timing.beat_s == 1
    with pytest.raises(SettingsError, match="cannot read"):
        Settings.load("nowhere.toml")


def test_a_rate_is_refused_at_a_vendors_endpoint(monkeypatch):
    registry = types.ModuleType("providers.registry")
    registry.vendor_endpoints = lambda cloud, options: (
        [] if "endpoint" in options else ["https://ec2.amazonaws.com"]
    )  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "providers.registry", registry)
    clock = '[clock]\nrate = 20\nanchor = "2026-01-01T00:00:00Z"\n'
    with pytest.raises(SettingsError, match=r"aws would be called at https://ec2.amazonaws.com"):
        Settings.parse(clock + "[clouds.aws]\n")
    lab = Settings.parse(clock + '[clouds.aws]\nendpoint = "https://127.0.0.1:1"\n')
    assert lab.clock.rate == 20
