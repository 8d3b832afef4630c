"""The agent's own log: one line an event on standard error, ``noun.verb key=value``; user-data sends it to a file."""

import sys

from broker.node.lease import boot_s


def say(event: str, **facts: object) -> None:
    """Write one line. Never pass a secret, a token or store keys: the file may be read by the job."""
    words = " ".join(f"{name}={str(value)[:500]!r}" for name, value in facts.items())
    print(f"{boot_s():.3f} {event} {words}".rstrip(), file=sys.stderr, flush=True)
