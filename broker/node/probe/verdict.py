"""Checks to a verdict. Pure.

    any mandatory fail or timeout                 -> reject
    a CPU run, or a mandatory check not answered  -> inconclusive
    any degraded                                  -> degraded
    else                                          -> accept

A CPU run never verifies a GPU, however well it went.
"""

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Tuple

from broker.node.probe.checks import Check, all_checks, sustained_tflops
from broker.wire.messages import ProbeOrder

ACCEPT, DEGRADED, REJECT, INCONCLUSIVE = "accept", "degraded", "reject", "inconclusive"
EXIT_CODES = {ACCEPT: 0, DEGRADED: 1, REJECT: 2, INCONCLUSIVE: 3}

# Without a pass of these, per GPU, nothing has been verified.
_REQUIRED = ("torch.exact", "torch.memory", "torch.sustained")


@dataclass(frozen=True)
class Judgement:
    """The answer.

    Attributes:
        reasons: What speaks against an accept, worst first; empty for an accept.
        hardware_verified: Every ordered GPU did its arithmetic, memory and load checks and passed them.
        effective_tflops: Of the node: synchronous training goes at the slowest GPU. None without a GPU's rate.
    """

    verdict: str
    reasons: Tuple[str, ...]
    hardware_verified: bool
    checks: Tuple[Check, ...]
    effective_tflops: Any = None


def judge(order: ProbeOrder, facts: Mapping[str, Any]) -> Judgement:
    """What the facts say of a node that was ordered."""
    checks = all_checks(order, facts)
    on_cpu = facts.get("device") == "cpu"
    passed: Dict[str, int] = dict.fromkeys(_REQUIRED, 0)
    for check in checks:
        if check.id in passed and check.status == "pass" and check.scope != "node":
            passed[check.id] += 1
    verified = not on_cpu and all(count >= order.gpus for count in passed.values())
    failed = [check for check in checks if check.mandatory and check.status in ("fail", "timeout")]
    open_ = [
        check for check in checks if check.mandatory and check.status in ("unsupported", "skipped", "error")
    ]
    worse = [check for check in checks if check.status == "degraded"]
    reasons: List[str] = [_line(check) for check in failed + open_ + worse]
    if on_cpu:
        reasons.append("run on the CPU: no GPU has been verified")
    elif not verified and not failed and not open_:
        reasons.append("not every GPU has finished its checks")
    if failed:
        verdict = REJECT
    elif open_ or not verified:
        verdict = INCONCLUSIVE
    else:
        verdict = DEGRADED if worse else ACCEPT
    rates = sustained_tflops(facts)
    effective = round(order.gpus * min(rates.values()), 3) if rates and not on_cpu else None
    return Judgement(verdict, tuple(reasons), verified and not failed, tuple(checks), effective)


def _line(check: Check) -> str:
    where = "" if check.scope == "node" else f" ({check.scope.replace(':', ' ')})"
    return f"{check.id}{where}: {check.reason or check.status}"
