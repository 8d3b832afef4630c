"""Rare states that a whole run must have reached: a checker that was never asked proves nothing."""

from collections import Counter

from tests.sim.faults import Kind

REQUIRED = (
    "reply lost after create",
    "reply lost after delete",
    "late create arrived",
    "late delete arrived",
    "a create arrived after its row was closed",
    "a row was given up and its machine exists",
    "the collector ended an orphan",
    "look-up before the listing shows it",
    "crash before commit",
    "crash after commit",
    "crash before create",
    "crash after create",
    "crash between create and its result",
    "crash before delete",
    "crash after delete",
    "crash between delete and its result",
    "crash at the store",
    "crash after fence",
    "a commit failed on a full disk",
    "power loss took the last prices",
    "a replaced daemon stopped",
    "a database was restored from a backup",
    "a restored database is in report-only mode",
    "a node that the restored rows do not know was refused",
    "cas reply lost after the write",
    "late write to the store arrived",
    "late write to the store refused by its condition",
    "restore fell back over a corrupt chunk",
    "a zombie was refused by HEAD",
    "a zombie trained beside the new copy",
    "a run lease ran out",
    "the dead-man switch ended a machine",
    "a move was carried out",
    "a gang was released because one node failed",
    "recoveries reached their cap",
    "partial poll",
    "the end of a meter was inferred",
)


def missing(counts: Counter[Kind], reached: Counter[str], each_kind: int) -> list[str]:
    """What a whole run has not seen, or a kind of fault that struck too rarely."""
    never = [name for name in REQUIRED if not reached[name]]
    rare = [f"{kind}: {counts[kind]} times, {each_kind} wanted" for kind in Kind if counts[kind] < each_kind]
    return never + rare
