"""Service Quotas: ``GetServiceQuota`` of EC2, for the codes that a broker asks for."""

from typing import Any

from lab.faces.aws_errors import AwsError, Call
from lab.faults import FaultKind

LIMIT = 768.0  # vCPUs of each
# Code -> name; those of one more letter would be no use to anybody here.
_NAMES = {
    "L-417A185B": "Running On-Demand P instances",
    "L-DB2E81BA": "Running On-Demand G and VT instances",
    "L-7212CCBC": "All P Spot Instance Requests",
    "L-3819A6DF": "All G and VT Spot Instance Requests",
}


def get_service_quota(call: Call) -> dict[str, Any]:
    """One quota; `FaultKind.QUOTA` leaves nothing of it."""
    code = call.given.get("QuotaCode", "")
    if call.given.get("ServiceCode") != "ec2" or code not in _NAMES:
        raise AwsError(
            "NoSuchResourceException", f"The request failed because the quota {code} does not exist."
        )
    quota = {
        "ServiceCode": "ec2",
        "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "QuotaArn": f"arn:aws:servicequotas:{call.region}:123456789012:ec2/{code}",
        "QuotaCode": code,
        "QuotaName": _NAMES[code],
        "Value": 0.0 if call.fault is FaultKind.QUOTA else LIMIT,
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }
    return {"Quota": quota}
