"""The GPU check before a job may start here: `gpu-probe/1`. Explained in docs/internals/probe.md.

run.py          what is done in which order; the report
supervisor.py   children under time limits that hold even when a driver hangs
host.py         the machine, without torch
nvml.py         the driver, through ctypes, in a child
torch_child.py  torch, in one child a GPU
checks.py       facts to checks; verdict.py: checks to a verdict. Pure
"""
