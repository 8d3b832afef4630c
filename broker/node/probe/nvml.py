"""NVIDIA's management library through ctypes: what the driver says of each GPU. Runs in a child, since it can hang.

Structures and constants are those of ``nvml.h`` (CUDA 12 and 13). What a GPU or driver does not support is left
out of the facts: a check then says ``unsupported``, never ``pass``.
"""

import ctypes
from typing import Any, Callable, Dict, List, Optional

LIBRARIES = ("libnvidia-ml.so.1", "libnvidia-ml.so")
_BUFFER = 96
_INSUFFICIENT_SIZE = 7
_FI_RECOVERY_ACTION = 230
_CLOCK_SM = 1


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Pci(ctypes.Structure):
    _fields_ = [
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("device_id", ctypes.c_uint),
        ("subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    ]


class _FieldUnion(ctypes.Union):
    _fields_ = [("double", ctypes.c_double), ("uint", ctypes.c_uint), ("ulonglong", ctypes.c_ulonglong)]


class _FieldValue(ctypes.Structure):
    _fields_ = [
        ("field_id", ctypes.c_uint),
        ("scope_id", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency_us", ctypes.c_longlong),
        ("value_type", ctypes.c_int),
        ("result", ctypes.c_int),
        ("value", _FieldUnion),
    ]


class _Fabric(ctypes.Structure):
    _fields_ = [
        ("cluster_uuid", ctypes.c_ubyte * 16),
        ("status", ctypes.c_int),
        ("clique_id", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
    ]


class NvmlAbsent(Exception):
    """There is no driver library on this machine."""


class NvmlError(Exception):
    """The library is there and refuses: driver not loaded, version mismatch, GPU lost."""


class Nvml:
    """An initialised library.

    Raises:
        NvmlAbsent: no such library.
        NvmlError: it does not initialise.
    """

    def __init__(self, names: Any = LIBRARIES) -> None:
        self._library = _load(names)
        self._check("nvmlInit_v2")

    def facts(self) -> Dict[str, Any]:
        """Driver and every GPU it sees."""
        cuda = ctypes.c_int()
        self._check("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(cuda))
        count = ctypes.c_uint()
        self._check("nvmlDeviceGetCount_v2", ctypes.byref(count))
        return {
            "driver": self._text("nvmlSystemGetDriverVersion"),
            "cuda": f"{cuda.value // 1000}.{cuda.value % 1000 // 10}",
            "gpus": [self._gpu(index) for index in range(count.value)],
        }

    def _gpu(self, index: int) -> Dict[str, Any]:
        handle = ctypes.c_void_p()
        try:
            self._check("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        except NvmlError as error:
            return {"index": index, "error": str(error)}
        readers: Dict[str, Callable[[ctypes.c_void_p], Any]] = {
            "name": lambda gpu: self._text("nvmlDeviceGetName", gpu),
            "uuid": lambda gpu: self._text("nvmlDeviceGetUUID", gpu),
            "pci": self._pci,
            "memory_mib": self._memory_mib,
            "compute_capability": self._capability,
            "mig": lambda gpu: self._numbers("nvmlDeviceGetMigMode", gpu, 2),
            "ecc": lambda gpu: self._numbers("nvmlDeviceGetEccMode", gpu, 2),
            "ecc_uncorrected": lambda gpu: self._counter("nvmlDeviceGetTotalEccErrors", gpu, 1, 0),
            "ecc_corrected": lambda gpu: self._counter("nvmlDeviceGetTotalEccErrors", gpu, 0, 0),
            "row_remap": lambda gpu: self._numbers("nvmlDeviceGetRemappedRows", gpu, 4),
            "recovery_action": self._recovery_action,
            "processes": self._processes,
            "temperature_c": lambda gpu: self._counter32("nvmlDeviceGetTemperature", gpu, 0),
            "power_limit_w": lambda gpu: self._milli("nvmlDeviceGetEnforcedPowerLimit", gpu),
            "power_default_w": lambda gpu: self._milli("nvmlDeviceGetPowerManagementDefaultLimit", gpu),
            "throttle": lambda gpu: self._wide("nvmlDeviceGetCurrentClocksThrottleReasons", gpu),
            "sm_mhz": lambda gpu: self._counter32("nvmlDeviceGetClockInfo", gpu, _CLOCK_SM),
            "sm_max_mhz": lambda gpu: self._counter32("nvmlDeviceGetMaxClockInfo", gpu, _CLOCK_SM),
            "pcie_replays": lambda gpu: self._numbers("nvmlDeviceGetPcieReplayCounter", gpu, 1)[0],
            "fabric": self._fabric,
        }
        facts: Dict[str, Any] = {"index": index}
        unsupported: List[str] = []
        for name, reader in readers.items():
            try:
                facts[name] = reader(handle)
            except NvmlError as error:
                unsupported.append(f"{name}: {error}")
        facts["unsupported"] = unsupported
        return facts

    def _check(self, function: str, *arguments: Any, also: Optional[int] = None) -> None:
        try:
            call = getattr(self._library, function)
        except AttributeError as error:
            raise NvmlError(f"{function} is not in this driver") from error
        code = call(*arguments)
        if code not in (0, also):
            raise NvmlError(f"{function}: {self._error_text(code)}")

    def _error_text(self, code: int) -> str:
        try:
            self._library.nvmlErrorString.restype = ctypes.c_char_p
            text: bytes = self._library.nvmlErrorString(code)
        except AttributeError:
            return f"error {code}"
        return text.decode(errors="replace")

    def _text(self, function: str, *arguments: Any) -> str:
        buffer = ctypes.create_string_buffer(_BUFFER)
        self._check(function, *arguments, buffer, ctypes.c_uint(_BUFFER))
        return buffer.value.decode(errors="replace")

    def _numbers(self, function: str, gpu: ctypes.c_void_p, count: int) -> List[int]:
        values = [ctypes.c_uint() for _ in range(count)]
        self._check(function, gpu, *(ctypes.byref(value) for value in values))
        return [value.value for value in values]

    def _counter(self, function: str, gpu: ctypes.c_void_p, *which: int) -> int:
        value = ctypes.c_ulonglong()
        self._check(function, gpu, *which, ctypes.byref(value))
        return value.value

    def _counter32(self, function: str, gpu: ctypes.c_void_p, which: int) -> int:
        value = ctypes.c_uint()
        self._check(function, gpu, which, ctypes.byref(value))
        return value.value

    def _wide(self, function: str, gpu: ctypes.c_void_p) -> int:
        value = ctypes.c_ulonglong()
        self._check(function, gpu, ctypes.byref(value))
        return value.value

    def _milli(self, function: str, gpu: ctypes.c_void_p) -> float:
        return self._numbers(function, gpu, 1)[0] / 1000

    def _pci(self, gpu: ctypes.c_void_p) -> str:
        pci = _Pci()
        self._check("nvmlDeviceGetPciInfo_v3", gpu, ctypes.byref(pci))
        return bytes(pci.bus_id).decode(errors="replace")

    def _memory_mib(self, gpu: ctypes.c_void_p) -> int:
        memory = _Memory()
        self._check("nvmlDeviceGetMemoryInfo", gpu, ctypes.byref(memory))
        return int(memory.total) >> 20

    def _capability(self, gpu: ctypes.c_void_p) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check("nvmlDeviceGetCudaComputeCapability", gpu, ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def _recovery_action(self, gpu: ctypes.c_void_p) -> int:
        field = _FieldValue(field_id=_FI_RECOVERY_ACTION)
        self._check("nvmlDeviceGetFieldValues", gpu, 1, ctypes.byref(field))
        if field.result != 0:
            raise NvmlError(f"recovery action: {self._error_text(field.result)}")
        return int(field.value.uint)

    def _processes(self, gpu: ctypes.c_void_p) -> int:
        # Asked with room for none, it says how many there are; their owners are none of our business.
        count = ctypes.c_uint(0)
        self._check(
            "nvmlDeviceGetComputeRunningProcesses_v3", gpu, ctypes.byref(count), None, also=_INSUFFICIENT_SIZE
        )
        return count.value

    def _fabric(self, gpu: ctypes.c_void_p) -> Dict[str, int]:
        fabric = _Fabric()
        self._check("nvmlDeviceGetGpuFabricInfo", gpu, ctypes.byref(fabric))
        return {"state": fabric.state, "status": fabric.status}


def _load(names: Any) -> ctypes.CDLL:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise NvmlAbsent(f"none of {', '.join(names)} can be loaded")


def read() -> Dict[str, Any]:
    """Facts with ``outcome``: ``ok``, ``absent`` or ``error``. Never raises for a driver's sake."""
    try:
        return {"outcome": "ok", **Nvml().facts()}
    except NvmlAbsent as error:
        return {"outcome": "absent", "error": str(error)}
    except NvmlError as error:
        return {"outcome": "error", "error": str(error)}
