"""Keys of the lab: one throw-away CA for every face, and the RSA key of a GCP service account."""

import json
import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

_OWN_NAMES = ("127.0.0.1", "localhost")


class Authority:
    """A certificate authority that lives as long as its folder.

    Attributes:
        ca_file: What clients trust.
    """

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA(organization_name="gpu-capacity-broker lab")
        self._folder = folder
        self.ca_file = folder / "ca.pem"
        self.ca_file.write_bytes(self._ca.cert_pem.bytes())
        self._certificate = self._ca.issue_cert(*_OWN_NAMES)

    def server_context(self, *names: str) -> ssl.SSLContext:
        """For a server on 127.0.0.1, and for `names` of clients that reach it by `lab.proxy`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate = self._ca.issue_cert(*_OWN_NAMES, *names) if names else self._certificate
        certificate.configure_cert(context)
        return context

    def certificate_files(self) -> tuple[Path, Path]:
        """(chain, key) as PEM files for servers that are not ours; the key is readable by us alone."""
        chain, key = self._folder / "server.pem", self._folder / "server.key"
        chain.write_bytes(b"".join(blob.bytes() for blob in self._certificate.cert_chain_pems))
        key.touch(mode=0o600)
        key.write_bytes(self._certificate.private_key_pem.bytes())
        return chain, key


@dataclass(frozen=True)
class ServiceAccount:
    """A GCP service account of the lab.

    Attributes:
        email: Issuer of its assertions.
        public_key_pem: What the token end point verifies them with.
    """

    project: str
    email: str
    public_key_pem: str
    private_key_pem: str

    @classmethod
    def generated(cls, project: str) -> "ServiceAccount":
        """A new one, with a new key."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return cls(project, f"broker@{project}.iam.gserviceaccount.com", public.decode(), private.decode())

    def write(self, path: Path, token_uri: str) -> None:
        """The key file that ``GOOGLE_APPLICATION_CREDENTIALS`` names, readable by us alone."""
        document = {
            "type": "service_account",
            "project_id": self.project,
            "private_key_id": "lab",
            "private_key": self.private_key_pem,
            "client_email": self.email,
            "client_id": "100000000000000000001",
            "token_uri": token_uri,
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(document))
