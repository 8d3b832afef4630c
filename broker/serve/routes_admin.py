"""``/api/v1``: who am I, tokens, the pause switch, policies, doctor."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Body
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from broker import __version__
from broker.core.audit import Audit
from broker.core.errors import UsageError
from broker.policy.schema import Mode, Policy
from broker.serve.auth import Author, Broker, Operator, Viewer, make_token
from broker.serve.views import Listing, TokenView, token_view
from broker.store.access import DEFAULT_PROJECT, PAUSED, REPORT_ONLY, Role

router = APIRouter(prefix="/api/v1")


@dataclass(frozen=True)
class SwitchOn:
    """A switch that is on.

    Attributes:
        name: ``paused`` or ``report_only``.
        set_by: A token's name; ``broker`` for the daemon itself.
    """

    name: str
    reason: str
    set_by: str
    set_at_ms: int


@dataclass(frozen=True)
class Whoami:
    """The caller and the daemon that answers.

    Attributes:
        installation_id: What every machine of this daemon is tagged with.
        switches: Those that are on, with who turned them and why.
    """

    name: str
    role: Role
    project_id: str
    version: str
    paused: bool
    report_only: bool
    installation_id: str
    switches: tuple[SwitchOn, ...]
    at_ms: int


@dataclass(frozen=True)
class Resumed:
    """What `resume` has changed, and what still keeps the daemon from renting.

    Attributes:
        ended: Whether there was a pause; else nothing was written.
    """

    ended: bool
    report_only: bool


@dataclass(frozen=True)
class Cleared:
    """What clearing report-only has changed, and what still keeps the daemon from renting.

    Attributes:
        cleared: Whether it was latched; else nobody was asked and nothing was written.
        audit: What will be done now; null when nothing was latched.
    """

    cleared: bool
    paused: bool
    audit: Audit | None


# Names of tokens and projects: short, printable, safe in a table and in a path.
_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}$"


@dataclass(frozen=True)
class NewToken:
    """What to make. The project is made with it when it is new."""

    role: str
    name: Annotated[str, Field(pattern=_NAME)] | None = None
    project_id: Annotated[str, Field(pattern=_NAME)] = DEFAULT_PROJECT


@dataclass(frozen=True)
class MadeToken:
    """A token as it is shown once and never again."""

    token: str
    about: TokenView


@dataclass(frozen=True)
class PolicyView:
    """A policy in force."""

    name: str
    file: str
    sha256: str
    mode: Mode
    precedence: int
    description: str


@dataclass(frozen=True)
class PolicyMistake:
    """Why a file, or its newest edit, is not in force."""

    message: str
    file: str | None
    line: int | None
    column: int | None
    hint: str | None


@dataclass(frozen=True)
class PolicyState:
    """The policy folder as it was read last; after a reload also what changed."""

    policies: tuple[PolicyView, ...]
    mistakes: tuple[PolicyMistake, ...]
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """One line of `broker doctor`; `ok` is null when it could not be checked."""

    subject: str
    name: str
    ok: bool | None
    detail: str


@router.get("/whoami", tags=["access"])
def whoami(viewer: Viewer, broker: Broker) -> Whoami:
    """The caller, as the daemon sees it."""
    with broker.store.read() as tx:
        on = tuple(SwitchOn(s.name, s.reason, s.set_by, s.set_at_ms) for s in tx.switches() if s.value)
    names = {switch.name for switch in on}
    return Whoami(
        viewer.name,
        viewer.role,
        viewer.project_id,
        __version__,
        PAUSED in names,
        REPORT_ONLY in names,
        broker.store.installation_id,
        on,
        broker.clock.now_ms(),
    )


@router.get("/tokens", tags=["access"])
def tokens(_operator: Operator, broker: Broker) -> Listing[TokenView]:
    """All tokens, revoked ones too."""
    with broker.store.read() as tx:
        rows = tx.tokens()
    return Listing(at_ms=broker.clock.now_ms(), items=[token_view(token) for token in rows])


@router.post("/tokens", tags=["access"], status_code=201)
def create_token(wanted: NewToken, operator: Operator, broker: Broker) -> MadeToken:
    """A new token. Only its hash is kept, so this answer is the only place where it can be read."""
    with broker.store.write() as tx:
        secret, row = make_token(tx, broker.ids, wanted.role, wanted.name, wanted.project_id, operator.name)
    return MadeToken(secret, token_view(row))


@router.delete("/tokens/{name}", tags=["access"])
def revoke_token(name: str, operator: Operator, broker: Broker) -> TokenView:
    """End a token; again is no error."""
    with broker.store.write() as tx:
        if name == operator.name:
            others = [
                t for t in tx.tokens() if t.role == Role.OPERATOR and not t.revoked_at_ms and t.name != name
            ]
            if not others:
                raise UsageError("this is the last operator token", hint="create another one first")
        row = tx.revoke_token(name, operator.name)
    return token_view(row)


@router.post("/pause", tags=["switches"], status_code=204)
def pause(operator: Operator, broker: Broker, reason: Annotated[str, Body(embed=True)] = "") -> None:
    """No new effect that costs money. What runs goes on."""
    with broker.store.write() as tx:
        tx.set_switch(PAUSED, True, by=operator.name, reason=reason)
    broker.wake()


@router.post("/resume", tags=["switches"])
def resume(operator: Operator, broker: Broker) -> Resumed:
    """End the pause, and only that: report-only stays as it is."""
    with broker.store.write() as tx:
        ended = tx.set_switch(PAUSED, False, by=operator.name)
        report_only = tx.switch(REPORT_ONLY)
    broker.wake()
    return Resumed(ended, report_only)


@router.post("/report-only/clear", tags=["switches"])
async def clear_report_only(
    operator: Operator, broker: Broker, reason: Annotated[str, Body(embed=True)]
) -> Cleared:
    """An operator has looked: this database is the one to go on with. Its rows catch up with the world.

    A pause stays. The audit in the answer is what will be done now; a cloud that could not be asked may latch it again.
    """
    with broker.store.read() as tx:
        latched, paused = tx.switch(REPORT_ONLY), tx.switch(PAUSED)
    if not latched:
        return Cleared(False, paused, None)
    audit = await broker.clear_report_only(operator.name, reason)
    broker.wake()
    return Cleared(True, paused, audit)


# Policies live on the daemon's loop (`PolicySet` is not safe for threads), so these two are coroutines.
@router.get("/policies", tags=["policies"])
async def policies(_viewer: Viewer, broker: Broker) -> PolicyState:
    """Policies in force, and mistakes in their folder."""
    return _state(broker.policies.policies, broker.policies.errors)


@router.post("/policies/reload", tags=["policies"])
async def reload_policies(_author: Author, broker: Broker) -> PolicyState:
    """Read the folder now. A broken edit leaves the policy before it in force."""
    found = broker.policies.reload()
    state = _state(broker.policies.policies, found.errors)
    broker.wake()
    return PolicyState(state.policies, state.mistakes, found.added, found.changed, found.removed)


@router.get("/doctor", tags=["health"])
async def doctor(_operator: Operator, broker: Broker) -> Listing[Finding]:
    """Checks that only the daemon can make: clouds, store, clock, policies. Calls the clouds."""
    checks = await run_in_threadpool(broker.checks)
    items = [Finding(subject, check.name, check.ok, check.detail) for subject, check in checks]
    return Listing(at_ms=broker.clock.now_ms(), items=items)


def _state(in_force: Mapping[str, Policy], errors: tuple[UsageError, ...]) -> PolicyState:
    return PolicyState(
        tuple(
            PolicyView(p.name, p.file, p.sha256, p.mode, p.precedence, p.description)
            for p in in_force.values()
        ),
        tuple(
            PolicyMistake(
                error.message,
                error.place.file if error.place else None,
                error.place.line if error.place else None,
                error.place.column if error.place else None,
                error.hint,
            )
            for error in errors
        ),
    )
