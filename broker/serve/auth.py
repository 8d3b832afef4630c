"""Who may do what: bearer tokens, kept as hashes, with one of four roles.

    viewer    reads its project
    engineer  and submits and cancels jobs of its project
    author    and reloads policies
    operator  everything, in every project

The market, policies and the daemon's health are for every role; jobs, and what hangs on them, are seen by their
project and by operators.
"""

import hashlib
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from broker.core.errors import AuthError, NotFound, UsageError
from broker.core.model import Job
from broker.core.ports import Ids
from broker.serve.problem import Unauthenticated
from broker.serve.services import Services
from broker.store.access import Role, Token
from broker.store.state import Tx

TOKEN_PREFIX = "brk_"
# base32 characters: 160 bits, so that a plain SHA-256 is as good as a slow hash.
_TOKEN_LENGTH = 32
# `last_used_at` is for finding forgotten tokens; a write for every call would be too dear for that.
_TOUCH_EVERY_MS = 3_600_000

_scheme = HTTPBearer(auto_error=False, description="A token of `broker token create`.")


def role_named(name: str) -> Role:
    """The role of that name.

    Raises:
        UsageError: there is none.
    """
    try:
        return Role(name.lower())
    except ValueError:
        raise UsageError(f"no role {name!r}", hint=f"roles: {', '.join(Role)}") from None


@dataclass(frozen=True)
class Principal:
    """Who is calling.

    Attributes:
        name: Of the token; becomes `created_by` and an event's actor.
        role: What it may do.
        project_id: Where its jobs live.
    """

    name: str
    role: Role
    project_id: str

    def sees(self, project_id: str | None) -> bool:
        """Whether a row of that project is shown to it; None belongs to the daemon and is everyone's."""
        return self.role == Role.OPERATOR or project_id in (None, self.project_id)

    def own(self, job: Job | None, name: str) -> Job:
        """`job`, if it exists and may be seen. A foreign job is *not found*: its name is nobody's business.

        Raises:
            NotFound: otherwise.
        """
        if job is None or not self.sees(job.project_id):
            raise NotFound(f"no job {name!r}; `broker jobs` lists yours")
        return job


def new_token(ids: Ids) -> str:
    """A secret for a person or a script."""
    return TOKEN_PREFIX + ids.base32(_TOKEN_LENGTH)


def token_sha256(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def make_token(
    tx: Tx, ids: Ids, role: str, name: str | None, project_id: str, created_by: str
) -> tuple[str, Token]:
    """A new token in the database, with its project when that is new; returns the secret and the row.

    Raises:
        UsageError: no such role.
        Conflict: the name is taken.
    """
    known = role_named(role)
    secret = new_token(ids)
    if project_id not in {project.id for project in tx.projects()}:
        tx.add_project(project_id, created_by)
    row = tx.add_token(
        name or f"{known}-{ids.base32(6)}", known, project_id, token_sha256(secret), created_by
    )
    return secret, row


def services_of(request: Request) -> Services:
    """The daemon's parts, as `create_app` was given them."""
    services = request.app.state.services
    assert isinstance(services, Services)
    return services


def _principal(
    services: Annotated[Services, Depends(services_of)],
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_scheme)],
) -> Principal:
    if credentials is None:
        raise Unauthenticated("this needs a token: `broker login`, or the header `Authorization: Bearer ...`")
    with services.store.read() as tx:
        token = tx.token_by_sha256(token_sha256(credentials.credentials))
    if token is None:
        raise Unauthenticated("this token is unknown or revoked; ask an operator for a new one")
    now_ms = services.clock.now_ms()
    if now_ms - (token.last_used_at_ms or 0) > _TOUCH_EVERY_MS:
        with services.store.write() as tx:
            tx.touch_token(token.name)
    return Principal(token.name, token.role, token.project_id)


class Needs:
    """A dependency: the caller, who has at least this role."""

    def __init__(self, role: Role) -> None:
        self._role = role

    def __call__(self, principal: Annotated[Principal, Depends(_principal)]) -> Principal:
        """Raises:
        AuthError: the role is too low.
        """
        if not principal.role.covers(self._role):
            raise AuthError(f"{principal.name} is {principal.role}; this needs {self._role}")
        return principal


Viewer = Annotated[Principal, Depends(Needs(Role.VIEWER))]
Engineer = Annotated[Principal, Depends(Needs(Role.ENGINEER))]
Author = Annotated[Principal, Depends(Needs(Role.AUTHOR))]
Operator = Annotated[Principal, Depends(Needs(Role.OPERATOR))]
Broker = Annotated[Services, Depends(services_of)]
