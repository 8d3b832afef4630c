"""A whole lab: one world behind its faces, its nodes, its object store and its control, on 127.0.0.1."""

import json
import logging
import os
import secrets
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from broker.clock import SystemClock
from broker.core.time import to_iso
from lab.broker_config import write_broker_config
from lab.catalog import Scenario
from lab.control import Control
from lab.faces import Face, Handler, aws, azure, coreweave, gcp, lambda_cloud
from lab.faces.azure_tokens import Account
from lab.listening import Listening
from lab.nodes import RUN_MARK, NodeRunner
from lab.proxy import VENDOR_HOSTS, Proxy
from lab.seaweed import SeaweedFS
from lab.serving import HttpServer
from lab.sold.coreweave import CLUSTER_ZONE, price_file
from lab.tls import Authority, ServiceAccount
from lab.world import World

TICK_S = 0.03  # how late, in real seconds, a node may learn that its time has come
GCP_PROJECT = "broker-lab"
AZURE_TENANT = "a2000000-0000-4000-8000-000000000001"
AZURE_SUBSCRIPTION = "a2000000-0000-4000-8000-000000000002"
AZURE_CLIENT = "a2000000-0000-4000-8000-000000000003"
PRICE_FILE = "coreweave-prices.yaml"
KUBECONFIG = "coreweave-kubeconfig"
_log = logging.getLogger("lab")


