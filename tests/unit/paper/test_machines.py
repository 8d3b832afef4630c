"""The shipped facts of machines say the same as what reads the clouds, and as what the lab sells."""

import pytest

from broker.core.gpu import GPUS
from broker.paper.machines import MACHINES, Machine, region_of
from lab.catalog import listings
from providers.azure.sizes import SIZES
from providers.coreweave.price_list import SHIPPED, read_list

ROWS = [(cloud, name, machine) for cloud, rows in MACHINES.items() for name, machine in rows.items()]


@pytest.mark.parametrize(("cloud", "name", "machine"), ROWS, ids=lambda value: str(value)[:40])
def test_every_machine_has_a_gpu_that_we_know(cloud: str, name: str, machine: Machine) -> None:
    assert machine.gpu in GPUS
    joined = machine.gpus > 1 and GPUS[machine.gpu].form == "SXM"
    assert machine.interconnect == ("nvlink" if joined else "none")


@pytest.mark.parametrize("name", MACHINES["azure"])
def test_azure_is_as_its_prices_are_read(name: str) -> None:
    size = SIZES[name]
    told = Machine(size.gpu, size.gpus, size.vcpus, size.memory_gib, size.interconnect, size.fabric)
    assert MACHINES["azure"][name] == told


def test_coreweave_is_as_its_price_list() -> None:
    rows = {row.name: row for row in read_list(SHIPPED).instances}
    for name, machine in MACHINES["coreweave"].items():
        row = rows[name]
        told = Machine(row.gpu, row.gpus, row.vcpus, row.memory_gib, row.interconnect, row.fabric)
        assert machine == told, name


def test_what_the_lab_sells_is_the_same_machine() -> None:
    compared = 0
    for listing in listings():
        kind = listing.type
        machine = MACHINES.get(kind.cloud, {}).get(kind.name)
        if machine is None:
            continue
        compared += 1
        assert region_of(kind.cloud, listing.zone.id) == listing.zone.region
        assert (machine.gpu, machine.gpus, machine.vcpus, machine.memory_gib) == (
            kind.gpu,
            kind.gpus,
            kind.vcpus,
            kind.memory_gib,
        ), kind.name
    assert compared > 30
