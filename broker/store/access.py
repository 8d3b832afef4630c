"""Who may do what, and the two switches that a person may set: values and their part of a transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlmodel import col, select

from broker.core.errors import Conflict, NotFound
from broker.core.model import Event
from broker.store.fetch import fetch
from broker.store.rows import Rows
from broker.store.tables import ProjectRow, SwitchRow, TokenRow

DEFAULT_PROJECT = "default"
PAUSED = "paused"  # a person said: no new effect that costs money
REPORT_ONLY = (
    "report_only"  # this may be a restored database: no create, fence or delete until an operator clears it
)
SWITCHES = (PAUSED, REPORT_ONLY)
_SWITCHES = "SELECT name, value, reason, set_by, set_at_ms FROM switch ORDER BY name"
_SWITCHED_ON = "SELECT name FROM switch WHERE value"


class Role(StrEnum):
    """What a token may do; each may do what the ones before it may."""

    VIEWER = "viewer"
    ENGINEER = "engineer"
    AUTHOR = "author"
    OPERATOR = "operator"

    def covers(self, needed: "Role") -> bool:
        """Whether this role may do what `needed` may."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True)
class Token:
    """A bearer token. The secret itself is shown once and never stored.

    Attributes:
        name: Of the person or machine that uses it; `created_by` of what it makes.
        sha256: Of the secret.
        created_by: Who made the token.
    """

    name: str
    role: Role
    project_id: str
    sha256: str
    created_by: str
    created_at_ms: int
    revoked_at_ms: int | None = None
    last_used_at_ms: int | None = None


@dataclass(frozen=True)
class Project:
    """A team's own space."""

    id: str
    created_by: str
    created_at_ms: int


@dataclass(frozen=True)
class Switch:
    """A switch that somebody has set at least once."""

    name: str
    value: bool
    reason: str
    set_by: str
    set_at_ms: int


class Access(Rows):
    """Projects, tokens and switches of a transaction."""

    def projects(self) -> list[Project]:
        """All projects, by name."""
        return [
            Project(**row.model_dump())
            for row in self._session.exec(select(ProjectRow).order_by(ProjectRow.id))
        ]

    def add_project(self, project_id: str, created_by: str) -> Project:
        """A new project.

        Raises:
            Conflict: there is one of that name.
        """
        if self._session.get(ProjectRow, project_id) is not None:
            raise Conflict(f"there is a project {project_id!r} already")
        project = Project(project_id, created_by, self._clock.now_ms())
        self._session.add(
            ProjectRow(id=project.id, created_by=created_by, created_at_ms=project.created_at_ms)
        )
        self.emit(Event("project.created", project.created_at_ms, actor=created_by, project_id=project_id))
        return project

    def tokens(self) -> list[Token]:
        """All tokens, revoked ones too, by name."""
        return [_token(row) for row in self._session.exec(select(TokenRow).order_by(TokenRow.name))]

    def token_by_sha256(self, sha256: str) -> Token | None:
        """The token with that hash, unless it is revoked."""
        query = select(TokenRow).where(TokenRow.sha256 == sha256, col(TokenRow.revoked_at_ms).is_(None))
        row = self._session.exec(query).one_or_none()
        return None if row is None else _token(row)

    def add_token(self, name: str, role: Role, project_id: str, sha256: str, created_by: str) -> Token:
        """A new token.

        Raises:
            Conflict: the name is taken, also by a revoked token: history must not change its meaning.
            NotFound: no such project.
        """
        if self._session.get(TokenRow, name) is not None:
            raise Conflict(f"there is a token {name!r} already; choose another name")
        if self._session.get(ProjectRow, project_id) is None:
            raise NotFound(f"no project {project_id!r}")
        now_ms = self._clock.now_ms()
        row = TokenRow(
            name=name,
            role=Role(role).value,
            project_id=project_id,
            sha256=sha256,
            created_by=created_by,
            created_at_ms=now_ms,
        )
        self._session.add(row)
        self.emit(
            Event(
                "token.created",
                now_ms,
                actor=created_by,
                project_id=project_id,
                data={"name": name, "role": role},
            )
        )
        return _token(row)

    def revoke_token(self, name: str, revoked_by: str) -> Token:
        """End a token; again is no error.

        Raises:
            NotFound: no such token.
        """
        row = self._session.get(TokenRow, name)
        if row is None:
            raise NotFound(f"no token {name!r}")
        if row.revoked_at_ms is None:
            row.revoked_at_ms = self._clock.now_ms()
            event = Event(
                "token.revoked",
                row.revoked_at_ms,
                actor=revoked_by,
                project_id=row.project_id,
                data={"name": name},
            )
            self.emit(event)
        return _token(row)

    def touch_token(self, name: str) -> None:
        """Note that it has been used now."""
        row = self._session.get(TokenRow, name)
        if row is not None:
            row.last_used_at_ms = self._clock.now_ms()

    def switches(self) -> Sequence[Switch]:
        """Every switch that has ever been set, with who and why."""
        found = fetch(self._connection, _SWITCHES)
        return [Switch(name, bool(value), *who) for name, value, *who in found]

    def switch(self, name: str) -> bool:
        """Whether it is on; a switch that nobody has set is off."""
        assert name in SWITCHES, name
        return name in self.switched_on()

    def switched_on(self) -> set[str]:
        """Names of the switches that are on."""
        return {name for (name,) in fetch(self._connection, _SWITCHED_ON)}

    def set_switch(self, name: str, value: bool, *, by: str = "broker", reason: str = "") -> bool:
        """Turn it on or off; returns whether that changed anything. Writes the event itself."""
        assert name in SWITCHES, name
        if self.switch(name) == value:
            return False
        now_ms = self._clock.now_ms()
        self._merge(SwitchRow(name=name, value=value, reason=reason, set_by=by, set_at_ms=now_ms))
        self.emit(
            Event("switch.set", now_ms, actor=by, data={"name": name, "value": value, "reason": reason})
        )
        return True


def _token(row: TokenRow) -> Token:
    return Token(**row.model_dump() | {"role": Role(row.role)})
