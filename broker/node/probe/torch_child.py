"""Torch stages of the probe, in a process of their own: one a GPU, or one for a CPU run of the same code, smaller.

*exact*: ternary inputs {-1, 0, 1} of density 1/16 keep every partial sum a small integer, so the product is exact
in any order of reduction, also in bf16 and fp16 with split-K. Freivalds' check verifies the full size in O(n²):
C·r == A·(B·r) for 16 random 0/1 vectors in float64; a wrong row escapes with 2^-16. C == round(C) finds the flip
that turns a zero into a denormal, which float64 sums swallow.

*memory*: patterns and addresses, written and read back in chunks, so that the comparison's own memory stays small.

*sustained*: random normal inputs (zeros draw less power and run 15 % faster), pre-allocated output; the product of
fixed inputs must also stay bit-equal all along.
"""

import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple

from broker.node.probe.stages import Stages

_VECTORS = 16
_SEED = 20_08_17
_CHUNK_BYTES = 1 << 30
# bf16 has no tensor cores below this; torch emulates it at a fortieth of the speed.
_BF16_CAPABILITY = (8, 0)


class Size(NamedTuple):
    """How much a stage does.

    Attributes:
        exact_n: Rows of the exact product.
        memory_share: Of the free memory; 0 means `memory_bytes`.
        matmul_n: Rows of the sustained product.
        sustained_s: How long it runs.
    """

    exact_n: int
    memory_share: float
    memory_bytes: int
    matmul_n: int
    sustained_s: float


SIZES = {
    ("cpu", "quick"): Size(512, 0.0, 64 << 20, 512, 0.6),
    ("cpu", "standard"): Size(1024, 0.0, 256 << 20, 1024, 3.0),
    ("cuda", "quick"): Size(4096, 0.0, 8 << 30, 8192, 3.0),
    ("cuda", "standard"): Size(8192, 0.9, 0, 8192, 20.0),
}


