"""A cloud without HTTP: `Provider` straight over `lab.world`, for tests of what stands above it."""

from collections.abc import Iterable, Sequence
from decimal import Decimal

from broker.core.availability import Availability
from broker.core.errors import Invalid, OutOfCapacity, ProviderDown, UnknownOutcome
from broker.core.model import EndedBy
from broker.core.offer import Market, Offer, RawQuote
from broker.core.ports import Check, CloudNode, CloudState, LaunchRequest
from broker.core.tariff import BillingRule, Sampling
from lab import machines as lab
from lab.catalog import TYPES, ZONES
from lab.faults import FaultKind
from lab.world import World

_STATES = {
    lab.MachineState.PENDING: CloudState.PENDING,
    lab.MachineState.RUNNING: CloudState.RUNNING,
    lab.MachineState.STOPPING: CloudState.STOPPING,
    lab.MachineState.TERMINATED: CloudState.TERMINATED,
}
_ENDED_BY = {lab.EndedBy.USER: EndedBy.US, lab.EndedBy.CLOUD: EndedBy.CLOUD, lab.EndedBy.NODE: EndedBy.NODE}


class WorldProvider:
    """One cloud of a world. Faults of `world.faults` apply: ``create``, ``find``, ``list``, ``delete``, ``quotes``."""

    def __init__(self, world: World, cloud: str, installation_id: str) -> None:
        self.world = world
        self.cloud = cloud
        self.installation_id = installation_id
        self.calls: list[str] = []

    def quotes(self) -> Iterable[RawQuote]:
        self._fault("quotes")
        now_s = self.world.now_s()
        return [
            RawQuote(
                self.offer(key),
                str(Decimal(pool.at(now_s).price_micro_usd_h) / 1_000_000),
                "USD",
                pool.at(now_s).at_s * 1000,
                "world",
            )
            for key, pool in self.world.pools.items()
            if key.startswith(f"{self.cloud}/")
        ]

    def price_history(self, from_ms: int) -> Iterable[RawQuote]:
        return ()

    def availability(self) -> Iterable[Availability]:
        return ()

    def disk_micro_usd_per_gib_month(self, region: str) -> int:
        return 0

    def create(self, request: LaunchRequest) -> CloudNode:
        lost = self._fault("create")
        labels = {
            "installation": request.installation_id,
            "seq": str(request.event_seq),
            "token": request.token,
        }
        wish = lab.CreateRequest(
            request.offer.key,
            request.token,
            request.token,
            labels,
            request.user_data,
            fingerprint=repr(request),
        )
        try:
            machine = self.world.create(wish)
        except lab.OutOfStock as error:
            raise OutOfCapacity(str(error)) from error
        except lab.TokenMismatch as error:
            raise Invalid(str(error)) from error
        if lost:
            raise UnknownOutcome("the reply was lost")
        return self._node(machine)

    def find(self, token: str, region: str, zone: str) -> CloudNode | None:
        self._fault("find")
        return next(
            (self._node(m) for m in self.world.machines(self.cloud) if m.labels["token"] == token), None
        )

    def list_owned(self) -> Sequence[CloudNode]:
        return [node for node in self.list_tagged() if node.installation_id == self.installation_id]

    def list_tagged(self) -> Sequence[CloudNode]:
        self._fault("list")
        return [
            self._node(m)
            for m in self.world.machines(self.cloud)
            if m.state is not lab.MachineState.TERMINATED
        ]

    def delete(self, node: CloudNode) -> None:
        self._fault("delete")
        found = self.find(node.token, node.region, node.zone)
        if found is not None:
            self.world.terminate(found.provider_id)

    def egress_micro_usd_per_gib(self, from_offer: Offer, to_offer: Offer | None) -> int:
        return 0 if to_offer is not None and to_offer.zone == from_offer.zone else 90_000

    def billing_rule(self, market: Market) -> BillingRule:
        early = 3600 if self.cloud == "aws" and market is Market.SPOT else 0
        hourly = self.cloud == "aws" and market is Market.SPOT
        sampling = Sampling.INSTANCE_HOUR if hourly else Sampling.CONTINUOUS
        return BillingRule(1, 60, early, sampling, source="world")

    def check(self) -> Sequence[Check]:
        return [Check("world", True, "it turns")]

    def offer(self, key: str) -> Offer:
        """The offer of a key of the catalogue."""
        cloud, zone, name, market = key.split("/")
        kind = TYPES[name]
        return Offer(cloud, ZONES[zone].region, zone, name, Market(market), kind.gpu, kind.gpus)

    def _fault(self, operation: str) -> bool:
        """Act out a queued fault; True when the reply is to be lost after the deed."""
        self.calls.append(operation)
        fault = self.world.faults.take(self.cloud, operation)
        if fault is None:
            return False
        if fault.kind is FaultKind.REPLY_LOST:
            return True
        if fault.kind is FaultKind.CAPACITY:
            raise OutOfCapacity("a fault says so")
        if fault.kind is FaultKind.REQUEST_LOST:
            raise UnknownOutcome("the request was lost")
        raise ProviderDown(f"{fault.kind}")

    def _node(self, m: lab.Machine) -> CloudNode:
        return CloudNode(
            token=m.labels["token"],
            provider_id=m.id,
            cloud=m.cloud,
            region=m.region,
            zone=m.zone,
            state=_STATES[m.state],
            installation_id=m.labels["installation"],
            event_seq=int(m.labels["seq"]),
            address=m.address,
            created_at_ms=m.created_s * 1000,
            billed_from_ms=m.running_s * 1000 if m.running_s is not None else None,
            ended_at_ms=m.stopping_s * 1000 if m.stopping_s is not None else None,
            ended_by=_ENDED_BY.get(m.ended_by) if m.ended_by else None,
        )
