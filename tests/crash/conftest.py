"""Deployments of one's own, and the file that lets counting jobs hurry."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.seaweed import SeaweedFS
from tests.process.conftest import SCENARIO, go_ahead
from tests.process.deployment import Deployment

__all__ = ["go_ahead"]


@pytest.fixture
def deploy(tmp_path: Path, seaweed: SeaweedFS) -> Iterator[Callable[..., Deployment]]:
    """Make a deployment and start it, with a person who has a login; ended with the test.

    Args of the function: those of `Deployment`, `state` to put its state folder elsewhere, `store` for another store.
    """
    made: list[Deployment] = []

    def start(store: SeaweedFS = seaweed, scenario: dict[str, Any] | None = None, **more: Any) -> Deployment:
        deployment = Deployment(
            tmp_path / f"deployment-{len(made)}", store, scenario=SCENARIO | (scenario or {}), **more
        )
        made.append(deployment)
        deployment.start_lab()
        deployment.start_daemon()
        deployment.login("ada", "engineer")
        return deployment

    yield start
    for deployment in made:
        deployment.close()
