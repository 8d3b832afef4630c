"""The probe: verdicts from facts, a driver library that is really loaded, children that hang, real torch."""

import copy
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from broker.node.probe import nvml
from broker.node.probe.host import host_facts, kernel_log, pci_gpus
from broker.node.probe.run import report, run_probe
from broker.node.probe.supervisor import Child, supervise
from broker.node.probe.verdict import EXIT_CODES, judge
from broker.wire.messages import ProbeOrder

ORDER = ProbeOrder(
    "standard",
    "H100-SXM5-80GB",
    8,
    "NVIDIA H100 80GB HBM3",
    81559,
    "9.0",
    baseline_tflops=790.0,
    timeout_s=60.0,
)


def healthy() -> dict[str, Any]:
    """Facts as a healthy 8xH100 node should give them. Made by hand: they have not been recorded on one."""
    gpu = {
        "name": "NVIDIA H100 80GB HBM3",
        "memory_mib": 81559,
        "compute_capability": "9.0",
        "mig": [0, 0],
        "processes": 0,
        "ecc_uncorrected": 0,
        "ecc_corrected": 0,
        "row_remap": [0, 0, 0, 0],
        "recovery_action": 0,
        "power_limit_w": 700.0,
        "power_default_w": 700.0,
        "throttle": 0x4,
        "fabric": {"state": 3, "status": 0},
        "pcie_replays": 0,
    }
    stages = {
        "import": {"torch": "2.13.0"},
        "init": {"name": "NVIDIA H100 80GB HBM3", "capability": "9.0"},
        "exact": {"n": 8192, "wrong_rows": 0},
        "memory": {"bytes": 72 << 30, "bad": {"00": 0, "address": 0}},
        "sustained": {"sustained_tflops": 770.0, "first_third_tflops": 775.0, "unequal": 0},
    }
    gpus = [gpu | {"index": index, "uuid": f"GPU-{index}"} for index in range(8)]
    children = [
        {"gpu": index, "outcome": "exit", "code": 0, "stage": None, "stages": copy.deepcopy(stages)}
        for index in range(8)
    ]
    return {
        "device": "cuda",
        "host": {
            "cpus": 96,
            "shm_gib": 900.0,
            "disk_free_gib": 500.0,
            "kernel_log": {"readable": True, "xids": {}, "lost": []},
        },
        "pci": {"nvidia": 8, "amd": 0},
        "nvml": {"outcome": "ok", "gpus": gpus},
        "nvml_after": {"outcome": "ok", "gpus": copy.deepcopy(gpus)},
        "torch": {"outcome": "ok", "children": children},
    }


def changed(path: str, value: Any) -> dict[str, Any]:
    facts = healthy()
    at: Any = facts
    *way, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    for part in way:
        at = at[part]
    at[last] = value
    return facts


def without_gpu_7() -> dict[str, Any]:
    facts = healthy()
    for gone in (facts["nvml"]["gpus"], facts["nvml_after"]["gpus"], facts["torch"]["children"]):
        gone.pop()
    facts["pci"]["nvidia"] = 8  # on the bus, but the driver does not show it
    return facts


def hanging(outcome: str) -> dict[str, Any]:
    facts = healthy()
    child = facts["torch"]["children"][3]
    child |= {"outcome": outcome, "code": None, "stage": "init", "waiting_in": "D os_acquire_rwlock_write"}
    child["stages"] = {"import": {}}
    return facts


def on_cpu(**nvml_facts: Any) -> dict[str, Any]:
    facts = healthy()
    facts |= {
        "device": "cpu",
        "nvml": {"outcome": "absent", "error": "no library"} | nvml_facts,
        "nvml_after": {},
    }
    facts["pci"] = {"nvidia": 0, "amd": 0}
    facts["torch"]["children"] = [facts["torch"]["children"][0] | {"gpu": None}]
    return facts


def no_torch(facts: dict[str, Any]) -> dict[str, Any]:
    return facts | {"torch": {"outcome": "absent", "children": []}}


