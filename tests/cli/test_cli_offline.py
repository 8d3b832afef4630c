"""Commands that need no daemon and what `broker` costs to start."""

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from broker.store.state import StateStore
from tests.clocks import CountingIds, ManualClock

ROOT = Path(__file__).parents[2]
HEAVY = (
    "torch",
    "boto3",
    "botocore",
    "google",
    "sqlalchemy",
    "fastapi",
    "httpx",
    "cryptography",
    "ruamel",
    "structlog",
    "numpy",
    "rich",
    "plotille",
    "leather",
)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["jobs", "--help"],
        ["prices", "--help"],
        ["policy", "--help"],
        ["policy", "check", "--help"],
    ],
)
def test_help_imports_nothing_heavy(arguments):
    program = (
        "import sys; from broker.cli.app import main; code = main(sys.argv[1:]); "
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert done.stderr.strip() == "[]"
    assert "Usage: broker" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["frob"], 2, "No such command"),
        (["submit"], 2, "Missing argument"),
        (["submit", "nowhere.yaml"], 2, "cannot read nowhere.yaml"),
        (["submit", "pipe"], 2, "cannot read pipe: it is a pipe"),
        (["jobs", "check", "/dev/zero"], 2, "cannot read /dev/zero: it is a device"),
        (["jobs", "check", "."], 2, "cannot read .: it is a folder"),
        (["policy", "check", "pipe"], 2, "cannot read pipe: it is a pipe"),
        (["serve", "--config", "pipe"], 2, "cannot read pipe: it is a pipe"),
        (["backup", "copy", "--config", "pipe"], 2, "cannot read pipe: it is a pipe"),
        (
            ["login", "https://127.0.0.1:1", "--token", "t", "--ca", "pipe"],
            2,
            "cannot read pipe: it is a pipe",
        ),
        (["jobs"], 4, "not logged in"),
        (["login"], 3, "no daemon runs with the state folder"),
        (["serve", "--config", "nowhere.toml"], 2, "cannot read nowhere.toml"),
        (["probe", "--profile", "slow"], 2, "profiles: quick, standard"),
        (["probe", "--gpu", "H1OO"], 2, "no GPU 'H1OO'"),
    ],
)
def test_a_persons_mistake_is_one_message(cli, monkeypatch, tmp_path, arguments, code, message):
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    os.mkfifo(tmp_path / "pipe")
    found, out, err = cli(*arguments)
    assert (found, out) == (code, "")
    assert message in err
    assert "Traceback" not in err


NUMBERS = [
    ("prices", "--limit"),
    ("prices", "--vram"),
    ("prices", "--gpu-memory"),
    ("prices", "--count"),
    ("prices", "--max-usd"),
    ("history", "H100", "--count"),
    ("history", "H100", "--limit"),
    ("events", "--since"),
    ("why", "train", "--limit"),
    ("probe", "--count"),
]


@pytest.mark.parametrize("words", NUMBERS, ids=" ".join)
@pytest.mark.parametrize("number", ["1_3", "\u0663", "9" * 20, "1e999999999", "-1"])
def test_what_only_python_takes_for_a_number_is_refused(cli, words, number):
    unit = {"--since": "h"}.get(words[-1], "")
    code, out, err = cli(*words, number + unit)
    assert (code, out) == (2, "")
    assert words[-1] in err
    assert "Traceback" not in err
    assert len(err) < 200


def shell(line):
    """A line of bash with `broker` in it: (exit codes of its pipe, stdout, stderr)."""
    script = f'broker() {{ "{sys.executable}" -m broker "$@"; }}; {line}; echo "${{PIPESTATUS[@]}}" >&3'
    read, write = os.pipe()
    with os.fdopen(read) as codes:
        done = subprocess.run(
            ["bash", "-c", f"exec 3>&{write}; {script}"],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"]},
            pass_fds=[write],
            capture_output=True,
            text=True,
            timeout=60,
        )
        os.close(write)
        return [int(code) for code in codes.read().split()], done.stdout, done.stderr


@pytest.mark.parametrize("arguments", ["--help", "policy check policies/default.yaml --json"])
def test_an_answer_that_cannot_be_written_is_one_line_and_no_success(arguments):
    codes, _, err = shell(f"broker {arguments} > /dev/full")
    assert codes == [1]
    assert err == "error: cannot write: No space left on device\n"


@pytest.mark.parametrize("arguments", ["--help", "policy check policies/default.yaml --json"])
def test_a_reader_that_has_gone_is_no_mistake_to_tell(arguments):
    codes, _, err = shell(f"broker {arguments} | exec true")
    assert (codes[1], err) == (0, "")
    codes, out, err = shell(f"broker {arguments} | head -1")
    assert (codes[1], err) == (0, "")
    assert len(out.splitlines()) == 1


