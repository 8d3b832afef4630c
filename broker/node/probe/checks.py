"""Facts to checks. Pure: every threshold of the probe is here, with where it comes from.

A check's status: ``pass``, ``degraded``, ``fail``, ``skipped`` (does not apply), ``unsupported`` (could not be
read), ``error``, ``timeout``. What could not be read never passes.
"""

from dataclasses import dataclass
from statistics import median
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from broker.node.probe.host import XID_DEGRADED, XID_REJECT
from broker.wire.messages import ProbeOrder

# One memory size within this is the same card (ECC and driver reserve differ); NVML against a published listing.
MEMORY_TOLERANCE = 0.03
# Below min_speed a GPU is degraded, below this share of it rejected: 0.90 and 0.75 (SuperBench, DCGM).
REJECT_OF_MIN_SPEED = 0.75 / 0.90
# Slowest GPU of a node to its median: five per cent is normal (stas00), 0.88 is a straggler.
STRAGGLER_DEGRADED, STRAGGLER_FAIL = 0.95, 0.88
# Last third of the load to its first: heat.
DROOP_DEGRADED, DROOP_FAIL = 0.95, 0.85
POWER_DEGRADED, POWER_FAIL = 0.98, 0.80
NCCL_SHM_GIB = 0.0625
FABRIC_DONE, FABRIC_NONE = 3, 0
# Clock event reasons (nvml.h): a hardware brake means power or heat, a software power cap is normal under load.
HW_BRAKES = 0x40 | 0x80


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes:
        id: ``room.check``.
        scope: ``node`` or ``gpu:N``.
        mandatory: A node cannot be accepted without its pass.
        action: What helps: ``none``, ``retry``, ``reboot``, ``replace``.
    """

    id: str
    status: str
    reason: str = ""
    scope: str = "node"
    mandatory: bool = True
    action: str = "none"
    value: Any = None


def all_checks(order: ProbeOrder, facts: Mapping[str, Any]) -> List[Check]:
    """Every check that the facts allow.

    Args:
        order: What was bought.
        facts: ``device``, ``host``, ``pci``, ``nvml``, ``nvml_after``, ``torch``; see `probe.run`.
    """
    found: List[Check] = []
    for part in (_identity, _health, _host, _torch, _speed):
        found.extend(part(order, facts))
    return found


def _rocm(order: ProbeOrder) -> bool:
    return order.compute_capability.startswith("gfx")


def no_gpu_at_all(facts: Mapping[str, Any]) -> bool:
    """No driver library and nothing on the bus: not a broken GPU node but no GPU node."""
    pci = facts.get("pci", {})
    return facts.get("nvml", {}).get("outcome") == "absent" and not pci.get("nvidia") and not pci.get("amd")


def _identity(order: ProbeOrder, facts: Mapping[str, Any]) -> Iterator[Check]:
    nvml, pci = facts.get("nvml", {}), facts.get("pci", {})
    outcome = nvml.get("outcome")
    if no_gpu_at_all(facts):
        yield Check(
            "identity.count", "unsupported", "no GPU driver and no GPU on the bus: nothing to verify", value=0
        )
        return
    if _rocm(order):
        yield from _count(order, pci.get("amd", 0), _torch_gpus(facts))
        return
    if outcome == "absent":
        there = pci.get("nvidia", 0)
        yield Check(
            "identity.count", "fail", f"{there} GPUs on the bus, but no driver", action="replace", value=there
        )
        return
    if outcome != "ok":
        status = "timeout" if outcome in ("timeout", "unkillable") else "fail"
        yield Check("identity.driver", status, f"driver: {nvml.get('error') or outcome}", action="replace")
        return
    gpus = nvml.get("gpus", [])
    yield from _count(order, len(gpus), _torch_gpus(facts))
    for gpu in gpus:
        yield from _identity_of(order, gpu)


def _torch_gpus(facts: Mapping[str, Any]) -> Optional[int]:
    children = facts.get("torch", {}).get("children", [])
    if facts.get("device") == "cpu" or not children:
        return None
    return sum(1 for child in children if "error" not in child["stages"].get("init", {"error": ""}))


def _count(order: ProbeOrder, seen: int, by_torch: Optional[int]) -> Iterator[Check]:
    if seen < order.gpus:
        text = f"ordered {order.gpus} {order.gpu}, the machine has {seen}"
        yield Check("identity.count", "fail", text, action="replace", value=seen)
    else:
        yield Check("identity.count", "pass", value=seen)
    if by_torch is not None and by_torch < order.gpus:
        yield Check(
            "identity.torch_count",
            "fail",
            f"torch can use {by_torch} of {order.gpus}",
            action="replace",
            value=by_torch,
        )


def _identity_of(order: ProbeOrder, gpu: Mapping[str, Any]) -> Iterator[Check]:
    scope = f"gpu:{gpu['index']}"
    if "error" in gpu:
        yield Check("identity.lost", "fail", gpu["error"], scope, action="replace")
        return
    name = gpu.get("name", "")
    same = name == order.nvml_name
    reason = "" if same else f"ordered {order.nvml_name}, got {name or 'a GPU without a name'}"
    yield Check(
        "identity.name",
        "pass" if same else "fail",
        reason,
        scope,
        action="none" if same else "replace",
        value=name,
    )
    memory = gpu.get("memory_mib")
    if memory is None or not order.nvml_memory_mib:
        yield Check(
            "identity.memory",
            "unsupported",
            "the driver does not say how much memory",
            scope,
            mandatory=False,
        )
    else:
        off = abs(memory / order.nvml_memory_mib - 1)
        text = f"{memory} MiB, expected {order.nvml_memory_mib}"
        yield _graded(
            "identity.memory", off <= MEMORY_TOLERANCE, off <= 2 * MEMORY_TOLERANCE, text, scope, memory
        )
    capability = gpu.get("compute_capability")
    if capability is not None and capability != order.compute_capability:
        text = f"compute capability {capability}, expected {order.compute_capability}"
        yield Check("identity.capability", "fail", text, scope, action="replace", value=capability)
    if gpu.get("mig", [0, 0])[0]:
        yield Check(
            "identity.mig",
            "fail",
            "the GPU is partitioned (MIG), a whole one was ordered",
            scope,
            action="replace",
        )
    if gpu.get("processes"):
        yield Check(
            "identity.busy", "fail", f"{gpu['processes']} other processes use it", scope, action="replace"
        )


def _graded(check: str, fine: bool, tolerable: bool, text: str, scope: str, value: Any) -> Check:
    if fine:
        return Check(check, "pass", scope=scope, value=value)
    return Check(
        check,
        "degraded" if tolerable else "fail",
        text,
        scope,
        action="none" if tolerable else "replace",
        value=value,
    )


def _health(order: ProbeOrder, facts: Mapping[str, Any]) -> Iterator[Check]:
    after = {gpu.get("uuid"): gpu for gpu in facts.get("nvml_after", {}).get("gpus", [])}
    for gpu in facts.get("nvml", {}).get("gpus", []):
        if "error" not in gpu:
            yield from _health_of(gpu, after.get(gpu.get("uuid")), f"gpu:{gpu['index']}", bool(after))
    log = facts.get("host", {}).get("kernel_log", {})
    if not log.get("readable") or facts.get("device") == "cpu":
        return
    xids = {int(number) for number in log.get("xids", {})}
    if xids & XID_REJECT or log.get("lost"):
        text = f"kernel log: XIDs {sorted(xids & XID_REJECT)} {' '.join(log.get('lost', [])[:2])}".strip()
        yield Check("health.kernel_log", "fail", text, action="replace", value=sorted(xids))
    elif xids & XID_DEGRADED:
        yield Check(
            "health.kernel_log",
            "degraded",
            f"kernel log: XIDs {sorted(xids & XID_DEGRADED)}",
            value=sorted(xids),
        )


def _health_of(
    gpu: Mapping[str, Any], after: Optional[Mapping[str, Any]], scope: str, reread: bool
) -> Iterator[Check]:
    if reread and after is None:
        yield Check("health.lost", "fail", "gone after the load", scope, action="replace")
        return
    last = after or gpu
    action = last.get("recovery_action")
    if action:
        yield Check(
            "health.recovery_action",
            "fail",
            f"the driver asks for recovery ({action})",
            scope,
            action="reboot",
            value=action,
        )
    if last.get("ecc_uncorrected"):
        yield Check(
            "health.ecc",
            "fail",
            f"{last['ecc_uncorrected']} uncorrected memory errors",
            scope,
            action="replace",
        )
    rise = (last.get("ecc_corrected") or 0) - (gpu.get("ecc_corrected") or 0)
    if rise > 100:
        yield Check(
            "health.ecc_rising",
            "fail",
            f"{rise} corrected memory errors during the probe",
            scope,
            action="replace",
        )
    remap = last.get("row_remap")
    if remap and (remap[2] or remap[3]):
        word = "failed" if remap[3] else "is pending"
        yield Check(
            "health.row_remap",
            "fail",
            f"row remapping {word}",
            scope,
            action="replace" if remap[3] else "reboot",
        )
    limit, default = last.get("power_limit_w"), last.get("power_default_w")
    if limit and default:
        share = limit / default
        text = f"capped at {limit:.0f} of {default:.0f} W"
        yield _graded(
            "health.power_cap", share >= POWER_DEGRADED, share >= POWER_FAIL, text, scope, round(share, 3)
        )
    if after and (after.get("throttle") or 0) & HW_BRAKES:
        yield Check(
            "health.brake",
            "degraded",
            "hardware slows it down: heat or power",
            scope,
            value=after["throttle"],
        )
    fabric = last.get("fabric")
    if fabric and fabric["state"] not in (FABRIC_NONE, FABRIC_DONE):
        yield Check(
            "health.fabric", "fail", "NVLink fabric has not come up", scope, action="retry", value=fabric
        )
    if last.get("pcie_replays", 0) - gpu.get("pcie_replays", 0) > 80:
        yield Check("health.pcie", "fail", "PCIe link errors during the probe", scope, action="replace")


def _host(order: ProbeOrder, facts: Mapping[str, Any]) -> Iterator[Check]:
    host = facts.get("host", {})
    if host.get("shm_gib") is not None and host["shm_gib"] <= NCCL_SHM_GIB and order.gpus > 1:
        yield Check(
            "host.shm", "fail", "/dev/shm is 64 MiB: NCCL needs more for several GPUs", action="replace"
        )
    if host.get("cpus", 2 * order.gpus) < 2 * order.gpus:
        text = f"{host['cpus']:g} CPUs for {order.gpus} GPUs"
        yield Check("host.cpus", "degraded", text, mandatory=False, value=host["cpus"])
    if host.get("disk_free_gib", 10) < 10:
        yield Check(
            "host.disk",
            "degraded",
            f"{host['disk_free_gib']:g} GiB free",
            mandatory=False,
            value=host["disk_free_gib"],
        )


def _torch(order: ProbeOrder, facts: Mapping[str, Any]) -> Iterator[Check]:
    torch = facts.get("torch", {})
    if torch.get("outcome") == "absent":
        yield Check(
            "torch.import",
            "unsupported",
            "no torch on this node: arithmetic, memory and speed were not checked",
        )
        return
    if torch.get("outcome") == "skipped":
        yield Check("torch.import", "skipped", torch.get("error", "not run"))
        return
    for child in torch.get("children", []):
        scope = "node" if child.get("gpu") is None else f"gpu:{child['gpu']}"
        yield from _ended(child, scope)
        for stage in ("import", "init", "exact", "memory", "sustained"):
            found = child["stages"].get(stage)
            if found is not None:
                yield _stage(stage, found, scope)


def _ended(child: Mapping[str, Any], scope: str) -> Iterator[Check]:
    where = child.get("stage")
    if child["outcome"] in ("timeout", "unkillable"):
        text = f"stage {where or 'start'} hangs"
        text += f" in {child['waiting_in']}" if child.get("waiting_in") else ""
        text += ", and the process cannot be killed" if child["outcome"] == "unkillable" else ""
        yield Check(f"torch.{where or 'start'}", "timeout", text, scope, action="replace")
    elif child.get("code", 0) and (child["code"] < 0 or where):
        text = f"died in stage {where or 'start'} with {'signal' if child['code'] < 0 else 'code'} {abs(child['code'])}"
        yield Check(f"torch.{where or 'start'}", "fail", text, scope, action="replace")


def _stage(stage: str, found: Mapping[str, Any], scope: str) -> Check:
    name = f"torch.{stage}"
    if "error" in found:
        return Check(name, "fail", found["error"], scope, action="retry" if stage == "init" else "replace")
    wrong, text = _wrong(stage, found)
    if wrong:
        return Check(name, "fail", text, scope, action="replace", value=wrong)
    return Check(name, "pass", scope=scope)


def _wrong(stage: str, found: Mapping[str, Any]) -> Tuple[int, str]:
    if stage == "exact":
        return found["wrong_rows"], f"{found['wrong_rows']} rows of an exact product are wrong"
    if stage == "memory":
        bad = {name: count for name, count in found["bad"].items() if count}
        return sum(bad.values()), f"memory does not keep what is written: {bad}"
    if stage == "sustained":
        return found["unequal"], "the same product of the same inputs differs from run to run"
    return 0, ""


def sustained_tflops(facts: Mapping[str, Any]) -> Dict[int, float]:
    """GPU to its sustained rate."""
    rates = {}
    for child in facts.get("torch", {}).get("children", []):
        found = child["stages"].get("sustained", {})
        if child.get("gpu") is not None and "sustained_tflops" in found:
            rates[child["gpu"]] = found["sustained_tflops"]
    return rates


def _speed(order: ProbeOrder, facts: Mapping[str, Any]) -> Iterator[Check]:
    """Speed is judged on GPUs only: a shared CPU varies by a quarter from run to run."""
    rates = sustained_tflops(facts)
    if facts.get("device") == "cpu" or not rates:
        return
    middle = median(rates.values())
    for gpu, rate in sorted(rates.items()):
        scope = f"gpu:{gpu}"
        if order.baseline_tflops:
            share = rate / order.baseline_tflops
            text = f"{rate:.0f} TFLOPS, {share:.0%} of {order.baseline_tflops:.0f}"
            fine, tolerable = share >= order.min_speed, share >= order.min_speed * REJECT_OF_MIN_SPEED
            yield _graded("speed.matmul", fine, tolerable, text, scope, rate)
        share = rate / middle
        text = f"{rate:.0f} TFLOPS where the node's median is {middle:.0f}"
        yield _graded(
            "speed.straggler",
            share >= STRAGGLER_DEGRADED,
            share >= STRAGGLER_FAIL,
            text,
            scope,
            round(share, 3),
        )
    for child in facts.get("torch", {}).get("children", []):
        found = child["stages"].get("sustained", {})
        if found.get("first_third_tflops") and "sustained_tflops" in found and child.get("gpu") is not None:
            share = found["sustained_tflops"] / found["first_third_tflops"]
            text = f"falls to {share:.0%} under load"
            yield _graded(
                "speed.droop",
                share >= DROOP_DEGRADED,
                share >= DROOP_FAIL,
                text,
                f"gpu:{child['gpu']}",
                round(share, 3),
            )
