"""TLS for the daemon: the operator's certificate, or a small CA of our own in the state folder.

Nodes trust exactly the CA in their user-data, so the CA outlives server certificates: it lives ten years, a server
certificate 90 days, and a new one is made 30 days before the old one ends (or when the public name changes).
Certificates live on the world's clock, never on a rehearsal's.
"""

import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from broker.core.errors import SettingsError
from broker.core.time import to_datetime
from broker.settings import Settings
from broker.textfile import read_text

CA_DAYS = 3650
SERVER_DAYS = 90
RENEW_BEFORE_DAYS = 30

_DAY = datetime.timedelta(days=1)

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class TlsFiles:
    """What the server loads and what its callers trust.

    Attributes:
        cert: Certificate chain of the server (PEM).
        key: Its private key (PEM, mode 0600).
        ca: What nodes and the CLI trust (PEM), or None for the system's own CAs.
    """

    cert: Path
    key: Path
    ca: Path | None

    @property
    def ca_pem(self) -> str:
        """Text for user-data; empty when the system's CAs are trusted."""
        return self.ca.read_text() if self.ca else ""


def ensure_tls(settings: Settings, real_now_ms: int) -> TlsFiles:
    """The certificate to serve with; makes or renews our own when the operator gave none.

    Args:
        settings: For the public name, the files given, and the state folder.
        real_now_ms: The world's time, whatever rate our clock has.

    Raises:
        SettingsError: a file that the operator gave cannot be read.
    """
    server = settings.server
    if server.tls_cert and server.tls_key:
        for key in ("tls_cert", "tls_key", "tls_ca"):
            if file := getattr(server, key):
                read_text(file, SettingsError, hint=f"it is {key} of [server]")
        return TlsFiles(server.tls_cert, server.tls_key, server.tls_ca)
    folder = settings.state_dir / "tls"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = TlsFiles(folder / "server.pem", folder / "server.key", folder / "ca.pem")
    now = to_datetime(real_now_ms)
    names = _names(server.url, server.host)
    ca_key, ca = _ensure_ca(folder, now)
    if not _still_good(files.cert, ca, names, now):
        _make_server(files, ca_key, ca, names, now)
        log.info(
            "tls.made", cert=str(files.cert), names=[str(name.value) for name in names], days=SERVER_DAYS
        )
    return files


def _names(url: str, host: str) -> list[x509.GeneralName]:
    """Names to certify: the public one, the address we listen on, and the loopback for the local CLI."""
    wanted = [urlsplit(url).hostname or host, host, "localhost", "127.0.0.1"]
    names: list[x509.GeneralName] = []
    for text in dict.fromkeys(wanted):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(text)))
        except ValueError:
            names.append(x509.DNSName(text))
    return names


def _ensure_ca(folder: Path, now: datetime.datetime) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key_file, cert_file = folder / "ca.key", folder / "ca.pem"
    if key_file.exists() and cert_file.exists():
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key, x509.load_pem_x509_certificate(cert_file.read_bytes())
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "GPU capacity broker CA")])
    cert = (
        _builder(name, name, key.public_key(), now, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(ca=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write_key(key_file, key)
    _write(cert_file, cert.public_bytes(serialization.Encoding.PEM), 0o644)
    return key, cert


def _still_good(
    file: Path, ca: x509.Certificate, names: list[x509.GeneralName], now: datetime.datetime
) -> bool:
    if not file.exists():
        return False
    cert = x509.load_pem_x509_certificate(file.read_bytes())
    certified = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return (
        cert.not_valid_after_utc - now > RENEW_BEFORE_DAYS * _DAY
        and cert.issuer == ca.subject
        and set(names) <= set(certified)
    )


def _make_server(
    files: TlsFiles,
    ca_key: ec.EllipticCurvePrivateKey,
    ca: x509.Certificate,
    names: list[x509.GeneralName],
    now: datetime.datetime,
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "GPU capacity broker")])
    cert = (
        _builder(subject, ca.subject, key.public_key(), now, SERVER_DAYS)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    _write_key(files.key, key)
    _write(files.cert, cert.public_bytes(serialization.Encoding.PEM), 0o644)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    days: int,
) -> x509.CertificateBuilder:
    """Valid from yesterday: a node whose clock lags must not refuse us."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + days * _DAY)
    )


def _key_usage(ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write_key(file: Path, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write(file, pem, 0o600)


def _write(file: Path, content: bytes, mode: int) -> None:
    """Whole or not at all, and never readable by others for a moment."""
    partial = file.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as out:
        out.write(content)
    partial.replace(file)
