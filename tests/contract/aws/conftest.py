"""What only EC2's prices need: a provider that has never polled, and requests that are answered instead of the face."""

from collections.abc import Callable

import pytest

from lab.faces import Reply, Request
from tests.contract.conftest import Cloud, Opened

SPOT = "aws/use1-az6/p5.4xlarge/spot"


@pytest.fixture
def aws(aws_cloud: Cloud) -> Cloud:
    """With a provider that has never polled."""
    aws_cloud.provider = aws_cloud.opened_with()
    return aws_cloud


def instead_of(
    opened: Opened, handler: Callable[[Request], Reply], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Request], Reply]:
    """Put a handler before the face; returns the face."""
    face = opened.face.handler
    assert face is not None
    monkeypatch.setattr(opened.face, "handler", handler)
    return face
