"""Islands for tests: a whole daemon each, on a RAM disk."""

import tempfile
from pathlib import Path

import pytest

from tests.unit.migration.island import Island

DEAR = {"aws/*/p5.4xlarge/*": "6.00", "aws/use1-az6/p5.4xlarge/spot": "3.00", "gcp/*/a3-highgpu-1g/*": "5.00"}


@pytest.fixture
def make_island():
    # fsync is what these tests would wait for; a RAM disk has none, where there is one.
    memory = Path("/dev/shm")
    made = []
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:

        def make(**rules):
            made.append(Island(Path(folder) / str(len(made)), prices=DEAR, **rules))
            return made[-1]

        yield make
        for island in made:
            island.stop()
