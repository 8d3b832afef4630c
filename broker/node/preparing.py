"""Before a job may start: its files, its setup, its checkpoint's chunks. And the shell that both need."""

import os
import secrets
from pathlib import Path
from typing import Dict, Optional

from broker.node.config import Home, write_atomically
from broker.node.link import Link, LinkDown
from broker.node.log import say
from broker.node.runner import Shell, job_environment
from broker.node.source import BadSource, unpack_source
from broker.node.wishes import Interrupted, Wishes, preparation_key
from broker.wire.commit import prefetch
from broker.wire.errors import WireError
from broker.wire.messages import RunOrder
from broker.wire.store_client import open_store

_TICK_S = 1.0
_RETRY_S = 2.0


class CannotStart(Exception):
    """The job cannot be started; the text says why."""


class Preparation:
    """Prepares a job once, however often it is asked to. Only the job's thread uses it."""

    def __init__(self, home: Home, link: Link, wishes: Wishes) -> None:
        self._home = home
        self._link = link
        self._wishes = wishes
        self._prepared = ""

    def needed(self, order: RunOrder) -> bool:
        """Whether something of it is not here yet."""
        return preparation_key(order) != self._prepared

    def prepare(self, order: RunOrder) -> None:
        """Fetch the source and run the setup.

        Raises:
            CannotStart: trying again would end the same way.
            Interrupted: there is a wish to stop.
        """
        self._fetch_source(order)
        self._run_setup(order)
        self._prepared = preparation_key(order)

    def prefetch(self, order: RunOrder) -> None:
        """Bring the checkpoint's chunks near while another placement trains on. A failure costs only time."""
        if order.checkpoint_dir is None:
            return
        try:
            prefetch(open_store(order.store), order.store.prefix, self._home.prefetched)
        except (WireError, OSError) as error:
            say("prefetch.failed", error=error)

    def _fetch_source(self, order: RunOrder) -> None:
        if not order.source_sha256:
            self._home.work.mkdir(parents=True, exist_ok=True)
            return
        while True:
            self._wishes.check()
            try:
                unpack_source(order.source_sha256, self._link.fetch_source, self._home.work)
                return
            except LinkDown as error:
                say("source.failed", error=error)
            except BadSource as error:
                raise CannotStart(str(error)) from error
            self._wishes.pause(_RETRY_S)

    def _run_setup(self, order: RunOrder) -> None:
        if not order.setup:
            return
        shell = start_shell(self._home, order, order.setup, "", self._wishes)
        while shell.running:
            self._wishes.pause(_TICK_S)
            if self._wishes.stopping is not None:
                shell.kill()
                raise Interrupted
        if shell.exit_code:
            raise CannotStart(f"setup ended with exit code {shell.exit_code}; see the job's log")


def checkpoint_dir(home: Home, order: RunOrder) -> Optional[Path]:
    """Where the job keeps its checkpoints, or None when it has none."""
    return home.work / order.checkpoint_dir if order.checkpoint_dir else None


def start_shell(home: Home, order: RunOrder, text: str, resume_from: str, wishes: Wishes) -> Shell:
    """Start one of the job's two shell texts with the variables that it is promised.

    Raises:
        CannotStart: there is no bash, or no room for a process.
    """
    root = checkpoint_dir(home, order)
    own: Dict[str, str] = {
        "BROKER_JOB_ID": order.job_id,
        "BROKER_NODE_RANK": str(order.rank),
        "BROKER_NODES": str(order.nodes),
        "BROKER_NODE_IPS": "\n".join(order.node_addresses),
        "BROKER_HEAD_IP": order.node_addresses[0] if order.node_addresses else "127.0.0.1",
        "BROKER_CHECKPOINT_DIR": str(root) if root else "",
        "BROKER_RESUME_FROM": resume_from,
        "BROKER_METRICS": str(home.metrics),
    }
    run_id = secrets.token_hex(8)
    # Before the start: whoever finds us dead from here on can find the job.
    write_atomically(home.run_id, run_id.encode())
    env = job_environment(os.environ, order.env, own)
    try:
        return Shell(text, home.work, env, home.log, run_id, ended=wishes.notify)
    except OSError as error:
        raise CannotStart(f"the job cannot be started: {error}") from error
