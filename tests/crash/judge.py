"""The verdict on a run: what the clouds have billed, what the store holds, and whether the database is whole."""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

from broker.wire.head import read_head
from broker.wire.lineage import trace
from broker.wire.manifest import Ancestor, origin
from lab.demo.reference import Weights, digest
from tests.process.deployment import Deployment, count_to

CENT_MICRO_USD = 10_000


def judge_money(deployment: Deployment, jobs: list[str]) -> Iterator[str]:
    """One machine for each token, none left, and the ledger of every job is what its machines cost."""
    truth = deployment.lab.truth()
    machines = {m["id"]: m for m in deployment.machines()}
    created = [entry["data"]["machine"] for entry in truth["log"] if entry["what"] == "machine.created"]
    for token, times in Counter(token_of(machines[machine]) for machine in created).items():
        if times > 1:
            yield f"{times} machines were made for token {token}"
    for machine in machines.values():
        if machine["state"] != "terminated":
            yield f"machine {machine['id']} ({machine['offer_key']}) is left {machine['state']}"
    lines = {token_of(machines[line["machine"]]): line for line in truth["lines"]}
    nobodys = set(lines)
    for job in jobs:
        bills = {bill["segment"]["node_token"]: bill for bill in deployment.get("/ledger", job=job)["items"]}
        mine = {token for token, line in lines.items() if job in machines[line["machine"]]["labels"].values()}
        nobodys -= mine
        paid = sum(bill["paid_micro_usd"] for bill in bills.values())
        cost = sum(lines[token]["cost_micro_usd"] for token in mine)
        unbilled = sum(pending_micro_usd(deployment, machines[lines[token]["machine"]]) for token in mine)
        if not cost - CENT_MICRO_USD < paid < cost + unbilled + CENT_MICRO_USD:
            yield f"the ledger of {job} says ${paid / 1e6:.4f}, the clouds' bill ${cost / 1e6:.4f}"
            yield from account(bills, {token: lines[token] for token in mine})
    for token in nobodys:
        yield f"machine {lines[token]['machine']} belongs to no job, and cost ${lines[token]['cost_micro_usd'] / 1e6:.4f}"


def account(bills: Mapping[str, Any], lines: Mapping[str, Any]) -> Iterator[str]:
    """Node by node, where the two sides differ."""
    for token in sorted({*bills, *lines}):
        bill, line = bills.get(token), lines.get(token)
        if bill is None or line is None:
            cost = (bill or {}).get("paid_micro_usd", 0) or (line or {}).get("cost_micro_usd", 0)
            if cost:
                yield f"  {token}: ${cost / 1e6:.4f}, only in the {'bill' if bill is None else 'ledger'}"
        elif bill["paid_micro_usd"] != line["cost_micro_usd"]:
            prices = ", ".join(
                f"{p['price_micro_usd_h']} from {p['from_ms'] // 1000} to {p['to_ms'] // 1000}"
                for p in bill["lines"]
            )
            yield (
                f"  {token} {line['offer_key']}: ledger {bill['paid_micro_usd']} µ$ for {bill['billed_s']} s "
                f"({bill['why']}: {prices}); bill {line['cost_micro_usd']} µ$ for {line['seconds']} s "
                f"({line['why']}: from {line['from_s']} to {line['to_s']}, ended by {line['ended_by']})"
            )


def pending_micro_usd(deployment: Deployment, machine: Mapping[str, Any]) -> int:
    """What a machine's seconds from its creation until it ran would cost. AWS bills from when it runs, and tells only
    when it was created: so much more the ledger may say."""
    if machine["cloud"] != "aws" or machine["running_s"] is None:
        return 0
    return deployment.lab.hold_cost(machine["offer_key"], machine["created_s"], machine["running_s"])


def token_of(machine: Mapping[str, Any]) -> str:
    """What we have called it: its name where a cloud has names, else the client token."""
    return str(machine["name"] or machine["token"])


def judge_counts(deployment: Deployment, jobs: Mapping[str, int]) -> Iterator[str]:
    """Jobs that count, by the steps they were to count."""
    for job, steps in jobs.items():
        if (found := deployment.counted(job)) != count_to(steps):
            yield f"{job} has counted to {found['step']} of {steps}, and not as if nothing had happened"


def judge_weights(deployment: Deployment, jobs: list[str], script: Path, reference: Weights) -> Iterator[str]:
    """Jobs that train: the same bits as the run that nobody has disturbed."""
    for job in jobs:
        found = digest(script, deployment.restored(job))
        if found != reference:
            yield f"{job}: step {found.step}, weights {found.sha256[:16]}, and not {reference.step}, {reference.sha256[:16]}"


def judge_lines(deployment: Deployment, jobs: list[str]) -> Iterator[str]:
    """The commits that the store keeps of a job form one line: of two, the later one is of no older generation and no
    earlier step."""
    for job in jobs:
        store, prefix = deployment.store(job)
        found = read_head(store, prefix)
        commits = trace(store, prefix, found[0]).commits if found else ()
        if not commits:
            yield f"{job} has no commit"
        for newer, older in pairwise(commits):
            if place(older) > place(newer) or older.seq >= newer.seq:
                yield f"{job}: {older.manifest}, step {older.step}, was followed by {newer.manifest}, step {newer.step}"


def place(commit: Ancestor) -> tuple[int, int]:
    """Generation and step."""
    written = origin(commit.manifest)
    return written[0] if written else -1, commit.step or 0


def judge_databases(state: Path) -> Iterator[str]:
    """Whole, by SQLite's own check. The daemon must have ended."""
    for name in ("state.db", "history.db"):
        with closing(sqlite3.connect(state / name)) as rows:
            for (text,) in rows.execute("PRAGMA integrity_check"):
                if text != "ok":
                    yield f"{name}: {text}"
            for row in rows.execute("PRAGMA foreign_key_check"):
                yield f"{name}: row {row[1]} of {row[0]} refers to nothing in {row[2]}"
