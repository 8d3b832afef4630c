"""What can go wrong between us and a checkpoint store.

WireError
├── StoreFailed             the store did not do it, or did not say; the text says which request and what to do
│   └── UnknownWrite        the reply of a conditional write was lost: it may have happened, or may still happen
├── PreconditionFailed      a conditional write lost: the object is not (or no longer) what the writer saw
├── Fenced                  HEAD carries another generation: this copy of the job must not commit
│   └── NewerGeneration     HEAD is ahead of the generation that was to be fenced
├── LostRace                somebody of our own generation swapped HEAD first; read it again, then retry
├── Damaged                 bytes in the store are missing or do not match their hash, and were read twice
└── SourceChanged           a file changed while it was being committed: it was not complete yet
"""


class WireError(Exception):
    """Something went wrong between us and a checkpoint store."""


class StoreFailed(WireError):
    """The store did not do it, or did not say."""


class UnknownWrite(StoreFailed):
    """The reply of a conditional write was lost: it may have happened, or may still happen. Read and compare."""


class PreconditionFailed(WireError):
    """A conditional write lost: the object is not what the writer saw."""


class Fenced(WireError):
    """HEAD carries another generation: this copy of the job must not commit."""


class NewerGeneration(Fenced):
    """HEAD is ahead of the generation that was to be fenced."""


class LostRace(WireError):
    """Somebody of our own generation swapped HEAD first; read it again, then retry."""


class Damaged(WireError):
    """Bytes in the store are missing or do not match their hash, and were read twice.

    Attributes:
        key: Of the object, relative to the job's prefix.
    """

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}")
        self.key = key
        self.why = why


class SourceChanged(WireError):
    """A file changed while it was being committed: it was not complete yet."""
