import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs

import pytest
from moto import mock_aws

from broker.checkpoint.credentials import StoreSettings, mint, own_access, session_policy
from broker.core.errors import SettingsError, StoreError

ENV = {"AWS_ACCESS_KEY_ID": "AKIAOWN", "AWS_SECRET_ACCESS_KEY": "own-secret"}
STATIC = StoreSettings("s3", "https://s3.example:9000", bucket="ckpt", prefix="team")
STS = replace(STATIC, endpoint="", mint="sts", role_arn="arn:aws:iam::123456789012:role/jobs")


def test_static_keys_are_the_daemons_own_with_the_jobs_prefix():
    access = mint(STATIC, "a-1", 1800, ENV)
    assert (access.endpoint, access.bucket, access.prefix) == (
        "https://s3.example:9000",
        "ckpt",
        "team/jobs/a-1",
    )
    assert (access.access_key, access.secret_key, access.session_token) == ("AKIAOWN", "own-secret", "")
    assert access.expires_in_s is None


def test_a_session_token_goes_with_the_default_variables_only():
    env = {**ENV, "AWS_SESSION_TOKEN": "t", "OTHER": "AKIAOTHER"}
    assert own_access(STATIC, env).session_token == "t"
    assert own_access(replace(STATIC, access_key_env="OTHER"), env).session_token == ""


def test_a_folder_needs_no_keys():
    access = mint(StoreSettings("folder", path="/srv/ckpt"), "a-1", 1800, {})
    assert (access.kind, access.path, access.prefix) == ("folder", "/srv/ckpt", "jobs/a-1")


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(SettingsError, match="AWS_SECRET_ACCESS_KEY, which is not set"):
        own_access(STATIC, {"AWS_ACCESS_KEY_ID": "x"})
    with pytest.raises(SettingsError, match="ca_file"):
        own_access(replace(STATIC, ca_file=tmp_path / "no.pem"), ENV)
    with pytest.raises(SettingsError, match="role_arn"):
        mint(replace(STS, role_arn=""), "a", 60, ENV)
    with pytest.raises(SettingsError, match="outlives"):
        mint(STS, "a", 50_000, ENV)


def test_the_ca_travels_as_text(tmp_path):
    (tmp_path / "ca.pem").write_text("PEM")
    assert own_access(replace(STATIC, ca_file=tmp_path / "ca.pem"), ENV).ca_pem == "PEM"


def test_from_the_settings_file():
    section = SimpleNamespace(
        kind="s3", endpoint="", region="eu-west-1", bucket="b", prefix="/p/", access_key_env="A", secret_key_env="B",
        ca_file=None, mint="sts", role_arn="r", sts_endpoint="",
    )  # fmt: skip
    made = StoreSettings.of(section, Path("/x"))
    assert (made.prefix, made.path, made.mint) == ("p", "", "sts")
    assert own_access(made, {"A": "i", "B": "s"}).endpoint == "https://s3.eu-west-1.amazonaws.com"
    section.kind = "folder"
    assert StoreSettings.of(section, Path("/x")).path == "/x"


def test_a_jobs_keys_reach_its_prefix_and_no_other():
    objects, listing = session_policy(STS, "a-1")["Statement"]
    assert objects["Resource"] == "arn:aws:s3:::ckpt/team/jobs/a-1/*"  # the slash keeps a-10 out
    assert set(objects["Action"]) == {"s3:GetObject", "s3:PutObject", "s3:DeleteObject"}
    assert listing["Resource"] == "arn:aws:s3:::ckpt"
    assert listing["Condition"] == {"StringLike": {"s3:prefix": "team/jobs/a-1/*"}}
    china = session_policy(replace(STS, role_arn="arn:aws-cn:iam::1:role/r"), "a")
    assert china["Statement"][0]["Resource"].startswith("arn:aws-cn:s3:::")


def test_keys_from_sts_as_moto_gives_them():
    with mock_aws():
        access = mint(STS, "a-1", 1800, ENV)
    assert access.access_key.startswith("ASIA")
    assert access.access_key != ENV["AWS_ACCESS_KEY_ID"]
    assert access.session_token
    assert access.endpoint == "https://s3.us-east-1.amazonaws.com"
    assert access.expires_in_s == 3600


REPLY = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>ASIAJOB</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>
<Expiration>2030-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""
DENIED = """<ErrorResponse><Error><Code>AccessDenied</Code><Message>not trusted</Message></Error></ErrorResponse>"""


@pytest.fixture
def sts():
    """An endpoint that keeps what the SDK sends."""
    asked = []
    reply = [200, REPLY]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append({name: values[0] for name, values in parse_qs(body).items()})
            self.send_response(reply[0])
            self.send_header("Content-Type", "text/xml")
            self.send_header("Content-Length", str(len(reply[1])))
            self.end_headers()
            self.wfile.write(reply[1].encode())

        def log_message(self, *args): ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield SimpleNamespace(url=f"http://127.0.0.1:{server.server_address[1]}", asked=asked, reply=reply)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(("lease_s", "life_s"), [(60, 900), (1800, 3600), (40_000, 43_200)])
def test_asks_for_a_jobs_prefix_and_for_longer_than_the_lease(sts, lease_s, life_s):
    access = mint(replace(STS, sts_endpoint=sts.url), "a-1", lease_s, ENV)
    assert (access.access_key, access.secret_key, access.session_token) == ("ASIAJOB", "s", "t")
    assert access.expires_in_s == life_s
    (asked,) = sts.asked
    assert asked["Action"] == "AssumeRole"
    assert asked["RoleSessionName"] == "broker-a-1"
    assert int(asked["DurationSeconds"]) == life_s
    assert json.loads(asked["Policy"]) == session_policy(STS, "a-1")


def test_a_refusal_is_passed_on_with_what_to_check(sts):
    sts.reply[:] = [403, DENIED]
    with pytest.raises(StoreError, match=r"not trusted.*check store\.role_arn"):
        mint(replace(STS, sts_endpoint=sts.url), "a-1", 60, ENV)
