"""One probe from order to report: host and driver first, torch children after, the driver again, the verdict."""

import os
import platform
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from broker.node.probe.host import host_facts, pci_gpus
from broker.node.probe.supervisor import Child, supervise
from broker.node.probe.verdict import judge
from broker.wire.messages import ProbeOrder

SCHEMA = "gpu-probe/1"
# Seconds a stage may take before it counts as hanging; "" is the start of the interpreter.
_LIMITS_S = {
    "": 30.0,
    "import": 90.0,
    "init": 60.0,
    "exact": 60.0,
    "memory": 60.0,
    "sustained": 60.0,
    "nvml": 20.0,
}
# Left in the folder where broker.node can be imported from: a source tree or agent.pyz itself.
_IMPORT_ROOT = str(Path(__file__).parents[3])


def child_argv(*arguments: str) -> List[str]:
    """Command line of this same agent, whether it runs from agent.pyz or from an installed package."""
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); from broker.node.main import main; sys.exit(main())"
    )
    return [sys.executable, "-c", code, _IMPORT_ROOT, *arguments]


def run_probe(
    order: ProbeOrder, work: Path, device: str = "auto", environ: Optional[Mapping[str, str]] = None
) -> Dict[str, Any]:
    """Check this machine against an order.

    Args:
        work: Folder for the children's files; emptied first.
        device: ``cuda``, ``cpu``, or ``auto``: CUDA where the bus or the driver shows a GPU.

    Returns:
        The report, ``gpu-probe/1``.
    """
    env = dict(os.environ if environ is None else environ)
    start_s = time.monotonic()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    facts: Dict[str, Any] = {"host": host_facts(work), "pci": pci_gpus()}
    facts["nvml"] = _read_nvml(work / "nvml", env)
    gpus = facts["nvml"].get("gpus", [])
    if device == "auto":
        device = "cuda" if gpus or any(facts["pci"].values()) else "cpu"
    facts["device"] = device
    left_s = order.timeout_s - (time.monotonic() - start_s)
    facts["torch"] = _run_torch(order, work, device, gpus, env, max(1.0, left_s))
    if gpus:
        facts["nvml_after"] = _read_nvml(work / "nvml-after", env)
    return report(order, facts, time.monotonic() - start_s)


def report(order: ProbeOrder, facts: Mapping[str, Any], wall_s: float) -> Dict[str, Any]:
    """The document of facts and verdict; the same facts give the same verdict wherever they come from."""
    judgement = judge(order, facts)
    torch = facts.get("torch", {})
    first = torch.get("children", [{}])[0].get("stages", {}) if torch.get("children") else {}
    return {
        "schema": SCHEMA,
        "profile": order.profile,
        "device": facts.get("device"),
        "wall_s": round(wall_s, 2),
        "order": {"gpu": order.gpu, "count": order.gpus},
        "host": {
            **facts.get("host", {}),
            "machine": platform.machine(),
            "driver": facts.get("nvml", {}).get("driver"),
            "cuda": facts.get("nvml", {}).get("cuda"),
            "torch": first.get("import", {}).get("torch"),
        },
        "nvml": facts.get("nvml", {}).get("outcome"),
        "gpus": facts.get("nvml", {}).get("gpus", []),
        "children": torch.get("children", []),
        "checks": [asdict(check) for check in judgement.checks],
        "effective": {
            "tflops_node": judgement.effective_tflops,
            "baseline_tflops": order.baseline_tflops,
            "comparable": facts.get("device") == "cuda",
        },
        "verdict": judgement.verdict,
        "hardware_verified": judgement.hardware_verified,
        "reasons": list(judgement.reasons),
    }


def _read_nvml(folder: Path, env: Mapping[str, str]) -> Dict[str, Any]:
    child = Child(
        "nvml", child_argv("probe-child", "nvml", str(folder / "events.jsonl")), env, folder, _LIMITS_S
    )
    supervise([child], _LIMITS_S["nvml"] + 10)
    found = child.facts()
    stage: Dict[str, Any] = found["stages"].get("nvml", {})
    if child.outcome != "exit":
        return {"outcome": child.outcome, "error": f"the driver does not answer {child.waiting_in}".strip()}
    if "outcome" not in stage:
        return {
            "outcome": "error",
            "error": stage.get("error") or f"the driver's library died with {child.code}",
        }
    return stage


def _run_torch(
    order: ProbeOrder,
    work: Path,
    device: str,
    gpus: List[Dict[str, Any]],
    env: Mapping[str, str],
    timeout_s: float,
) -> Dict[str, Any]:
    if not _torch_is_there(env):
        return {"outcome": "absent", "children": []}
    profile = order.profile if order.profile in ("quick", "standard") else "standard"
    targets: List[Optional[Dict[str, Any]]] = [None]
    if device == "cuda":
        # Without a driver's list (ROCm) torch's own numbering has to do.
        targets = list(gpus) or [{"index": index} for index in range(order.gpus)]
    children = [_torch_child(work, device, profile, gpu, env) for gpu in targets]
    supervise(children, timeout_s)
    again = [index for index, child in enumerate(children) if _flaked(child)]
    for index in again:
        # CUDA's initialisation fails now and then and stays failed in its process; a fresh one tells (Modal: 0.1 %).
        children[index] = _torch_child(work, device, profile, targets[index], env, suffix="-again")
    if again:
        supervise([children[index] for index in again], timeout_s)
    return {
        "outcome": "ok",
        "children": [
            {"gpu": None if gpu is None else gpu["index"], **child.facts()}
            for gpu, child in zip(targets, children)  # noqa: B905  strict= is newer than Python 3.9
        ],
    }


def _torch_child(
    work: Path,
    device: str,
    profile: str,
    gpu: Optional[Dict[str, Any]],
    env: Mapping[str, str],
    suffix: str = "",
) -> Child:
    name = "cpu" if gpu is None else f"gpu-{gpu['index']}"
    folder = work / f"torch-{name}{suffix}"
    own = dict(env)
    if gpu is not None:
        one = str(gpu.get("uuid") or gpu["index"])
        own["CUDA_VISIBLE_DEVICES"] = one
        own.setdefault("HIP_VISIBLE_DEVICES", str(gpu["index"])) if "uuid" not in gpu else None
    argv = child_argv("probe-child", "torch", device, profile, str(folder / "events.jsonl"))
    return Child(f"torch {name}", argv, own, folder, _LIMITS_S)


def _flaked(child: Child) -> bool:
    init = child.facts()["stages"].get("init", {})
    return child.outcome == "exit" and "error" in init


def _torch_is_there(env: Mapping[str, str]) -> bool:
    """Whether our interpreter could import torch, without the seconds that importing it takes."""
    from importlib.util import find_spec

    return find_spec("torch") is not None
