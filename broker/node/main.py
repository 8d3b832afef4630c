"""``python3 agent.pyz``: the agent. ``deadman``, ``probe`` and ``probe-child`` are the same file's other lives."""

import json
import os
import sys
from pathlib import Path
from typing import List, Optional

_USAGE = "usage: agent.pyz [agent | deadman | probe --order FILE --out FILE [--device cpu|cuda|auto]]"


def main(argv: Optional[List[str]] = None) -> int:
    """Run one of the agent's lives; returns its exit code. Each imports only what it needs."""
    arguments = sys.argv[1:] if argv is None else argv
    life = arguments[0] if arguments else "agent"
    if life == "agent":
        from broker.node.agent import main as run_agent

        return run_agent(os.environ)
    if life == "deadman":
        from broker.node.lease import main as run_dead_man

        return run_dead_man(os.environ)
    if life == "probe":
        return _probe(arguments[1:])
    if life == "probe-child":
        return _probe_child(arguments[1:])
    print(_USAGE, file=sys.stderr)
    return 2


def _probe(arguments: List[str]) -> int:
    import argparse
    import tempfile

    from broker.node.config import write_atomically
    from broker.node.probe.run import run_probe
    from broker.node.probe.verdict import EXIT_CODES
    from broker.wire.messages import ProbeOrder, decode

    parser = argparse.ArgumentParser(
        prog="agent.pyz probe", description="Check this machine's GPUs against an order."
    )
    parser.add_argument("--order", type=Path, required=True, help="JSON: profile, gpu, gpus, nvml_name, ...")
    parser.add_argument("--out", type=Path, required=True, help="where the report goes")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    options = parser.parse_args(arguments)
    try:
        order = decode(ProbeOrder, json.loads(options.order.read_text()))
    except (OSError, ValueError) as error:
        print(f"{options.order}: {error}", file=sys.stderr)
        return 64
    with tempfile.TemporaryDirectory(prefix="gpu-probe-") as work:
        report = run_probe(order, Path(work), options.device)
    write_atomically(options.out, json.dumps(report, indent=1).encode(), mode=0o644)
    print(f"{report['verdict']}: {'; '.join(report['reasons']) or 'all checks passed'}")
    sys.stdout.flush()
    return EXIT_CODES[report["verdict"]]


def _probe_child(arguments: List[str]) -> int:
    if arguments[:1] == ["nvml"]:
        from broker.node.probe import nvml
        from broker.node.probe.stages import Stages

        return 0 if Stages(Path(arguments[1]), faults={}).run("nvml", nvml.read) else 1
    if arguments[:1] == ["torch"]:
        from broker.node.probe import torch_child

        return torch_child.main(arguments[1:], os.environ)
    print(_USAGE, file=sys.stderr)
    return 2