class Lab:
    """Starts everything in a folder; `info` says where it is.

    Args:
        folder: Holds lab.json, keys, logs, the consoles of nodes and the object store.
        shutdown: Called when the control interface is asked to end the lab.
        with_s3: False leaves the object store out, which is most of the start-up time.
        run_id: What the warden sweeps by after a kill; it must be in this process's environment as ``LAB_RUN`` for
            the object store to carry it.
    """

    def __init__(
        self,
        folder: Path,
        clock: SystemClock,
        scenario: Scenario,
        shutdown: Callable[[], None] = lambda: None,
        with_s3: bool = True,
        run_id: str | None = None,
    ) -> None:
        self.folder = folder
        self.world = World(clock, scenario)
        self._anchor = to_iso(clock.anchor_ms)
        self._run_id = run_id or secrets.token_hex(8)
        self.nodes = NodeRunner(self.world, folder, self._run_id)
        self._warden = _warden(self._run_id, self.nodes.parent)
        self._shutdown = shutdown
        self._servers: list[Listening] = []
        self._names: dict[str, int] = {}  # of vendors, with the ports that they lead to
        self._faces: dict[str, Face] = {}
        self._writing = threading.Lock()
        self._stopped = threading.Event()
        self._authority = Authority(folder)
        self._s3 = (
            SeaweedFS(folder / "s3", certificate=self._authority.certificate_files()) if with_s3 else None
        )
        self.info: dict[str, Any] = {}

    def start(self) -> "Lab":
        """Everything up; `info` and lab.json are complete when this returns."""
        # The object store takes seconds to come up; everything else is done meanwhile.
        with ThreadPoolExecutor(1) as aside:
            store = aside.submit(self._s3.start) if self._s3 is not None else None
            endpoints, environment, keys, token = self._open_faces()
            if store is not None:
                endpoints["s3"] = store.result().endpoint
        self.info = {
            "pid": os.getpid(),
            "run": self._run_id,
            "rate": self.world.clock.rate,
            "anchor": self._anchor,
            "isolation": self.nodes.isolation,
            "endpoints": endpoints,
            "ca_file": str(self._authority.ca_file),
            "control_token": token,
            "aws": {"access_key": keys.access_key, "secret_key": keys.secret_key},
            "azure": {"tenant": AZURE_TENANT, "subscription": AZURE_SUBSCRIPTION, "client": AZURE_CLIENT},
            "gcp": {"project": GCP_PROJECT, "credentials": environment["GOOGLE_APPLICATION_CREDENTIALS"]},
            "coreweave": {
                "zone": CLUSTER_ZONE,
                "price_file": str(self.folder / PRICE_FILE),
                "kubeconfig": str(self.folder / KUBECONFIG),
            },
            "s3": self._s3_info(),
            "env": environment,
        }
        if self._s3 is not None:
            write_broker_config(self.folder, self.info)
        _write_whole(self.folder / "lab.json", json.dumps(self.info, indent=2))
        _log.info("ready; isolation %s", self.nodes.isolation)
        return self

    def _open_faces(self) -> tuple[dict[str, str], dict[str, str], aws.Keys, str]:
        """End points, environment for a broker, AWS keys, control token."""
        threading.Thread(target=self._tick, name="clock", daemon=True).start()
        keys = aws.Keys(f"AKIALAB{secrets.token_hex(6).upper()}", secrets.token_urlsafe(30))
        token = secrets.token_urlsafe(24)
        amazon = self.open_face("aws", aws.create(self.world, keys))
        control = Control(
            self.world, token, self._faces, self.nodes.console, self._shutdown, self._write_prices
        )
        endpoints = {f"aws_{name}": amazon for name in ("ec2", "pricing", "sts", "service_quotas")}
        environment = {
            "AWS_ACCESS_KEY_ID": keys.access_key,
            "AWS_SECRET_ACCESS_KEY": keys.secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CA_BUNDLE": str(self._authority.ca_file),
            "REQUESTS_CA_BUNDLE": str(self._authority.ca_file),
        }
        environment |= self._google(endpoints) | self._lambda(endpoints) | self._azure(endpoints)
        environment |= self._coreweave(endpoints)
        proxy = Proxy(self._names).start()
        self._servers.append(proxy)
        endpoints |= {"control": self._serve(control.handle), "proxy": proxy.url}
        return endpoints, environment, keys, token

    def stop(self) -> None:
        """Everything down: nodes first, so that none outlives its cloud. Harmless when called twice."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        (self.folder / "lab.json").unlink(missing_ok=True)
        self.nodes.close()
        for server in self._servers:
            server.stop()
        if self._s3 is not None:
            self._s3.stop()
        assert self._warden.stdin is not None
        self._warden.stdin.close()
        self._warden.wait()
        _log.info("stopped")

    def _tick(self) -> None:
        while not self._stopped.wait(TICK_S):
            try:
                self.world.advance()
            except Exception:  # noqa: BLE001 - the clock of a world must not stop because a listener failed
                _log.exception("a listener failed")

    def open_face(self, cloud: str, face: Face) -> str:
        """A cloud goes by its vendor's names, too, and over TLS."""
        names = VENDOR_HOSTS.get(cloud, ())
        url = self._serve(face, self._authority.server_context(*names))
        self._names |= dict.fromkeys(names, self._servers[-1].port)
        self._faces[cloud] = face
        return url

    def _serve(self, handler: Handler, tls: ssl.SSLContext | None = None) -> str:
        server = HttpServer(handler, tls).start()
        self._servers.append(server)
        return server.url

    def _google(self, endpoints: dict[str, str]) -> dict[str, str]:
        """Compute Engine and Cloud Billing, with a service account to sign in to them."""
        account = ServiceAccount.generated(GCP_PROJECT)
        url = self.open_face(
            "gcp",
            gcp.create(
                self.world,
                account.project,
                account.email,
                account.public_key_pem,
                self.world.scenario.filler.get("gcp", 0),
            ),
        )
        endpoints |= {"gcp_compute": url, "gcp_billing": url}
        path = self.folder / "service-account.json"
        account.write(path, f"{url}/token")
        return {"GOOGLE_APPLICATION_CREDENTIALS": str(path), "GOOGLE_CLOUD_PROJECT": GCP_PROJECT}

    def _lambda(self, endpoints: dict[str, str]) -> dict[str, str]:
        """Lambda's Cloud API, with a key to it."""
        key = f"secret_lab_{secrets.token_hex(16)}"
        endpoints["lambda"] = f"{self.open_face('lambda', lambda_cloud.create(self.world, key))}/api/v1"
        return {"LAMBDA_API_KEY": key}

    def _azure(self, endpoints: dict[str, str]) -> dict[str, str]:
        """The price list, Entra ID and a subscription, with the secret of an application that may read it."""
        account = Account(AZURE_TENANT, AZURE_SUBSCRIPTION, AZURE_CLIENT, secrets.token_urlsafe(30))
        endpoints["azure"] = self.open_face(
            "azure", azure.create(self.world, account, self.world.scenario.filler.get("azure", 0))
        )
        return {"AZURE_CLIENT_SECRET": account.client_secret}

    def _coreweave(self, endpoints: dict[str, str]) -> dict[str, str]:
        """A cluster's Kubernetes API with a token and a kubeconfig; and the price list of today, for there is no API."""
        token = f"CW-SECRET-{secrets.token_hex(16)}"
        endpoints["coreweave"] = self.open_face(
            "coreweave", coreweave.create(self.world, CLUSTER_ZONE, token)
        )
        self._write_prices("coreweave/")
        kubeconfig = self.folder / KUBECONFIG
        kubeconfig.touch(mode=0o600)
        ca_pem = self._authority.ca_file.read_bytes()
        kubeconfig.write_text(coreweave.kubeconfig(endpoints["coreweave"], ca_pem, token))
        return {"COREWEAVE_API_TOKEN": token}

    def _write_prices(self, offer_key: str) -> None:
        """CoreWeave's list, as of the day it is, where a price of CoreWeave was set: as an operator would type it in."""
        if not offer_key.startswith("coreweave/"):
            return
        with self._writing:
            prices = {key: self.world.price(key) for key in self.world.pools}
            text = price_file(to_iso(self.world.now_s() * 1000)[:10], prices)
            _write_whole(self.folder / PRICE_FILE, text)

    def _s3_info(self) -> dict[str, str] | None:
        if self._s3 is None:
            return None
        return {
            "access_key": self._s3.access_key,
            "secret_key": self._s3.secret_key,
            "bucket": self._s3.bucket,
            "region": "us-east-1",
        }


def _warden(run_id: str, parent: Path) -> "subprocess.Popen[bytes]":
    environment = {name: value for name, value in os.environ.items() if name != RUN_MARK}
    return subprocess.Popen(
        [sys.executable, "-m", "lab.warden", run_id, str(parent)],
        stdin=subprocess.PIPE,
        cwd=Path(__file__).parent.parent,
        env=environment,
        start_new_session=True,
    )


def _write_whole(path: Path, text: str) -> None:
    """Whole or not at all: who waits for the file must not read half of it."""
    part = path.with_suffix(".part")
    part.touch(mode=0o600)
    part.write_text(text)
    shutil.move(part, path)
