"""`broker probe`: the GPU check of the nodes, on this machine."""

import json
import sys
from typing import Annotated, Any

import typer

from broker.cli.options import GPUS_MAX, whole
from broker.cli.output import AsJson, say, show_fields, show_table
from broker.core.errors import BrokerError, UsageError
from broker.core.gpu import GPUS


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(probe)


def probe(
    profile: Annotated[str, typer.Option(help="quick or standard.")] = "quick",
    gpu: Annotated[
        str | None, typer.Option(help="SKU that should be here; default: what the driver names.")
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole("--count", 1, GPUS_MAX),
            help="GPUs that should be here; default: all that are.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Probe this machine and print the report. Exit 0 accept, 1 otherwise; without a GPU it is inconclusive."""
    if profile not in ("quick", "standard"):
        raise UsageError(f"no profile {profile!r}", hint="profiles: quick, standard")
    if gpu is not None and gpu not in GPUS:
        raise UsageError(f"no GPU {gpu!r}", hint=f"known: {', '.join(GPUS)}")
    report = _probe_here(profile, gpu, count)
    if as_json:
        json.dump(report, sys.stdout, indent=2 if sys.stdout.isatty() else None)
        print()
    else:
        _show(report)
    if report["verdict"] != "accept":
        raise typer.Exit(BrokerError.exit_code)


def _probe_here(profile: str, gpu: str | None, count: int | None) -> dict[str, Any]:
    """Run the agent's own command in its own process: a driver that kills it must not kill us."""
    import subprocess
    import tempfile
    from pathlib import Path

    present = _gpus_here()
    if gpu is None and not present:
        say("no GPU that we know is here: this checks the machine and torch, and can verify nothing")
    model = GPUS[gpu or (present[0] if present else next(iter(GPUS)))]
    order = {
        "profile": profile,
        "gpu": model.sku,
        "gpus": count or max(1, len(present)),
        "nvml_name": model.nvml_name,
        "nvml_memory_mib": model.nvml_memory_mib,
        "compute_capability": model.compute_capability,
        "baseline_tflops": model.measured_bf16_tflops,
    }
    with tempfile.TemporaryDirectory(prefix="gpu-probe-") as folder:
        wanted, found = Path(folder) / "order.json", Path(folder) / "report.json"
        wanted.write_text(json.dumps(order))
        command = [sys.executable, "-m", "broker.node", "probe", "--order", str(wanted), "--out", str(found)]
        done = subprocess.run(command, capture_output=True, text=True)
        if not found.exists():
            raise BrokerError(
                f"the probe ended with {done.returncode} and no report: {done.stderr.strip()[-500:]}"
            )
        report: dict[str, Any] = json.loads(found.read_text())
        return report


def _gpus_here() -> list[str]:
    """SKUs by the driver's own tool; empty without one. Only for the default of `--gpu`: the probe looks for itself."""
    import shutil
    import subprocess

    if shutil.which("nvidia-smi") is None:
        return []
    try:
        names = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
        ).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return []
    by_name = {model.nvml_name: sku for sku, model in GPUS.items()}
    return [by_name[name.strip()] for name in names if name.strip() in by_name]


def _show(report: dict[str, Any]) -> None:
    show_fields(
        [
            ("verdict", report["verdict"]),
            ("hardware verified", "yes" if report["hardware_verified"] else "no"),
            ("device", report["device"]),
            ("driver", report["host"].get("driver")),
            ("torch", report["host"].get("torch")),
            ("TFLOPS", report["effective"]["tflops_node"]),
            ("took", f"{report['wall_s']} s"),
        ]
    )
    show_table(
        ("CHECK", "WHERE", "STATUS", "REASON"),
        ((check["id"], check["scope"], check["status"], check["reason"]) for check in report["checks"]),
    )
    for reason in report["reasons"]:
        say(reason)