class TorchProbe:
    """The stages over one device. Torch is imported by the first of them.

    Args:
        device: ``cpu`` or ``cuda``; on CUDA the supervisor lets this process see one GPU only.
        profile: ``quick`` or ``standard``.
    """

    def __init__(self, device: str, profile: str, stages: Stages) -> None:
        self._device = device
        self._size = SIZES[device, profile]
        self._stages = stages
        self._torch: Any = None
        self._dtype: Any = None

    def run(self) -> int:
        """All stages; the first that fails ends it, except that bad memory does not hide wrong arithmetic."""
        run = self._stages.run
        if not run("import", self._import) or not run("init", self._init):
            return 1
        fine = run("exact", self._exact)
        fine = run("memory", self._memory) and fine
        return 0 if run("sustained", self._sustained) and fine else 1

    def _import(self) -> Dict[str, Any]:
        import torch

        self._torch = torch
        return {"torch": torch.__version__, "built_for": torch.version.cuda or torch.version.hip or "cpu"}

    def _init(self) -> Dict[str, Any]:
        torch = self._torch
        if self._device == "cpu":
            torch.set_num_threads(max(1, min(4, torch.get_num_threads())))
            self._dtype = torch.float32
            return {"name": "cpu", "threads": torch.get_num_threads(), "dtype": "float32"}
        if not torch.cuda.is_available():
            torch.zeros(1, device="cuda")  # raises the reason, which is_available() swallows
        # Exactness in half precision must not hang on how partial sums are reduced.
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        found = torch.cuda.get_device_properties(0)
        capability = torch.cuda.get_device_capability(0)
        self._dtype = torch.bfloat16 if capability >= _BF16_CAPABILITY or torch.version.hip else torch.float16
        free, total = torch.cuda.mem_get_info()
        return {
            "name": found.name,
            "visible": torch.cuda.device_count(),
            "capability": getattr(found, "gcnArchName", "").split(":")[0] or "{}.{}".format(*capability),
            "architectures": torch.cuda.get_arch_list(),
            "multiprocessors": found.multi_processor_count,
            "memory_mib": total >> 20,
            "free_mib": free >> 20,
            "dtype": str(self._dtype).rsplit(".", 1)[-1],
        }

    def _generator(self, seed: int) -> Any:
        # Always on the CPU: the same bits for every GPU, whatever its own generator would make.
        return self._torch.Generator(device="cpu").manual_seed(seed)

    def _exact(self) -> Dict[str, Any]:
        torch, n = self._torch, self._size.exact_n
        generator = self._generator(_SEED)

        def ternary() -> Any:
            uniform = torch.rand(n, n, generator=generator)
            return (uniform < 1 / 32).to(torch.int8) - (uniform > 31 / 32).to(torch.int8)

        a, b = ternary(), ternary()
        found: Dict[str, Any] = {"n": n, "wrong_rows": 0}
        for dtype in {self._dtype, torch.float32, torch.bfloat16 if self._device == "cpu" else self._dtype}:
            product = (a.to(self._device).to(dtype) @ b.to(self._device).to(dtype)).cpu().double()
            if self._stages.wrong("exact"):
                product[n // 3, n // 5] += 1
            found["wrong_rows"] += self._wrong_rows(a, b, product)
        return found

    def _wrong_rows(self, a: Any, b: Any, product: Any) -> int:
        torch = self._torch
        vectors = torch.randint(0, 2, (a.shape[0], _VECTORS), generator=self._generator(_SEED + 1)).double()
        differs = (product @ vectors != a.double() @ (b.double() @ vectors)).any(dim=1)
        return int((differs | (product != product.round()).any(dim=1)).sum())

    def _memory(self) -> Dict[str, Any]:
        torch = self._torch
        size = self._size.memory_bytes
        if self._device == "cuda":
            free = torch.cuda.mem_get_info()[0]
            size = (
                int(free * self._size.memory_share) if self._size.memory_share else min(size, int(free * 0.9))
            )
        chunk = min(_CHUNK_BYTES, size) // 8
        chunks = [
            torch.empty(chunk, dtype=torch.int64, device=self._device)
            for _ in range(max(1, size // 8 // chunk))
        ]
        bad: Dict[str, int] = {}
        for name, pattern in (("00", 0), ("FF", -1), ("55", 0x5555555555555555), ("AA", -0x5555555555555556)):
            for part in chunks:
                part.fill_(pattern)
            bad[name] = sum(int((part != pattern).sum()) for part in chunks)
        # Each word its own address, all written before any is read: finds lines that are wired together.
        for index, part in enumerate(chunks):
            torch.arange(index * chunk, (index + 1) * chunk, out=part)
        bad["address"] = 0
        for index, part in enumerate(chunks):
            expected = torch.arange(
                index * chunk, (index + 1) * chunk, dtype=torch.int64, device=self._device
            )
            bad["address"] += int((part != expected).sum())
            del expected
        return {"bytes": len(chunks) * chunk * 8, "bad": bad}

    def _sustained(self) -> Dict[str, Any]:
        torch, n = self._torch, self._size.matmul_n
        if self._device == "cuda":
            torch.cuda.empty_cache()
        generator = self._generator(_SEED + 2)
        a, b = (torch.randn(n, n, generator=generator).to(self._dtype).to(self._device) for _ in range(2))
        out = torch.empty(n, n, dtype=self._dtype, device=self._device)
        first = torch.mm(a, b)
        times = self._time(lambda: torch.mm(a, b, out=out), self._size.sustained_s)
        # Compared at the end and not in between: the comparison's own work would cool the device.
        unequal = sum(int(not torch.equal(torch.mm(a, b), first)) for _ in range(3)) + int(
            not torch.equal(out, first)
        )
        rates = [2 * n**3 / seconds / 1e12 for seconds in times]
        third = max(1, len(rates) // 3)
        return {
            "n": n,
            "runs": len(rates),
            "dtype": str(self._dtype).rsplit(".", 1)[-1],
            "best_tflops": round(max(rates), 4),
            "sustained_tflops": round(statistics.fmean(rates[-third:]), 4),
            "first_third_tflops": round(statistics.fmean(rates[:third]), 4),
            "cv": round(statistics.pstdev(rates) / statistics.fmean(rates), 4),
            "unequal": unequal,
        }

    def _time(self, call: Callable[[], Any], seconds: float) -> List[float]:
        """Seconds of each call. On CUDA batches are timed by events, so that launches do not count."""
        torch = self._torch
        call()
        times: List[float] = []
        if self._device == "cpu":
            end_s = time.perf_counter() + seconds
            while not times or time.perf_counter() < end_s:
                before_s = time.perf_counter()
                call()
                times.append(time.perf_counter() - before_s)
            return times
        torch.cuda.synchronize()
        batch = 10
        end_s = time.perf_counter() + seconds
        while not times or time.perf_counter() < end_s:
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            for _ in range(batch):
                call()
            after.record()
            after.synchronize()
            times.append(before.elapsed_time(after) / 1000 / batch)
        return times


def main(arguments: List[str], environ: Mapping[str, str]) -> int:
    """``probe-child torch DEVICE PROFILE EVENTS``."""
    device, profile, events = arguments
    if (device, profile) not in SIZES:
        print(f"no such probe: {device} {profile}", file=sys.stderr)
        return 2
    stages = Stages(Path(events), faults=environ if device == "cpu" else {})
    return TorchProbe(device, profile, stages).run()
