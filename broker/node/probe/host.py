"""Facts of the machine that need neither a driver nor torch."""

import os
import platform
import re
import resource
import shutil
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

_GIB = 1 << 30
_VENDORS = {"0x10de": "nvidia", "0x1002": "amd"}
# XIDs by what NVIDIA's catalogue and four operators' published tables do about them (data: xid_policy).
XID_REJECT = frozenset(
    (
        46,
        48,
        54,
        62,
        64,
        74,
        79,
        95,
        109,
        110,
        119,
        120,
        136,
        140,
        143,
        151,
        154,
        155,
        156,
        158,
        167,
        168,
        169,
    )
)
XID_DEGRADED = frozenset(
    (13, 31, 32, 63, 92, 93, 94, 121, 137, 144, 145, 146, 147, 148, 149, 150, 157, 159, 160, 161, 164, 165)
)
_XID = re.compile(rb"NVRM: Xid \([^)]*\): (\d+)")
_OFF_BUS = re.compile(rb"GPU has fallen off the bus|probe routine failed|RmInitAdapter failed|NVRM:.*SXid")
_KERNEL_LOG_LIMIT = 16 << 20


def host_facts(work: Path) -> Dict[str, Any]:
    """CPUs, memory, shared memory, disk under `work`, limits, kernel, and its log about GPUs."""
    shm = _statvfs_gib("/dev/shm")
    return {
        "kernel": platform.release(),
        "python": platform.python_version(),
        "cpus": _cpus(),
        "memory_gib": _memory_gib(),
        "shm_gib": shm,
        "disk_free_gib": round(shutil.disk_usage(work).free / _GIB, 2),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "locked_memory_gib": _limit_gib(resource.RLIMIT_MEMLOCK),
        "load_1m": round(os.getloadavg()[0], 2),
        "kernel_log": kernel_log(),
    }


def pci_gpus(devices: Path = Path("/sys/bus/pci/devices")) -> Dict[str, int]:
    """GPUs that the bus enumerates, by vendor: display or 3D class, or AMD's processing accelerators.

    A cloud's own emulated VGA adapter is none. This count needs no driver, so it tells a machine without a GPU
    from one whose driver is missing.
    """
    counts = {"nvidia": 0, "amd": 0}
    if not devices.is_dir():
        return counts
    for device in devices.iterdir():
        try:
            vendor = _VENDORS.get((device / "vendor").read_text().strip())
            kind = (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor and (kind.startswith("0x03") or (vendor == "amd" and kind.startswith("0x12"))):
            counts[vendor] += 1
    return counts


def kernel_log(path: str = "/dev/kmsg") -> Dict[str, Any]:
    """XIDs and lost GPUs since boot. ``readable`` is False where a container or a policy hides the log."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        return {"readable": False, "why": error.strerror}
    xids: Dict[int, int] = {}
    lost: List[str] = []
    read = 0
    try:
        while read < _KERNEL_LOG_LIMIT:
            try:
                record = os.read(handle, 8192)
            except BrokenPipeError:
                continue  # records were overwritten while we read
            except OSError as error:
                if not isinstance(error, BlockingIOError):
                    return {"readable": False, "why": error.strerror}
                break
            if not record:
                break
            read += len(record)
            for number in _XID.findall(record):
                xids[int(number)] = xids.get(int(number), 0) + 1
            if _OFF_BUS.search(record) and len(lost) < 10:
                lost.append(record.split(b";", 1)[-1].decode(errors="replace").strip()[:200])
    finally:
        os.close(handle)
    return {
        "readable": True,
        "xids": {str(number): count for number, count in sorted(xids.items())},
        "lost": lost,
    }


def _cpus() -> float:
    allowed: float = len(os.sched_getaffinity(0))
    quota, period = _cgroup_pair("cpu.max")
    return min(allowed, round(quota / period, 2)) if quota and period else allowed


def _cgroup_pair(name: str) -> Tuple[Optional[float], Optional[float]]:
    try:
        quota, period = Path("/sys/fs/cgroup", name).read_text().split()
        return float(quota), float(period)
    except (OSError, ValueError):
        return None, None  # no cgroup v2, or "max"


def _memory_gib() -> float:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):
        pass  # no limit
    return round(total / _GIB, 2)


def _statvfs_gib(path: str) -> Optional[float]:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return round(found.f_blocks * found.f_frsize / _GIB, 3)


def _limit_gib(which: int) -> Optional[float]:
    soft = resource.getrlimit(which)[0]
    return None if soft == resource.RLIM_INFINITY else round(soft / _GIB, 3)
