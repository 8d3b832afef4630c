"""systemd notifications over a real socket."""

import socket

from broker.serve.notify import Notifier


def test_ready_once_then_watchdog(tmp_path):
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(2)
        notifier = Notifier({"NOTIFY_SOCKET": address})
        notifier.ready("serving")
        notifier.ready("serving")
        notifier.pass_finished("12 jobs")
        notifier.stopping()
        heard = [systemd.recv(1000).decode() for _ in range(3)]
    assert heard == ["READY=1\nSTATUS=serving", "WATCHDOG=1\nSTATUS=12 jobs", "STOPPING=1"]
    notifier.pass_finished("the supervisor has gone")


def test_without_systemd_nothing_happens():
    Notifier({}).ready("serving")


def test_a_supervisor_that_reads_nothing_holds_nobody_up(tmp_path):
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        notifier = Notifier({"NOTIFY_SOCKET": address})
        for _ in range(1000):  # many times what the kernel keeps
            notifier.pass_finished("reconciling")
