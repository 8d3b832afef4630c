"""The `broker` command against a live API, in this process: fast, and with the real client and the real TLS."""

import pytest

from broker.cli.app import main
from broker.settings import Settings
from tests.unit.serve.conftest import bench, fresh_databases
from tests.unit.serve.live import live

__all__ = ["bench", "fresh_databases"]


@pytest.fixture
def cli(capfd, monkeypatch, tmp_path):
    """Run one command line: (exit code, stdout, stderr)."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    for name in ("BROKER_URL", "BROKER_TOKEN", "BROKER_CA", "BROKER_CONFIG"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments):
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.fixture
def daemon(bench, monkeypatch, cli):
    """A live API over the bench, with the CLI logged in as its first operator."""
    monkeypatch.setenv("BROKER_SERVER__LISTEN", "127.0.0.1:0")
    settings = Settings.parse(f'[policies]\ndir = "{bench.services.settings.policies.dir}"\n[clouds.aws]\n')
    object.__setattr__(bench.services, "settings", settings)
    with live(bench):
        code, _, err = cli("login")
        assert code == 0, err
        yield bench