CASES = [
    ("healthy", healthy(), "accept", ""),
    ("seven of eight", without_gpu_7(), "reject", "ordered 8 H100-SXM5-80GB, the machine has 7"),
    ("another model", changed("nvml/gpus/2/name", "NVIDIA H100 PCIe"), "reject", "identity.name (gpu 2): ordered NVIDIA H100 80GB HBM3, got NVIDIA H100 PCIe"),
    ("another memory", changed("nvml/gpus/0/memory_mib", 49140), "reject", "49140 MiB, expected 81559"),
    ("a little less memory", changed("nvml/gpus/0/memory_mib", 78000), "degraded", "identity.memory"),
    ("another capability", changed("nvml/gpus/0/compute_capability", "8.0"), "reject", "compute capability 8.0"),
    ("partitioned", changed("nvml/gpus/1/mig", [1, 1]), "reject", "MIG"),
    ("somebody else's work", changed("nvml/gpus/1/processes", 2), "reject", "2 other processes"),
    ("lost at the first look", changed("nvml/gpus/5", {"index": 5, "error": "GPU is lost"}), "reject", "GPU is lost"),
    ("driver mismatch", changed("nvml", {"outcome": "error", "error": "Driver/library version mismatch"}), "reject", "mismatch"),
    ("driver hangs", changed("nvml", {"outcome": "unkillable", "error": "the driver does not answer"}), "reject", "does not answer"),
    ("no driver for what is on the bus", changed("nvml", {"outcome": "absent"}), "reject", "8 GPUs on the bus, but no driver"),
    ("slow by a fifth", changed("torch/children/4/stages/sustained/sustained_tflops", 640.0), "reject", "speed.straggler (gpu 4)"),
    ("a slow node", changed("torch/children/0/stages/sustained/sustained_tflops", 700.0), "degraded", "speed.matmul (gpu 0): 700 TFLOPS, 89% of 790"),
    ("droops", changed("torch/children/0/stages/sustained/first_third_tflops", 850.0), "degraded", "falls to 91% under load"),
    ("wrong arithmetic", changed("torch/children/6/stages/exact/wrong_rows", 1), "reject", "torch.exact (gpu 6): 1 rows"),
    ("bad memory", changed("torch/children/6/stages/memory/bad", {"55": 3}), "reject", "memory does not keep"),
    ("not deterministic", changed("torch/children/6/stages/sustained/unequal", 1), "reject", "differs from run to run"),
    ("CUDA does not start", changed("torch/children/6/stages/init", {"error": "CUDA error 802"}), "reject", "802"),
    ("a child that died", changed("torch/children/6", {"gpu": 6, "outcome": "exit", "code": -11, "stage": "exact", "stages": {}}), "reject", "died in stage exact with signal 11"),
    ("hangs", hanging("timeout"), "reject", "torch.init (gpu 3): stage init hangs in D os_acquire_rwlock_write"),
    ("unkillable", hanging("unkillable"), "reject", "cannot be killed"),
    ("row remapping pending", changed("nvml_after/gpus/3/row_remap", [0, 1, 1, 0]), "reject", "row remapping is pending"),
    ("uncorrected errors", changed("nvml_after/gpus/3/ecc_uncorrected", 2), "reject", "2 uncorrected"),
    ("errors rise under load", changed("nvml_after/gpus/3/ecc_corrected", 500), "reject", "500 corrected"),
    ("power capped to half", changed("nvml_after/gpus/3/power_limit_w", 350.0), "reject", "capped at 350 of 700 W"),
    ("power capped a little", changed("nvml_after/gpus/3/power_limit_w", 650.0), "degraded", "capped at 650"),
    ("power brake", changed("nvml_after/gpus/3/throttle", 0x80), "degraded", "heat or power"),
    ("driver asks for a reboot", changed("nvml_after/gpus/3/recovery_action", 2), "reject", "asks for recovery"),
    ("fabric not up", changed("nvml_after/gpus/3/fabric", {"state": 2, "status": 0}), "reject", "fabric"),
    ("gone after the load", changed("nvml_after/gpus/3/uuid", "GPU-other"), "reject", "gone after the load"),
    ("XID 79 since boot", changed("host/kernel_log/xids", {"79": 1}), "reject", "XIDs [79]"),
    ("XID 63 since boot", changed("host/kernel_log/xids", {"63": 1}), "degraded", "XIDs [63]"),
    ("XID of an application", changed("host/kernel_log/xids", {"43": 9}), "accept", ""),
    ("no shared memory", changed("host/shm_gib", 0.0625), "reject", "/dev/shm"),
    ("few CPUs", changed("host/cpus", 8), "degraded", "8 CPUs for 8 GPUs"),
    ("no torch", no_torch(healthy()), "inconclusive", "no torch on this node"),
    ("no torch and seven of eight", no_torch(without_gpu_7()), "reject", "has 7"),
    ("no GPU at all", on_cpu(), "inconclusive", "no GPU driver and no GPU on the bus"),
    ("no GPU and no torch", no_torch(on_cpu()), "inconclusive", "no torch"),
    ("a driver without GPUs", on_cpu(outcome="ok", gpus=[]), "reject", "the machine has 0"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "verdict", "reason"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_verdict(facts: dict[str, Any], verdict: str, reason: str) -> None:
    found = judge(ORDER, facts)
    assert found.verdict == verdict, found.reasons
    assert reason in " | ".join(found.reasons)
    assert bool(found.reasons) == (verdict != "accept")
    assert found.hardware_verified == (verdict in ("accept", "degraded"))


def test_a_cpu_run_never_verifies_a_gpu() -> None:
    facts = on_cpu()
    facts["torch"]["children"] *= 8
    found = judge(ProbeOrder("quick", "T4-16GB", 1, "Tesla T4", 15360, "7.5", baseline_tflops=1e-9), facts)
    assert found.verdict == "inconclusive"
    assert not found.hardware_verified
    assert found.effective_tflops is None


def test_the_slowest_gpu_counts_and_a_missing_baseline_rejects_nobody() -> None:
    facts = healthy()
    for child in facts["torch"]["children"]:
        child["stages"]["sustained"] |= {"sustained_tflops": 100.0, "first_third_tflops": 100.0}
    facts["torch"]["children"][2]["stages"]["sustained"]["sustained_tflops"] = 98.0
    plain = ProbeOrder("standard", ORDER.gpu, 8, ORDER.nvml_name, ORDER.nvml_memory_mib, "9.0")
    assert judge(plain, facts).verdict == "accept"
    assert judge(plain, facts).effective_tflops == 784.0
    assert judge(ORDER, facts).verdict == "reject"


def test_the_report_is_json_and_says_what_was_compared() -> None:
    document = json.loads(json.dumps(report(ORDER, healthy(), wall_s=58.2)))
    assert document["schema"] == "gpu-probe/1"
    assert document["effective"] == {"tflops_node": 6160.0, "baseline_tflops": 790.0, "comparable": True}
    assert {check["status"] for check in document["checks"]} == {"pass"}


def test_host_facts_and_the_bus(tmp_path: Path) -> None:
    facts = host_facts(tmp_path)
    assert facts["cpus"] >= 1
    assert facts["memory_gib"] > 0
    for name, vendor, kind in (
        ("a", "0x10de", "0x030200"),
        ("b", "0x10de", "0x040300"),
        ("c", "0x1d0f", "0x030000"),
        ("d", "0x1002", "0x120000"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    assert pci_gpus(tmp_path) == {"nvidia": 1, "amd": 1}, (
        "neither an audio function nor a cloud's own display"
    )
    log = tmp_path / "kmsg"
    log.write_text("6,1,2,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n")
    assert kernel_log(str(log)) == {
        "readable": True,
        "xids": {"79": 1},
        "lost": ["NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."],
    }
    assert not kernel_log(str(tmp_path / "none"))["readable"]


# A driver library for two GPUs, so that loading, calling and reading back through ctypes is real.
LIBRARY = r"""
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, sub; char bus_id[32]; } pci_t;
typedef struct { unsigned id, scope; long long at, latency; int type, result; union { double d; unsigned u; unsigned long long ull; } value; } field_t;
int nvmlInit_v2(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 3 ? "Not Supported" : "GPU is lost"; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12040; return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "550.54", size); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu) { if (index == 1) return 15; *gpu = (void *)0x7f00000000a0; return 0; }
int nvmlDeviceGetName(void *gpu, char *text, unsigned size) { if (gpu != (void *)0x7f00000000a0) return 2; strncpy(text, "NVIDIA H100 80GB HBM3", size); return 0; }
int nvmlDeviceGetUUID(void *gpu, char *text, unsigned size) { strncpy(text, "GPU-1", size); return 0; }
int nvmlDeviceGetPciInfo_v3(void *gpu, pci_t *pci) { memset(pci, 0, sizeof *pci); strcpy(pci->bus_id, "00000000:3B:00.0"); return 0; }
int nvmlDeviceGetMemoryInfo(void *gpu, memory_t *memory) { memory->total = 81559ULL << 20; return 0; }
int nvmlDeviceGetCudaComputeCapability(void *gpu, int *major, int *minor) { *major = 9; *minor = 0; return 0; }
int nvmlDeviceGetMigMode(void *gpu, unsigned *now, unsigned *then) { *now = 0; *then = 1; return 0; }
int nvmlDeviceGetEccMode(void *gpu, unsigned *now, unsigned *then) { return 3; }
int nvmlDeviceGetTotalEccErrors(void *gpu, int kind, int counter, unsigned long long *count) { *count = kind == 1 ? 5ULL << 33 : 0; return 0; }
int nvmlDeviceGetRemappedRows(void *gpu, unsigned *a, unsigned *b, unsigned *c, unsigned *d) { *a = 1; *b = 2; *c = 0; *d = 1; return 0; }
int nvmlDeviceGetFieldValues(void *gpu, int count, field_t *field) { field->result = 0; field->value.u = field->id == 230 ? 2 : 99; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *count, void *infos) { *count = 3; return 7; }
int nvmlDeviceGetEnforcedPowerLimit(void *gpu, unsigned *milliwatt) { *milliwatt = 699500; return 0; }
"""


@pytest.mark.process
def test_a_driver_library_is_read_through_ctypes(tmp_path: Path) -> None:
    (tmp_path / "nvml.c").write_text(LIBRARY)
    library = tmp_path / "libnvidia-ml.so.1"
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "nvml.c"], check=True)
    except FileNotFoundError:
        pytest.skip("no C compiler")
    facts = nvml.Nvml([str(library)]).facts()
    assert (facts["driver"], facts["cuda"]) == ("550.54", "12.4")
    first, second = facts["gpus"]
    assert second == {"index": 1, "error": "nvmlDeviceGetHandleByIndex_v2: GPU is lost"}
    expected = {
        "name": "NVIDIA H100 80GB HBM3",
        "pci": "00000000:3B:00.0",
        "memory_mib": 81559,
        "compute_capability": "9.0",
        "mig": [0, 1],
        "ecc_uncorrected": 5 << 33,
        "row_remap": [1, 2, 0, 1],
        "recovery_action": 2,
        "processes": 3,
        "power_limit_w": 699.5,
    }
    assert {name: first[name] for name in expected} == expected
    assert "ecc" not in first, "what is not supported is no fact"
    assert any("ecc: nvmlDeviceGetEccMode: Not Supported" in line for line in first["unsupported"])
    assert any("fabric" in line for line in first["unsupported"])


def test_a_machine_without_a_driver_says_so() -> None:
    with pytest.raises(nvml.NvmlAbsent):
        nvml.Nvml(["libno-such-library.so"])


def child(tmp_path: Path, code: str, limits_s: dict[str, float] | None = None) -> Child:
    folder = tmp_path / "child"
    argv = [sys.executable, "-c", code, str(folder / "events.jsonl")]
    return Child("test", argv, os.environ, folder, limits_s or {})


STAGE = 'import sys, time; open(sys.argv[1], \'a\').write(\'{"stage": "init", "event": "start"}\\n\'); '


@pytest.mark.process
def test_a_hanging_child_is_stopped_and_its_stage_is_named(tmp_path: Path) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + STAGE + "time.sleep(600)"
    one = child(tmp_path, stubborn, {"init": 0.3})
    began = time.monotonic()
    supervise([one], timeout_s=30.0)
    assert time.monotonic() - began < 5
    assert (one.outcome, one.stage, one.code) == ("timeout", "init", -9)
    assert one.facts()["waiting_in"].startswith("S")


@pytest.mark.process
def test_a_child_in_the_kernel_is_killed_with_its_own_children(tmp_path: Path) -> None:
    # A parent of vfork() waits in state D until its child is gone.
    blocked = STAGE + "import ctypes; c = ctypes.CDLL(None)\nif c.vfork() == 0: c.sleep(600); c._exit(0)"
    one = child(tmp_path, blocked)
    supervise([one], timeout_s=1.0)
    assert one.outcome == "timeout"
    assert one.facts()["waiting_in"].startswith("D")


@pytest.mark.process
def test_a_child_that_leaves_something_behind_does_not_keep_us(tmp_path: Path) -> None:
    one = child(
        tmp_path, "import subprocess; subprocess.Popen(['sleep', '600']); print('bye'); raise SystemExit(3)"
    )
    supervise([one], timeout_s=20.0)
    assert (one.outcome, one.code) == ("exit", 3)
    assert one.facts()["output"] == "bye\n"


QUICK = ProbeOrder("quick", "H100-SXM5-80GB", 8, "NVIDIA H100 80GB HBM3", 81559, "9.0", timeout_s=60.0)


@pytest.mark.process
def test_a_real_probe_on_the_cpu(tmp_path: Path) -> None:
    found = run_probe(QUICK, tmp_path / "probe", device="cpu")
    assert found["verdict"] == "inconclusive"
    assert not found["hardware_verified"]
    assert "no GPU has been verified" in " ".join(found["reasons"])
    stages = found["children"][0]["stages"]
    assert set(stages) == {"import", "init", "exact", "memory", "sustained"}
    assert stages["exact"]["wrong_rows"] == 0
    assert stages["sustained"]["unequal"] == 0
    assert not found["effective"]["comparable"]


@pytest.mark.process
def test_wrong_arithmetic_is_seen(tmp_path: Path) -> None:
    env = {**os.environ, "BROKER_PROBE_WRONG_IN": "exact"}
    found = run_probe(QUICK, tmp_path / "probe", device="cpu", environ=env)
    assert found["verdict"] == "reject"
    assert "rows of an exact product are wrong" in found["reasons"][0]


@pytest.mark.process
def test_a_hang_is_named_in_the_verdict(tmp_path: Path) -> None:
    order = ProbeOrder("quick", ORDER.gpu, 8, ORDER.nvml_name, ORDER.nvml_memory_mib, "9.0", timeout_s=8.0)
    env = {**os.environ, "BROKER_PROBE_HANG_IN": "memory"}
    found = run_probe(order, tmp_path / "probe", device="cpu", environ=env)
    assert found["verdict"] == "reject"
    assert "stage memory hangs" in found["reasons"][0]
    assert found["children"][0]["stages"]["exact"]["wrong_rows"] == 0, "what was found before is kept"


@pytest.mark.process
def test_the_command_writes_a_report_and_exits_by_verdict(tmp_path: Path) -> None:
    order = tmp_path / "order.json"
    order.write_text(json.dumps(vars(QUICK)))
    argv = [
        "-m",
        "broker.node",
        "probe",
        "--order",
        str(order),
        "--out",
        str(tmp_path / "report.json"),
        "--device",
        "cpu",
    ]
    done = subprocess.run([sys.executable, *argv], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == EXIT_CODES["inconclusive"] == 3
    assert done.stdout.startswith("inconclusive: ")
    assert json.loads((tmp_path / "report.json").read_text())["verdict"] == "inconclusive"
