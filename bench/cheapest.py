"""Where is this cheapest: our decision beside SkyPilot's optimizer, on SkyPilot's own catalogues.

SkyPilot has catalogue files and no way to make any without the network, so that a tarball of them must be given
(``~/.sky/catalogs`` of a machine that has them: a folder ``catalogs/v8``). Both sides weigh the same offers, and the
places that they choose must cost the same.
"""

import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from bench.measure import Row, Skipped, cpu, interleave, say
from bench.outside import BUILD, SKYPILOT, Outside
from broker.core.model import Decision, DecisionKind, Job
from broker.core.offer import Market, MarketSnapshot, Offer, Quote
from broker.core.spec import Checkpoint, GpuRequest, JobSpec, Resources
from broker.decision.plan import decide
from broker.decision.subject import Subject, World
from broker.policy.load import load_policy
from broker.policy.schema import Policy

NOW_MS = 1_790_000_000_000
# What SkyPilot calls a GPU; it knows no form factors, so that ours is the usual one.
_SKU = {
    "T4": "T4-16GB",
    "V100": "V100-SXM2-16GB",
    "V100-32GB": "V100-SXM2-32GB",
    "A10": "A10-24GB",
    "A10G": "A10G-24GB",
    "L4": "L4-24GB",
    "L40S": "L40S-48GB",
    "A100": "A100-SXM4-40GB",
    "A100-80GB": "A100-SXM4-80GB",
    "H100": "H100-SXM5-80GB",
    "H200": "H200-SXM-141GB",
    "GH200": "GH200-96GB",
    "B200": "B200-SXM-180GB",
}
_POLICY = "policy: cheapest\nobjective: cheapest\nplace: {order: [spot, on_demand]}\n"


@dataclass(frozen=True)
class Request:
    """What is asked for: so many GPUs of one kind.

    Attributes:
        gpu: SkyPilot's name.
    """

    gpu: str
    count: int
    market: Market

    @property
    def task(self) -> str:
        """As a task of SkyPilot."""
        spot = "true" if self.market is Market.SPOT else "false"
        return (
            f"resources:\n  accelerators: {self.gpu}:{self.count}\n  use_spot: {spot}\nrun: python train.py\n"
        )

    @property
    def subject(self) -> Subject:
        """As a job of ours that waits for its first place."""
        resources = Resources((GpuRequest(_SKU[self.gpu], self.count),), markets=(self.market,))
        spec = JobSpec("train", "python train.py", resources, checkpoint=Checkpoint("checkpoints"))
        return Subject(Job("job-1", spec, "default", "bench", NOW_MS))


REQUESTS = (
    Request("A100", 8, Market.SPOT),
    Request("A100", 8, Market.ON_DEMAND),
    Request("A100-80GB", 4, Market.ON_DEMAND),
    Request("H100", 8, Market.ON_DEMAND),
    Request("V100", 4, Market.SPOT),
    Request("T4", 1, Market.SPOT),
    Request("L4", 1, Market.ON_DEMAND),
)


def compare(catalogs: Path | None, repetitions: int) -> list[Row]:
    """Rows of the table.

    Args:
        catalogs: Tarball with ``catalogs/v8``.

    Raises:
        Skipped: there is none, or SkyPilot cannot be installed.
    """
    if catalogs is None:
        raise Skipped(
            "no catalogues of SkyPilot: give a tarball of its folder catalogs/v8 as SKY_CATALOGS=PATH"
        )
    if not catalogs.is_file():
        raise Skipped(f"no catalogues of SkyPilot: there is no {catalogs}")
    home = _home(catalogs)
    with Outside(SKYPILOT, "skypilot_client.py", {"HOME": str(home)}) as sky:
        quotes = quotes_of(sky.ask("offers"))
        world, policy = _world(quotes), load_policy(_POLICY, "cheapest.yaml")
        check_equal(sky, world, policy)
        say(f"  {len(REQUESTS)} requests cost the same on both sides, out of {len(quotes):,} offers")
        subjects = [request.subject for request in REQUESTS]
        took = interleave(
            {
                "skypilot": lambda: float(sky.ask("optimize", tasks=[one.task for one in REQUESTS])["cpu_s"]),
                "ours": lambda: cpu(lambda: [decide(subject, policy, world, "d-1") for subject in subjects])[
                    0
                ],
            },
            repetitions,
        )
    what = f"the cheapest place for each of {len(REQUESTS)} requests, {len(quotes):,} offers"
    return [Row(what, took["ours"], sky.name, took["skypilot"], f"{len(REQUESTS)} prices")]


def quotes_of(offers: list[list[Any]]) -> dict[str, Quote]:
    """Those with a GPU that both sides know, by key."""
    quotes = {}
    for cloud, region, zone, instance_type, gpu, count, vcpus, memory_gib, on_demand, spot in offers:
        for market, usd in ((Market.ON_DEMAND, on_demand), (Market.SPOT, spot)):
            if gpu in _SKU and usd:
                offer = Offer(
                    *(cloud, region, zone, instance_type, market, _SKU[gpu], count),
                    vcpus=int(vcpus or 0),
                    memory_gib=int(memory_gib or 0),
                )
                quotes[offer.key] = Quote(offer, round(usd * 1_000_000), NOW_MS, NOW_MS, "skypilot:catalog")
    return quotes


def check_equal(sky: Outside, world: World, policy: Policy) -> None:
    """Both choose places of one price for every request; there may be several such places.

    Raises:
        AssertionError: they do not.
    """
    chosen = sky.ask("optimize", tasks=[request.task for request in REQUESTS])["chosen"]
    for request, (cloud, instance_type, region, usd) in zip(REQUESTS, chosen, strict=True):
        target = _placed(decide(request.subject, policy, world, "d-1")[0])
        there = f"{request}: {cloud} {region} {instance_type} at {usd} there"
        assert abs(target.price_micro_usd_h - usd * 1_000_000) <= 1, f"{there}, {target.offer.key} here"


def _placed(decision: Decision) -> Any:
    assert decision.kind is DecisionKind.PLACE, decision.summary
    return decision.target


def _world(quotes: Mapping[str, Quote]) -> World:
    return World(NOW_MS, MarketSnapshot(NOW_MS, quotes), lambda _from, _to: 0)


def _home(catalogs: Path) -> Path:
    """A home folder with the catalogues, all of today: it would fetch what is hours old."""
    home = BUILD / "skypilot-home"
    shutil.rmtree(home / ".sky" / "catalogs", ignore_errors=True)
    with tarfile.open(catalogs) as tar:
        for member in tar:
            parts = PurePosixPath(member.name).parts
            if member.isfile() and parts[:1] == ("catalogs",) and ".." not in parts:
                path = home / ".sky" / Path(*parts)
                path.parent.mkdir(parents=True, exist_ok=True)
                file = tar.extractfile(member)
                assert file is not None, member.name
                path.write_bytes(file.read())
    return home