def test_messages_and_answers_that_nobody_can_see_end_without_a_traceback():
    assert shell("broker frob 2> /dev/full")[0] == [1]
    codes, out, err = shell("broker policy check policies/default.yaml --json >&-")
    assert (codes, out, err) == ([0], "", "")


def test_serve_tells_a_wrong_configuration_with_its_place(cli, tmp_path):
    (tmp_path / "broker.toml").write_text('[timing]\nbeet = "5s"\n')
    code, _, err = cli("serve")
    assert code == 2
    assert (
        err
        == "error: broker.toml:2:1: unknown key 'beet'\n    beet = \"5s\"\n    ^\nhint: did you mean beat?\n"
    )


def test_init_writes_a_file_that_the_reader_takes(cli, tmp_path):
    assert cli("jobs", "init", "My Model")[0] == 0
    (tmp_path / "train.py").write_text("")
    from broker.jobs.spec import load_job

    spec, source = load_job(tmp_path / "my-model.yaml")
    assert (spec.name, source is not None) == ("my-model", True)
    # Not every job has a requirements.txt, and not every node lets `pip install` write into its Python.
    assert spec.setup is None
    assert "PEP 668" in (tmp_path / "my-model.yaml").read_text()
    assert cli("jobs", "init", "my-model")[0] == 5


def test_policy_check_finds_policies_that_tie(cli, tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(f"policy: {name}\nmode: act\nmatch: {{team: nlp}}\n")
    code, _, err = cli("policy", "check", tmp_path)
    assert code == 2
    assert f"{tmp_path}/b.yaml: b matches the same jobs as a ({tmp_path}/a.yaml)" in err
    assert "2 policies, 1 mistake" in err


def test_policy_check_finds_every_mistake(cli, tmp_path):
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "good.yaml").write_text("policy: good\n")
    (folder / "bad.yaml").write_text("policy: bad\nmode: atc\nprecedense: 3\n")
    (folder / "twin.yaml").write_text("policy: good\n")
    code, out, err = cli("policy", "check", folder)
    assert (code, out) == (2, "")
    for part in ("bad.yaml:2:7", "bad.yaml:3:1", "the name good is taken", "3 policies, 3 mistakes"):
        assert part in err
    assert cli("policy", "check", folder / "good.yaml", folder / "twin.yaml")[2].endswith(
        "2 policies, 1 mistake\n"
    )
    code, out, _ = cli("policy", "check", "--json", folder / "bad.yaml")
    assert [mistake["line"] for mistake in json.loads(out)["mistakes"]] == [2, 3]
    assert cli("policy", "check", folder / "good.yaml")[0] == 0
    assert cli("policy", "check", tmp_path / "nowhere.yaml")[0] == 2


def test_doctor_offline(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "default.yaml").write_text("policy: default\n")
    code, out, _ = cli("doctor", "--offline")
    assert code == 1
    looked = f"{tmp_path}/broker.toml, /etc/broker/broker.toml"
    assert f"?\tconfig\tbroker.toml\tno broker.toml found, defaults; looked in {looked}\n" in out
    assert "FAIL\tclouds\tenabled\tnone" in out
    (tmp_path / "broker.toml").write_text('[clouds.aws]\nregions = ["us-east-1"]\nimage_id = "ami-1"\n')
    code, out, _ = cli("doctor", "--offline")
    assert code == 0
    assert f"ok\tconfig\tbroker.toml\tread {tmp_path}/broker.toml\n" in out
    assert "?\tserver\tpublic_url" in out
    assert "ok\tclouds\taws\t" in out
    (tmp_path / "broker.toml").write_text("[clouds.awz]\n")
    code, out, _ = cli("doctor", "--offline")
    assert code == 1
    assert "unknown cloud 'awz'" in out


def test_doctor_offline_reads_every_cloud_as_the_daemon_does(cli, tmp_path):
    (tmp_path / "broker.toml").write_text(
        '[clouds.aws]\nregoins = ["us-east-1"]\n[clouds.azure]\nregion = "eastus"\n[clouds.local]\nenabled = false\n'
        '[clouds.gcp]\nproject = "p"\nregions = ["us-central1"]\nimage = "i"\ncredentials_file = "/nowhere/key.json"\n'
    )
    code, out, _ = cli("doctor", "--offline")
    assert code == 1
    assert "FAIL\tclouds\taws\tclouds.aws.regoins: unknown key hint: did you mean regions?\n" in out
    assert "FAIL\tclouds\tazure\tclouds.azure.region: unknown key hint: did you mean regions?\n" in out
    assert "FAIL\tclouds\tgcp\tclouds.gcp.credentials_file: there is no file /nowhere/key.json" in out
    assert "clouds\tlocal" not in out


