"""On the daemon: packs the agent into one file and writes the user-data that boots it.

The file is a zipapp of `broker.node` and `broker.wire`, the same to the byte wherever it is built from the same
sources: user-data pins its hash, and a request that is resent after a lost reply must be equal.
"""

import io
import json
import zipfile
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PACKED = ("broker/node", "broker/wire")
# The daemon's own part; no node needs it.
_LEFT_OUT = ("broker/node/bundle.py",)
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MAIN = "import sys\nfrom broker.node.main import main\nsys.exit(main())\n"
_INIT = '"""The part of the GPU capacity broker that runs on a node."""\n'


def build_agent() -> bytes:
    """``agent.pyz``: sorted names, fixed times and modes, no compression level that a zlib could differ in."""
    names = {"__main__.py": _MAIN.encode(), "broker/__init__.py": _INIT.encode()}
    for folder in _PACKED:
        for path in (_ROOT / folder).rglob("*.py"):
            name = path.relative_to(_ROOT).as_posix()
            if name not in _LEFT_OUT:
                names[name] = path.read_bytes()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(names):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            archive.writestr(entry, names[name])
    return packed.getvalue()


def user_data(
    public_url: str,
    token: str,
    ca_pem: str,
    agent_sha256: str,
    cloud: str = "",
    notice_s: float = 30.0,
    notice_poll_s: float = 5.0,
    give_up_s: float = 900.0,
) -> str:
    """The script that a node runs at its first boot. Equal arguments give equal bytes.

    Args:
        public_url: Where nodes reach the daemon.
        token: One-time token of the node.
        ca_pem: Authority to trust for it; empty trusts the system's.
        agent_sha256: Of `build_agent`'s bytes.
        cloud: Whose notices to listen for.
        notice_s: Notice to count on, in node seconds; notice_poll_s: interval of asking.
        give_up_s: A node that cannot fetch its agent, or never gets a beat through, ends itself after this.
    """
    config = {
        "url": public_url,
        "token": token,
        "ca_pem": ca_pem,
        "cloud": cloud,
        "notice_s": notice_s,
        "notice_poll_s": notice_poll_s,
        "first_dead_man_s": give_up_s,
    }
    text = json.dumps(config, sort_keys=True, indent=1)
    for fixed in (text, agent_sha256):
        assert _HEREDOC not in fixed, "nothing in the configuration may end its own here-document"
    return (
        _SCRIPT.replace("@CONFIG@", text)
        .replace("@SHA256@", agent_sha256)
        .replace("@GIVE_UP_S@", str(int(give_up_s) or 1))
    )


_HEREDOC = "END_OF_BROKER"

# Runs as root on a cloud's image, and unprivileged where BROKER_NODE_HOME says where it may write.
# A second run (a reboot, a retry of cloud-init) must not start a second agent: the lock is held by the agent.
_SCRIPT = r"""#!/bin/bash
# Boots the agent of the GPU capacity broker. See docs/internals/node.md.
set -u
umask 077
export BROKER_NODE_HOME="${BROKER_NODE_HOME:-/var/lib/gpu-broker}"
mkdir -p "$BROKER_NODE_HOME" && cd "$BROKER_NODE_HOME" || exit 1
exec 9>boot.lock
if command -v flock >/dev/null; then flock -n 9 || exit 0; fi

rm -f config.json  # whatever was there before may be open to others
cat >config.json <<'END_OF_BROKER'
@CONFIG@
END_OF_BROKER

cat >fetch.py <<'END_OF_BROKER'
import hashlib, json, os, ssl, sys, time, urllib.request
config = json.load(open("config.json"))
context = ssl.create_default_context(cadata=config["ca_pem"] or None)
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
give_up, pause = time.monotonic() + @GIVE_UP_S@, 1.0
while time.monotonic() < give_up:
    try:
        data = opener.open(config["url"].rstrip("/") + "/agent/v1/agent.pyz?sha256=@SHA256@", timeout=15).read()
        found = hashlib.sha256(data).hexdigest()
        if found != "@SHA256@":
            raise ValueError("agent.pyz has hash " + found)
        with open("agent.pyz.new", "wb") as file:
            file.write(data)
        os.replace("agent.pyz.new", "agent.pyz")
        sys.exit(0)
    except Exception as error:
        print("fetching the agent:", error, file=sys.stderr, flush=True)
    time.sleep(min(pause, max(0.0, give_up - time.monotonic())))
    pause = min(2 * pause, 8.0)
sys.exit(1)
END_OF_BROKER

if ! python3 fetch.py >>agent.log 2>&1; then
  # Nobody can reach this machine: it must not be billed for ever.
  while true; do shutdown -P now; sleep 10; done
fi
setsid python3 agent.pyz deadman >>agent.log 2>&1 </dev/null 9>&- &
setsid python3 agent.pyz >>agent.log 2>&1 </dev/null &
exit 0
"""
