"""AWS: EC2, Pricing, Service Quotas and STS on one HTTPS end point, which AWS's own models parse and write; and the
price list as a file.

Requests are parsed and replies serialised by botocore's service models (through moto's core, not its services), so a
member that AWS does not know cannot be read or sent. Signatures are checked as AWS does: key, date, and the
signature itself. The region is the one that the caller signed for. A throttled reply carries a ``Retry-After`` of the
fault's seconds, when it has any.
"""

import hmac
import logging
import re
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.serialize import SERIALIZERS
from moto.core.utils import get_service_model
from werkzeug.datastructures import Headers, MultiDict

from lab.faces import DropConnection, Face, Reply, Request, aws_bulk
from lab.faces.aws_ec2 import Ec2
from lab.faces.aws_errors import CALLER, AwsError, Call, dry_run, refusal
from lab.faces.aws_pricing import Pricing
from lab.faces.aws_quotas import get_service_quota
from lab.faults import ON_EVERY_CALL, RENTING, Fault, FaultKind
from lab.world import World

ACCOUNT = "123456789012"
# By the name that a caller signs for.
_MODELS = {"ec2": "ec2", "pricing": "pricing", "servicequotas": "service-quotas", "sts": "sts"}
MAX_SKEW_S = 300  # Signature Version 4: "within five minutes of the current time"

# Their parameters are looked at before a dry run is answered.
CHECKED_FIRST = ("RunInstances",)

_SCOPE = re.compile(
    r"^AWS4-HMAC-SHA256 Credential=([^/,]+)/(\d{8})/([a-z0-9-]+)/([a-z0-9]+)/aws4_request, ?"
    r"SignedHeaders=([a-z0-9;-]+), ?Signature=([0-9a-f]{64})$"
)
_log = logging.getLogger("lab.aws")

# Errors common to all services are not in the services' own models, and moto's serialiser says so each time.
warnings.filterwarnings("ignore", message=r"Exception\(AwsError\)")


@dataclass(frozen=True)
class Keys:
    """The account's one key pair."""

    access_key: str
    secret_key: str


def create(world: World, keys: Keys) -> Face:
    """The face over a world."""
    return Aws(world, keys)


