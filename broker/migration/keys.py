"""Keys of the checkpoint store for nodes, minted anew at half of their life."""

import time
from dataclasses import dataclass, field, replace

from broker.checkpoint.credentials import StoreSettings, mint
from broker.wire.messages import StoreAccess


@dataclass
class StoreKeys:
    """One set of keys a job, shared by its nodes.

    Attributes:
        run_lease_s: Real seconds; keys live at least that long, or a node that is cut off could train but not commit.
    """

    settings: StoreSettings
    run_lease_s: float
    _minted: dict[str, tuple[StoreAccess, float]] = field(default_factory=dict)

    def for_job(self, job_id: str) -> StoreAccess:
        """Keys with more than half of their life left.

        Raises:
            StoreError: none can be minted.
        """
        kept = self._minted.get(job_id)
        if kept is not None:
            access, at_s = kept
            if access.expires_in_s is None:
                return access
            left_s = access.expires_in_s - (time.monotonic() - at_s)
            if left_s > access.expires_in_s / 2:
                return replace(access, expires_in_s=left_s)
        access = mint(self.settings, job_id, self.run_lease_s)
        self._minted[job_id] = (access, time.monotonic())
        return access
