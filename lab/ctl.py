"""``python -m lab.ctl [--dir DIR] COMMAND``: turn the world of a running lab by hand.

    state                       machines and the time
    prices [PATTERN]            pools: price, stock, machines that can still be had
    price OFFER USD             set a price; x2.5 multiplies it. CoreWeave's is in a file: the lab writes it anew
    doubt [OFFER]               an Azure price rises by what Windows costs: a daemon that has read the price before
                                keeps the old one, lists the new one in `broker quarantine list`, and believes it when
                                `broker quarantine confirm OFFER` says so
    stock OFFER MACHINES        how many may exist at once; `unlimited`
    interrupt MACHINE [--notice-s N]
    fault CLOUD OPERATION KIND [--count N | --always] [--seconds S]
                                OPERATION is the cloud's own name of a call, or *; a wrong one is told what there is
    clear                       no more faults
    console MACHINE             what a node has printed
    bill                        what the clouds will charge, by machine
    shutdown                    end the lab with all its nodes

OFFER is a key as `broker prices` shows it. MACHINE is an id, or `OFFER` when one machine runs there. Waits up to 30
seconds for a lab that is still starting.
"""

import argparse
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import httpx

from lab.control import LabClient
from lab.faults import FaultKind

START_TIMEOUT_S = 30.0
DOUBTED = "azure/eastus/Standard_NC40ads_H100_v5/on_demand"


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0, or 1 with a line about what is wrong."""
    given = parser().parse_args(arguments)
    run: Callable[[LabClient, argparse.Namespace], None] = given.run
    try:
        run(_open(given.dir), given)
    except (ValueError, OSError, httpx.HTTPError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _open(folder: Path) -> LabClient:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not (folder / "lab.json").exists():
        if time.monotonic() > deadline:
            raise FileNotFoundError(
                f"no lab runs in {folder}; start one: python -m lab --dir {folder} --rate 20"
            )
        time.sleep(0.1)
    return LabClient.open(folder)


def _state(lab: LabClient, _: argparse.Namespace) -> None:
    seen = lab.state()
    print(f"{seen['now']}  rate {seen['rate']:g}")
    for machine in seen["machines"]:
        print(f"{machine['id']}  {machine['state']:<12} {machine['offer_key']}")


def _prices(lab: LabClient, given: argparse.Namespace) -> None:
    pools = lab.state()["pools"]
    for key in sorted(pools, key=lambda key: pools[key]["price_micro_usd_h"]):
        if fnmatch(key, given.pattern):
            free = "" if pools[key]["free"] is None else f"  {pools[key]['free']} free"
            print(f"{key:<44} {_usd(pools[key]['price_micro_usd_h'])}/h{free}")


def _price(lab: LabClient, given: argparse.Namespace) -> None:
    if given.usd.startswith("x"):
        price = lab.price(given.offer, factor=float(given.usd[1:]))
    else:
        price = lab.price(given.offer, usd=given.usd)
    print(f"{given.offer} costs {_usd(price)}/h")


def _doubt(lab: LabClient, given: argparse.Namespace) -> None:
    price = lab.doubt(given.offer)
    print(f"{given.offer} costs {_usd(price)}/h, as with Windows; a daemon doubts that")


def _stock(lab: LabClient, given: argparse.Namespace) -> None:
    machines = None if given.machines == "unlimited" else int(given.machines)
    lab.stock(given.offer, machines)
    print(f"{given.offer} has {given.machines}")


def _interrupt(lab: LabClient, given: argparse.Namespace) -> None:
    machine = lab.interrupt(_machine(lab, given.machine), given.notice_s)
    print(f"{machine['id']} of {machine['offer_key']} is taken back")


def _fault(lab: LabClient, given: argparse.Namespace) -> None:
    lab.fault(given.cloud, given.operation, given.kind, None if given.always else given.count, given.seconds)
    print(f"{given.cloud} {given.operation}: {given.kind}")


def _clear(lab: LabClient, _: argparse.Namespace) -> None:
    lab.clear()
    print("no more faults")


def _console(lab: LabClient, given: argparse.Namespace) -> None:
    print(lab.console(_machine(lab, given.machine)), end="")


def _bill(lab: LabClient, _: argparse.Namespace) -> None:
    truth = lab.truth()
    for line in truth["lines"]:
        print(
            f"{line['machine']:<20} {line['offer_key']:<44} {line['seconds']} s  {_usd(line['cost_micro_usd'])}"
        )
    print(f"in all {_usd(truth['total_micro_usd'])}")


def _usd(micro_usd: int) -> str:
    return f"${micro_usd / 1e6:.4f}"


def _shutdown(lab: LabClient, _: argparse.Namespace) -> None:
    lab.shutdown()
    print("the lab ends")


def _machine(lab: LabClient, named: str) -> str:
    """The id of a machine that is named by its offer, when exactly one lives there; else what was given."""
    living: list[dict[str, Any]] = [
        machine
        for machine in lab.state()["machines"]
        if machine["offer_key"] == named and machine["state"] != "terminated"
    ]
    if "/" not in named:
        return named
    if len(living) != 1:
        raise ValueError(f"{len(living)} machines live in {named}; name one by its id")
    return str(living[0]["id"])


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab.ctl", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", type=Path, default=Path("build/lab"), help="the lab's folder")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[LabClient, argparse.Namespace], None]) -> argparse.ArgumentParser:
        added = commands.add_parser(name)
        added.set_defaults(run=run)
        return added

    command("state", _state)
    command("prices", _prices).add_argument("pattern", nargs="?", default="*")
    price = command("price", _price)
    price.add_argument("offer")
    price.add_argument("usd", help="dollars an hour, or x and a factor")
    command("doubt", _doubt).add_argument("offer", nargs="?", default=DOUBTED, help=f"of Azure; {DOUBTED}")
    stock = command("stock", _stock)
    stock.add_argument("offer")
    stock.add_argument("machines", help="a number, or unlimited")
    interrupt = command("interrupt", _interrupt)
    interrupt.add_argument("machine")
    interrupt.add_argument("--notice-s", type=int, help="on the lab's clock; default: the cloud's own")
    fault = command("fault", _fault)
    fault.add_argument("cloud")
    fault.add_argument("operation", help="the cloud's name of the call, or *")
    fault.add_argument("kind", choices=[str(kind.value) for kind in FaultKind])
    fault.add_argument("--count", type=int, default=1)
    fault.add_argument("--always", action="store_true")
    fault.add_argument("--seconds", type=float, default=0.0)
    command("clear", _clear)
    command("console", _console).add_argument("machine")
    command("bill", _bill)
    command("shutdown", _shutdown)
    return parser


if __name__ == "__main__":
    sys.exit(main())