def test_doctor_offline_asks_nothing_of_nodes_where_only_prices_are_read(cli, tmp_path):
    config = tmp_path / "broker.toml"
    config.write_text(
        '[clouds.aws]\nregions = ["us-east-1"]\n[clouds.gcp]\nproject = "p"\nregions = ["us-central1"]\n'
    )
    out = cli("doctor", "--offline")[1]
    assert "ok\tserver\tpublic_url" in out
    assert "ok\tstore\tkind" in out
    assert "ok\tclouds\taws\toptions are complete, credentials not tried; prices only" in out
    config.write_text(config.read_text() + 'image = "projects/p/global/images/i"\n')
    out = cli("doctor", "--offline")[1]
    assert "nodes of gcp cannot call it" in out
    assert "?\tstore\tkind" in out


def test_doctor_offline_names_credentials_that_are_not_set(cli, monkeypatch, tmp_path):
    zero = "00000000-0000-0000-0000-000000000000"
    (tmp_path / "broker.toml").write_text(
        '[clouds.aws]\nregions = ["us-east-1"]\n[clouds.gcp]\nproject = "p"\nregions = ["us-central1"]\n[clouds.lambda]\n'
        f'[clouds.azure]\nregions = ["eastus"]\nsubscription_id = "{zero}"\ntenant_id = "t"\nclient_id = "c"\n'
        '[clouds.coreweave]\napi_server = "https://org1-ab12cd.k8s.us-east-04a.coreweave.com"\n'
    )
    for name in (
        "AWS_SECRET_ACCESS_KEY",
        "LAMBDA_API_KEY",
        "AZURE_CLIENT_SECRET",
        "COREWEAVE_API_TOKEN",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/gcp.json")
    code, out, _ = cli("doctor", "--offline")
    assert code == 1
    for cloud, name in (
        ("aws", "AWS_SECRET_ACCESS_KEY"),
        ("lambda", "LAMBDA_API_KEY"),
        ("azure", "AZURE_CLIENT_SECRET"),
        ("coreweave", "COREWEAVE_API_TOKEN"),
    ):
        assert f"FAIL\tclouds\t{cloud}\t{name} is not set in this environment; the daemon needs it\n" in out
        monkeypatch.setenv(name, "a-secret")
    assert "GOOGLE_APPLICATION_CREDENTIALS names /nowhere/gcp.json, and there is no such file\n" in out
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    out = cli("doctor", "--offline")[1]
    assert "FAIL\tclouds" not in out
    assert "a-secret" not in out


def test_doctor_offline_shows_the_installation_id(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    assert "?\tstate\tinstallation\tnone yet" in cli("doctor", "--offline")[1]
    assert cli("token", "create", "--role", "operator", "--name", "olga")[0] == 0
    with closing(StateStore.open(tmp_path / "state" / "state.db", ManualClock(), CountingIds())) as ours:
        out = cli("doctor", "--offline")[1]
    assert f"ok\tstate\tinstallation\t{ours.installation_id}: the tag of every machine of ours\n" in out


def test_doctor_offline_reads_the_overlay(cli, tmp_path):
    (tmp_path / "broker.toml").write_text('[market]\noverlay = "overlay.yaml"\n')
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("discounts:\n  - {offers: 'aws/*', percent: 12}\n")
    assert f"ok\tmarket\toverlay\t{overlay}, 1 entry\n" in cli("doctor", "--offline")[1]
    overlay.write_text("discounts:\n  - {offer: 'aws/*', percent: 12}\n")
    code, out, _ = cli("doctor", "--offline")
    assert code == 1
    assert f"FAIL\tmarket\toverlay\t{overlay}:2:6:" in out


def test_doctor_offline_wants_a_role_for_minted_keys(cli, tmp_path):
    (tmp_path / "broker.toml").write_text('[store]\nkind = "s3"\nbucket = "b"\nmint = "sts"\n')
    assert "FAIL\tstore\trole_arn\tmint is sts, but role_arn is empty" in cli("doctor", "--offline")[1]


def test_a_token_is_made_without_a_daemon(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    code, out, err = cli("token", "create", "--role", "operator", "--name", "olga", "--json")
    assert code == 0, err
    made = json.loads(out)
    assert made["token"].startswith("brk_")
    assert made["about"]["name"] == "olga"
    assert cli("token", "create", "--role", "operator", "--name", "olga")[0] == 5
    assert cli("token", "list")[0] == 3


@pytest.mark.process
def test_probe_here_judges_no_cpu(cli):
    code, out, _ = cli("probe", "--json")
    report = json.loads(out)
    assert (report["schema"], report["profile"]) == ("gpu-probe/1", "quick")
    assert report["verdict"] != "accept" or report["hardware_verified"]
    assert code == (0 if report["verdict"] == "accept" else 1)