class Aws:
    """Authentication, faults and protocol; what the calls mean is in `aws_ec2`, `aws_pricing`, `aws_quotas`."""

    kinds = ON_EVERY_CALL | RENTING | {FaultKind.PARTIAL_PAGE, FaultKind.LINK_LOST, FaultKind.WRONG_CURRENCY}

    def __init__(self, world: World, keys: Keys) -> None:
        self._world = world
        self._keys = keys
        self._pricing = Pricing(world)
        self._models = {name: get_service_model(model) for name, model in _MODELS.items()}
        self._operations: dict[str, Mapping[str, Callable[[Call], dict[str, Any]]]] = {
            "ec2": Ec2(world).operations,
            "pricing": self._pricing.operations,
            "servicequotas": {"GetServiceQuota": get_service_quota},
            "sts": {"GetCallerIdentity": _caller},
        }
        self.operations = (
            aws_bulk.OPERATION,
            *(name for calls in self._operations.values() for name in calls),
        )

    def __call__(self, request: Request) -> Reply:
        """One call."""
        if (request.method, request.path) == ("GET", aws_bulk.PATH):
            return self._price_file()
        scope = _SCOPE.match(request.headers.get("authorization", ""))
        service = scope.group(4) if scope and scope.group(4) in self._models else "ec2"
        form = dict(parse_qsl(request.body.decode("utf-8", "replace"), keep_blank_values=True))
        target = request.headers.get("x-amz-target", "")
        model = self._models[service]
        in_json = model.metadata["protocol"] == "json"
        name = target.rpartition(".")[2] if in_json else form.get("Action", "")
        known = name in model.operation_names
        operation = model.operation_model(name if known else model.operation_names[0])
        serializer = SERIALIZERS[model.metadata["protocol"]](operation)
        try:
            region = self._authenticate(request, scope, service)
            if not known or name not in self._operations[service]:
                raise AwsError("InvalidAction", f"The action {name} is not valid for this web service.")
            call = Call(name, region, _parsed(model, operation, request, form))
            result = serializer.serialize(self._perform(service, call))
            if call.fault is FaultKind.WRONG_SHAPE:
                return Reply(200, b'{"Surprise": {}}' if in_json else b"<Surprise/>", dict(result["headers"]))
        except AwsError as error:
            _log.info("%s %s: %s %s", service, name, error.code, error.message)
            result = serializer.serialize(error)
            result["status_code"] = error.status_code
            result["headers"] = dict(result["headers"]) | error.headers
        body = result["body"]
        return Reply(
            result["status_code"], body.encode() if isinstance(body, str) else body, dict(result["headers"])
        )

    def _price_file(self) -> Reply:
        """No credentials; what it refuses has no particular shape."""
        fault = self._world.faults.take("aws", aws_bulk.OPERATION)
        if fault is not None:
            try:
                self._before("pricing", Call(aws_bulk.OPERATION, "us-east-1", {}), fault)
            except AwsError as error:
                return Reply(error.status_code, str(error).encode(), {"Content-Type": "text/plain"})
        return aws_bulk.answer(self._pricing)

    def _perform(self, service: str, call: Call) -> dict[str, Any]:
        fault = self._world.faults.take("aws", call.operation)
        if fault is not None:
            _log.info("fault %s on %s", fault.kind, call.operation)
            self._before(service, call, fault)
        if call.given.get("DryRun") and call.operation not in CHECKED_FIRST:
            raise dry_run()
        answer = self._operations[service][call.operation](call)
        if fault is not None and fault.kind is FaultKind.REPLY_LOST:
            raise DropConnection
        return answer

    def _before(self, service: str, call: Call, fault: Fault) -> None:
        """What a fault does before the call is performed; the rest travels with the call."""
        if fault.kind in (FaultKind.REQUEST_LOST, FaultKind.DOWN):
            raise DropConnection
        if fault.kind is FaultKind.SLOW:
            time.sleep(fault.seconds)
        if (error := refusal(service, fault.kind)) is not None:
            if fault.kind is FaultKind.THROTTLE and fault.seconds:
                error.headers = {"Retry-After": f"{fault.seconds:g}"}
            raise error
        call.fault = fault.kind

    def _authenticate(self, request: Request, scope: re.Match[str] | None, service: str) -> str:
        """The region that the caller signed for.

        Raises:
            AwsError: no signature, another key, a date too far off, or a signature that is not ours.
        """
        wrong = refusal(service, CALLER)
        assert wrong is not None
        if scope is None or scope.group(1) != self._keys.access_key:
            raise wrong
        stamp = request.headers.get("x-amz-date", "")
        try:
            signed = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            raise wrong from None
        # Signatures live on real time, whatever the lab's clock says.
        if abs((datetime.now(UTC) - signed).total_seconds()) > MAX_SKEW_S:
            raise AwsError(
                "RequestExpired" if service == "ec2" else "SignatureDoesNotMatch", "Request has expired."
            )
        _, _, region, scoped, names, signature = scope.groups()
        if not hmac.compare_digest(
            self._signature(request, names.split(";"), region, scoped, stamp), signature
        ):
            raise wrong
        return region

    def _signature(self, request: Request, names: list[str], region: str, service: str, stamp: str) -> str:
        signed = {name: request.headers.get(name, "") for name in names}
        # The host only completes the URL; what is signed is the Host header, which is among the names.
        again = AWSRequest(
            request.method, f"https://lab{request.path}", signed, request.body, dict(request.query)
        )
        again.context["timestamp"] = stamp
        auth = SigV4Auth(Credentials(self._keys.access_key, self._keys.secret_key), service, region)
        return str(auth.signature(auth.string_to_sign(again, auth.canonical_request(again)), again))


def _parsed(model: Any, operation: Any, request: Request, form: dict[str, str]) -> dict[str, Any]:
    parser = PROTOCOL_PARSERS[model.metadata["protocol"]](operation)
    parameters: dict[str, Any] = parser.parse(
        {
            "body": request.body,
            "headers": Headers(list(request.headers.items())),
            "method": request.method,
            "url_params": {},
            "url_path": request.path,
            "values": MultiDict(form if model.metadata["protocol"] != "json" else {}),
        }
    )
    return parameters


def _caller(call: Call) -> dict[str, Any]:
    return {"UserId": "AIDALAB", "Account": ACCOUNT, "Arn": f"arn:aws:iam::{ACCOUNT}:user/broker"}
