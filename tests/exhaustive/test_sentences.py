"""What people read: every event that the protocol writes in these lives, with its reasons, as in `sentences.txt`.

A changed sentence is no mistake, but nobody should change one without seeing it. After a change that is meant:

    python -m tests.exhaustive.test_sentences
"""

import re
from pathlib import Path

from broker.core.model import Event
from tests.exhaustive.cases import calm
from tests.exhaustive.scenarios import SCENARIOS

SENTENCES = Path(__file__).with_name("sentences.txt")
_SUMMARIES = re.compile(r"^(starts on|restarts on|moves to) .*")
_NUMBERS = re.compile(r"\b\d[\d.,]*\b")


def sentence(event: Event) -> str:
    """One event without the numbers of this one life: its kind, what it names, its reason, what else it tells."""
    named = {
        "project": event.project_id, "job": event.job_id, "placement": event.placement_id, "node": event.node_token,
    }  # fmt: skip
    names = " ".join(name for name, value in named.items() if value is not None)
    told = " ".join(sorted(set(event.data) - {"reason"}))
    reason = _SUMMARIES.sub(r"\1 ...", str(event.data.get("reason", "")))
    return f"{event.kind} [{names}] ({told}) by {event.actor}: {_NUMBERS.sub('N', reason)}".rstrip(": ")


def sentences() -> list[str]:
    """All of them, over all lives in which nothing goes wrong. What policies and agents say is told elsewhere."""
    lives = (calm(scenario, False).end for scenario in SCENARIOS.values())
    events = (event for life in lives for event in life.disk_now().events)
    return sorted({sentence(e) for e in events if e.actor == "broker" and not e.kind.startswith("decision.")})


def test_every_sentence_is_known() -> None:
    assert sentences() == SENTENCES.read_text().splitlines()


if __name__ == "__main__":
    SENTENCES.write_text("\n".join(sentences()) + "\n")
