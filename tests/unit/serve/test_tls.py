"""Certificates: a client that trusts our CA connects; renewal keeps the CA; the operator's own are left alone."""

import socket
import ssl
import stat
import threading

import pytest
from cryptography import x509

from broker.clock import SystemClock
from broker.core.errors import SettingsError
from broker.serve.tls import RENEW_BEFORE_DAYS, SERVER_DAYS, ensure_tls
from broker.settings import Settings

DAY_MS = 86_400_000


@pytest.fixture
def settings(monkeypatch, tmp_path):
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    return Settings.parse('[server]\npublic_url = "https://broker.example:8700"\n')


def now_ms():
    return SystemClock().now_ms()


def shake_hands(files, name):
    """One TLS handshake on a socket pair, with the client trusting our CA alone."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(files.cert, files.key)
    client = ssl.create_default_context(cadata=files.ca_pem)
    ours, theirs = socket.socketpair()

    def answer():
        try:
            server.wrap_socket(theirs, server_side=True).close()
        except ssl.SSLError:
            theirs.close()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        client.wrap_socket(ours, server_hostname=name).close()
    finally:
        ours.close()
        thread.join()


@pytest.mark.parametrize("name", ["broker.example", "127.0.0.1", "localhost"])
def test_a_client_that_trusts_the_ca_connects(settings, name):
    shake_hands(ensure_tls(settings, now_ms()), name)


def test_another_name_is_not_certified(settings):
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(ensure_tls(settings, now_ms()), "evil.example")


def test_keys_are_for_their_owner(settings):
    files = ensure_tls(settings, now_ms())
    for key in (files.key, files.key.with_name("ca.key")):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_certificate_is_renewed_before_its_end_and_the_ca_stays(settings):
    start = now_ms()
    first = ensure_tls(settings, start)
    ca, cert = first.ca_pem, first.cert.read_bytes()
    calm = ensure_tls(settings, start + (SERVER_DAYS - RENEW_BEFORE_DAYS - 1) * DAY_MS)
    assert calm.cert.read_bytes() == cert
    late = ensure_tls(settings, start + (SERVER_DAYS - RENEW_BEFORE_DAYS + 1) * DAY_MS)
    assert late.cert.read_bytes() != cert
    assert late.ca_pem == ca


def test_a_new_public_name_gets_a_new_certificate(settings):
    ensure_tls(settings, now_ms())
    moved = Settings.parse('[server]\npublic_url = "https://other.example"\n')
    files = ensure_tls(moved, now_ms())
    names = (
        x509.load_pem_x509_certificate(files.cert.read_bytes())
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value.get_values_for_type(x509.DNSName)
    )
    assert "other.example" in names


def test_the_operators_own_certificate_is_used_as_it_is(settings, tmp_path):
    own = Settings.parse('[server]\ntls_cert = "a.pem"\ntls_key = "a.key"\n', folder=tmp_path)
    (tmp_path / "a.pem").touch()
    with pytest.raises(SettingsError, match=r"cannot read .*a.key: No such file"):
        ensure_tls(own, now_ms())
    (tmp_path / "a.key").touch()
    files = ensure_tls(own, now_ms())
    assert (files.cert, files.ca, files.ca_pem) == (tmp_path / "a.pem", None, "")
