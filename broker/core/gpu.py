"""GPU models by exact SKU. An unknown one is quarantined by the market, never guessed.

Memory and dense throughput are the vendors' datasheet values; measured values are sustained torch.mm rates
from public benchmark collections. Sources: Lightning-AI/pytorch-lightning fabric/utilities/throughput.py,
stas00/ml-engineering compute/accelerator, zzc0721/torch-performance-test-data, NVIDIA/DCGM diag-skus.yaml.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuModel:
    """One GPU SKU.

    Attributes:
        sku: Our name: model, form factor, memory.
        family: What people write in a job file (`H100`).
        form: ``SXM``, ``PCIe`` or ``NVL``.
        memory_gib: Per GPU, as sold.
        runtime: ``cuda`` or ``rocm``.
        nvml_name: What the driver calls it; the probe compares identity with it.
        nvml_memory_mib: What the driver reports, within one per cent.
        compute_capability: CUDA compute capability or gfx name.
        bf16_tflops: Dense datasheet rate (fp16 below capability 8.0).
        measured_bf16_tflops: Sustained matmul seen in public, or None when nobody has published one.
    """

    sku: str
    family: str
    form: str
    memory_gib: int
    runtime: str
    nvml_name: str
    nvml_memory_mib: int
    compute_capability: str
    bf16_tflops: float
    measured_bf16_tflops: float | None = None

    @property
    def speed(self) -> float:
        """TFLOPS to rank by: measured where known, else 70 % of the datasheet (the usual ratio above)."""
        return self.measured_bf16_tflops or 0.7 * self.bf16_tflops


_TABLE = (
    GpuModel("T4-16GB", "T4", "PCIe", 16, "cuda", "Tesla T4", 15360, "7.5", 65, 30),
    GpuModel("V100-SXM2-16GB", "V100", "SXM", 16, "cuda", "Tesla V100-SXM2-16GB", 16160, "7.0", 125, 95),
    GpuModel("V100-SXM2-32GB", "V100", "SXM", 32, "cuda", "Tesla V100-SXM2-32GB", 32510, "7.0", 125, 84),
    GpuModel("V100-PCIe-16GB", "V100", "PCIe", 16, "cuda", "Tesla V100-PCIE-16GB", 16160, "7.0", 112),
    GpuModel("A10-24GB", "A10", "PCIe", 24, "cuda", "NVIDIA A10", 23028, "8.6", 125),
    GpuModel("A10G-24GB", "A10G", "PCIe", 24, "cuda", "NVIDIA A10G", 23028, "8.6", 70),
    GpuModel("L4-24GB", "L4", "PCIe", 24, "cuda", "NVIDIA L4", 23034, "8.9", 121),
    GpuModel("L40S-48GB", "L40S", "PCIe", 48, "cuda", "NVIDIA L40S", 46068, "8.9", 362),
    GpuModel("A100-PCIe-40GB", "A100", "PCIe", 40, "cuda", "NVIDIA A100-PCIE-40GB", 40960, "8.0", 312),
    GpuModel("A100-PCIe-80GB", "A100", "PCIe", 80, "cuda", "NVIDIA A100 80GB PCIe", 81920, "8.0", 312),
    GpuModel("A100-SXM4-40GB", "A100", "SXM", 40, "cuda", "NVIDIA A100-SXM4-40GB", 40960, "8.0", 312, 264),
    GpuModel("A100-SXM4-80GB", "A100", "SXM", 80, "cuda", "NVIDIA A100-SXM4-80GB", 81920, "8.0", 312, 264),
    GpuModel("H100-PCIe-80GB", "H100", "PCIe", 80, "cuda", "NVIDIA H100 PCIe", 81559, "9.0", 756),
    GpuModel("H100-NVL-94GB", "H100", "NVL", 94, "cuda", "NVIDIA H100 NVL", 95830, "9.0", 835),
    GpuModel("H100-SXM5-80GB", "H100", "SXM", 80, "cuda", "NVIDIA H100 80GB HBM3", 81559, "9.0", 989, 791),
    GpuModel("H200-SXM-141GB", "H200", "SXM", 141, "cuda", "NVIDIA H200", 143771, "9.0", 989),
    GpuModel("GH200-96GB", "GH200", "SXM", 96, "cuda", "NVIDIA GH200 480GB", 97871, "9.0", 989),
    GpuModel("B200-SXM-180GB", "B200", "SXM", 180, "cuda", "NVIDIA B200", 183359, "10.0", 2250),
    GpuModel("B300-SXM-288GB", "B300", "SXM", 288, "cuda", "NVIDIA B300 SXM6 AC", 275040, "10.3", 2250),
    GpuModel("MI300X-192GB", "MI300X", "SXM", 192, "rocm", "AMD Instinct MI300X", 196592, "gfx942", 1307),
    GpuModel("MI325X-256GB", "MI325X", "SXM", 256, "rocm", "AMD Instinct MI325X", 262128, "gfx942", 1307),
)

GPUS: dict[str, GpuModel] = {model.sku: model for model in _TABLE}
FAMILIES: frozenset[str] = frozenset(model.family for model in _TABLE)
