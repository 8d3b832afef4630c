"""Logs: structlog, JSON or console, with the standard library's loggers routed through the same processors.

Events are named ``noun.verb`` and carry keys. Secrets are redacted here, by key and by shape, because a log line
travels further than whoever wrote it thinks.
"""

import logging
import re
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

REDACTED = "[redacted]"

# Keys whose value is secret whatever it looks like. A node's `token` alone is no secret (it is its name at the
# cloud), but a person's is, and a log line cannot tell them apart.
_SECRET_KEY = re.compile(
    r"(^|_|-)(token|secret|password|passwd|authorization|api_?key|access_?key|private_?key|secret_?key"
    r"|session_?token|credentials?|user_?data|cookie|x-api-key)$",
    re.IGNORECASE,
)
# A node's token is its public name; these keys say that it is meant.
_PUBLIC_KEYS = frozenset({"node_token"})

_SECRET_TEXT = (
    re.compile(r"(?i)\b(bearer|basic)\s+[\w~+/.=:-]{6,}"),
    re.compile(r"\bbrk_[A-Za-z0-9]{8,}"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"(?i)(x-amz-(?:signature|security-token|credential)|[?&]sig)=[^&\s\"']+"),
    re.compile(
        r"(?i)((?:secret|password|(?:access|api|private|secret)_?key|authorization|session_?token)[\"']?\s*[:=]\s*)"
        r"[\"']?[^\s\"',}]{4,}"
    ),
)


def redact(value: Any, key: str = "") -> Any:
    """`value` without secrets: whole when its key names one, else the parts of its text that look like one."""
    if key not in _PUBLIC_KEYS and _SECRET_KEY.search(key) and value not in (None, ""):
        return REDACTED
    if isinstance(value, str):
        for pattern in _SECRET_TEXT:
            value = pattern.sub(REDACTED, value)
        return value
    if isinstance(value, bytes):
        return redact(value.decode("utf-8", "replace"))
    if isinstance(value, Mapping):
        return {name: redact(item, str(name)) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redact(item) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return redact(str(value))


def redact_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Structlog processor; runs after tracebacks have become text, so that they are searched too."""
    for key, value in event.items():
        if not key.startswith("_"):
            event[key] = redact(value, key)
    return event


def configure(level: str = "info", format: str = "auto", stream: TextIO | None = None) -> None:
    """Send everything to `stream` (stderr), as JSON or for eyes; ``auto`` is for eyes on a terminal."""
    out = stream or sys.stderr
    for_eyes = format == "console" or (format == "auto" and out.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]
    renderer: Processor = (
        structlog.dev.ConsoleRenderer(colors=out.isatty())
        if for_eyes
        else structlog.processors.JSONRenderer()
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, redact_secrets, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Their request lines say nothing that our events do not, at one line a beat and node.
    for chatty in (
        "uvicorn.access",
        "httpx",
        "httpcore",
        "botocore",
        "urllib3",
        "azure",
        "msal",
    ):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    # Each token that is not given it warns of, and our events say so too.
    logging.getLogger("azure.identity").setLevel(logging.ERROR)
    # A tick whose one before still runs is skipped, as it is meant to be: at a fast clock that is most of them.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    for theirs in ("uvicorn", "uvicorn.error"):
        logging.getLogger(theirs).handlers.clear()
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
