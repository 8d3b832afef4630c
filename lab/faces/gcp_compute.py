"""Compute Engine v1: zones, regions, machine types, instances and the operations on them.

Operations are not stored: those that end a machine follow from what the world says of it. What is kept are the
inserts, by request id for an hour and by machine for ever, and the guests that shut themselves down: Compute Engine
keeps such a machine, stopped, until somebody deletes it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lab.catalog import TYPES, ZONES
from lab.faces import gcp_resources as resources
from lab.faces.gcp_errors import Call, GcpError, accepts, page
from lab.faces.gcp_inserts import check_body, create_request, exhausted, is_request_id, refused_by
from lab.machines import EndedBy, Machine, MachineState, OutOfStock
from lab.world import World

REMEMBERED_S = 3600  # how long a request id names its operation
WAIT_S = 10.0  # of `zoneOperations.wait`, real time; Google promises "no more than 2 minutes"


@dataclass(frozen=True)
class Insert:
    """An insert that was accepted: a machine, or the error of its operation."""

    zone: str
    name: str
    user: str
    began_s: int
    request_id: str | None
    machine_id: str | None = None
    error: tuple[str, str] | None = None


class Compute:
    """Compute Engine over a world.

    Attributes:
        operations: By method id.
    """

    def __init__(self, world: World, project: str) -> None:
        self._world = world
        self._project = project
        self._lock = threading.Lock()
        self._inserts: list[Insert] = []
        self._bodies: dict[str, Mapping[str, Any]] = {}
        self._swept: dict[str, tuple[int, str]] = {}  # stopped guests that were deleted: when, by whom
        self.operations: Mapping[str, Callable[[Call], dict[str, Any]]] = {
            "zones.get": self.get_zone,
            "zones.list": self.list_zones,
            "regions.get": self.get_region,
            "regions.list": self.list_regions,
            "machineTypes.get": self.get_machine_type,
            "machineTypes.list": self.list_machine_types,
            "machineTypes.aggregatedList": self.aggregate_machine_types,
            "instances.insert": self.insert,
            "instances.get": self.get_instance,
            "instances.delete": self.delete,
            "instances.list": self.list_instances,
            "instances.aggregatedList": self.aggregate_instances,
            "zoneOperations.get": self.get_operation,
            "zoneOperations.list": self.list_operations,
            "zoneOperations.wait": self.wait_operation,
        }

    # Places and machine types

    def get_zone(self, call: Call) -> dict[str, Any]:
        """One zone."""
        return resources.zone(self._project, self._zone(call))

    def list_zones(self, call: Call) -> dict[str, Any]:
        """All zones."""
        return self._listing(call, "zone", [resources.zone(self._project, name) for name in _zones()])

    def get_region(self, call: Call) -> dict[str, Any]:
        """One region with its zones and quotas."""
        name = call.path["region"]
        if not _zones(name):
            raise GcpError(
                404, "notFound", f"The resource 'projects/{self._project}/regions/{name}' was not found"
            )
        return resources.region(self._project, name, _zones(name))

    def list_regions(self, call: Call) -> dict[str, Any]:
        """All regions."""
        names = sorted({zone.region for zone in ZONES.values() if zone.cloud == "gcp"})
        rows = [resources.region(self._project, name, _zones(name)) for name in names]
        return self._listing(call, "region", rows)

    def get_machine_type(self, call: Call) -> dict[str, Any]:
        """One machine type of a zone."""
        zone, name = self._zone(call), call.path["machineType"]
        for row in self._machine_types(zone):
            if row["name"] == name:
                return row
        raise self._missing(zone, "machineTypes", name)

    def list_machine_types(self, call: Call) -> dict[str, Any]:
        """The machine types of a zone."""
        return self._listing(call, "machineType", self._machine_types(self._zone(call)))

    def aggregate_machine_types(self, call: Call) -> dict[str, Any]:
        """The machine types of all zones."""
        rows = [row for zone in _zones() for row in self._machine_types(zone)]
        return self._aggregate(call, "machineType", "machineTypes", rows)

    # Instances

    def insert(self, call: Call) -> dict[str, Any]:
        """Begin to make an instance. The same request id within an hour is the same operation, whatever the body."""
        zone, body, now_s = self._zone(call), call.body or {}, self._world.advance()
        request_id = call.query.get("requestId")
        if request_id is not None and not is_request_id(request_id):
            raise GcpError(400, "invalid", f"Invalid value for field 'requestId': '{request_id}'.")
        with self._lock:
            for known in self._inserts:
                if request_id and known.request_id == request_id and now_s - known.began_s < REMEMBERED_S:
                    return self._inserted(known)
            check_body(body)
            name = body["name"]
            if self._visible(zone, name):
                path = f"projects/{self._project}/zones/{zone}/instances/{name}"
                raise GcpError(409, "alreadyExists", f"The resource '{path}' already exists")
            begun = Insert(zone, name, call.user, now_s, request_id)
            error = refused_by(call.fault, zone, body)
            if error is None:
                try:
                    machine = self._world.create(create_request(zone, body, call.fault, self._world))
                    begun = Insert(zone, name, call.user, machine.created_s, request_id, machine.id)
                    self._bodies[machine.id] = body
                except OutOfStock:
                    error = exhausted(zone)
            if error is not None:
                begun = Insert(zone, name, call.user, now_s, request_id, None, error)
            self._inserts.append(begun)
            return self._inserted(begun)

    def get_instance(self, call: Call) -> dict[str, Any]:
        """By name or by id; 404 as soon as it is gone."""
        machine = self._known(call)
        return resources.instance(self._project, machine, self._bodies.get(machine.id, {}))

    def delete(self, call: Call) -> dict[str, Any]:
        """Begin to delete an instance, with its boot disk when that has ``autoDelete``."""
        machine = self._known(call)
        if machine.state is MachineState.TERMINATED:  # a guest that shut itself down: only its disk is left
            with self._lock:
                self._swept.setdefault(machine.id, (self._world.now_s(), call.user))
        else:
            machine = self._world.terminate(machine.id, EndedBy.USER)
        return self._of_machine(machine)[-1]

    def list_instances(self, call: Call) -> dict[str, Any]:
        """The instances of a zone."""
        zone = self._zone(call)
        return self._listing(
            call, "instance", [row for row in self._instances() if row["zone"].endswith(f"/{zone}")]
        )

    def aggregate_instances(self, call: Call) -> dict[str, Any]:
        """The instances of all zones."""
        return self._aggregate(call, "instance", "instances", self._instances())

    # Operations

    def get_operation(self, call: Call) -> dict[str, Any]:
        """By name or by id."""
        zone, wanted = self._zone(call), call.path["operation"]
        for row in self._operations(zone):
            if wanted in (row["name"], row["id"]):
                return row
        raise self._missing(zone, "operations", wanted)

    def wait_operation(self, call: Call) -> dict[str, Any]:
        """As `get`, but not before it is done or patience has ended."""
        until = time.monotonic() + WAIT_S
        while True:
            row = self.get_operation(call)
            if row["status"] == "DONE" or time.monotonic() > until:
                return row
            time.sleep(0.05)

    def list_operations(self, call: Call) -> dict[str, Any]:
        """The operations of a zone, newest first."""
        rows = sorted(
            self._operations(self._zone(call)), key=lambda row: str(row["insertTime"]), reverse=True
        )
        return self._listing(call, "operation", rows)

    def _operations(self, zone: str) -> list[dict[str, Any]]:
        with self._lock:
            inserts = [begun for begun in self._inserts if begun.zone == zone]
        rows = [self._inserted(begun) for begun in inserts]
        for machine in self._world.machines("gcp"):
            if machine.zone == zone:
                rows += self._of_machine(machine)
        return rows

    def _inserted(self, begun: Insert) -> dict[str, Any]:
        """The operation of an insert: done when the machine runs, or at once when it was refused."""
        machine = self._world.machine(begun.machine_id) if begun.machine_id else None
        ended_s: int | None = begun.began_s
        if machine is not None:
            ended_s = machine.running_s if machine.running_s is not None else machine.stopping_s
        error = None
        if begun.error:
            code, text = begun.error
            error = {"errors": [{"code": code, "message": text}]}
        return resources.operation(
            self._project,
            begun.zone,
            "insert",
            begun.name,
            begun.machine_id or resources.number(f"{begun.name}/{begun.request_id}"),
            begun.user,
            begun.began_s,
            ended_s,
            clientOperationId=begun.request_id,
            error=error,
            httpErrorStatusCode=503 if error else None,
            httpErrorMessage="SERVICE UNAVAILABLE" if error else None,
        )

    def _of_machine(self, machine: Machine) -> list[dict[str, Any]]:
        """What ended it, and the sweeping of a stopped guest."""
        user = next((begun.user for begun in self._inserts if begun.machine_id == machine.id), "system")
        rows = resources.ends(self._project, machine, user)
        if machine.id in self._swept:
            at_s, who = self._swept[machine.id]
            rows.append(
                resources.operation(
                    self._project, machine.zone, "delete", machine.name, machine.id, who, at_s, at_s
                )
            )
        return rows

    # Lists

    def _instances(self) -> list[dict[str, Any]]:
        found = [machine for machine in self._world.machines("gcp") if self._exists(machine)]
        return [resources.instance(self._project, m, self._bodies.get(m.id, {})) for m in found]

    def _machine_types(self, zone: str) -> list[dict[str, Any]]:
        pools = [pool.listing for pool in self._world.pools.values() if pool.listing.zone.id == zone]
        names = sorted({listing.type.name for listing in pools})
        return [resources.machine_type(self._project, zone, TYPES[name]) for name in names]

    def _listing(self, call: Call, kind: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
        part, token = page(call, list(_accepted(call, rows)))
        answer = {"kind": f"compute#{kind}List", "id": "list", "items": part}
        return answer | ({"nextPageToken": token} if token else {})

    def _aggregate(self, call: Call, kind: str, field: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
        part, token = page(call, list(_accepted(call, rows)))
        items: dict[str, Any] = {}
        for zone in _zones():
            here = [row for row in part if row["zone"].rpartition("/")[2] == zone]
            none = {
                "code": "NO_RESULTS_ON_PAGE",
                "message": "There are no results for this scope on this page.",
            }
            items[f"zones/{zone}"] = {field: here} if here else {"warning": none}
        answer = {"kind": f"compute#{kind}AggregatedList", "id": "list", "items": items}
        return answer | ({"nextPageToken": token} if token else {})

    # Look-ups

    def _zone(self, call: Call) -> str:
        name = call.path["zone"]
        if name not in _zones():
            raise GcpError(
                404, "notFound", f"The resource 'projects/{self._project}/zones/{name}' was not found"
            )
        return name

    def _known(self, call: Call) -> Machine:
        zone, wanted = self._zone(call), call.path["instance"]
        found = self._visible(zone, wanted)
        if found is None:
            raise self._missing(zone, "instances", wanted)
        return found

    def _visible(self, zone: str, wanted: str) -> Machine | None:
        """The instance of that name or id, while Compute Engine shows it."""
        for machine in self._world.machines("gcp"):
            if machine.zone == zone and wanted in (machine.name, machine.id) and self._exists(machine):
                return machine
        return None

    def _exists(self, machine: Machine) -> bool:
        gone = machine.state is MachineState.TERMINATED
        return not gone or (machine.ended_by is EndedBy.NODE and machine.id not in self._swept)

    def _missing(self, zone: str, kind: str, name: str) -> GcpError:
        path = f"projects/{self._project}/zones/{zone}/{kind}/{name}"
        return GcpError(404, "notFound", f"The resource '{path}' was not found")


def _zones(region: str | None = None) -> list[str]:
    found = [zone for zone in ZONES.values() if zone.cloud == "gcp" and region in (None, zone.region)]
    return sorted(zone.id for zone in found)


def _accepted(call: Call, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    expression = call.query.get("filter", "")
    for row in rows:
        if accepts(expression, lambda field, row=row: _field(row, field)):  # type: ignore[misc]
            yield row


def _field(row: Mapping[str, Any], field: str) -> str | None:
    value: Any = row
    for part in field.split(".", 1):
        value = value.get(part) if isinstance(value, Mapping) else None
    return None if value is None else str(value)
