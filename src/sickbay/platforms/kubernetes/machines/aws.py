"""Amazon's APIs: one client per service and region, short time-outs, and what an error means for a call made once.

Called by ec2.py and asg.py, and by nobody else of this platform. boto3 is imported here and only when first used: it
costs 60 MB. It must never decide about a node.
"""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

from sickbay.errors import UserError

CONNECT_S, READ_S = 3.0, 4.0  # twice each (one retry) would be too long for a door: see `_config`
_REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d+")
_ID = re.compile(r"i-[0-9a-f]{8,32}")
_LOCK = threading.Lock()

_THROTTLED = frozenset({
    "RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
    "RequestThrottledException", "TooManyRequestsException", "SlowDown", "PriorRequestNotComplete",
    "ScalingActivityInProgress", "ResourceContention",
})  # fmt: skip


class Meaning(Enum):
    """What a failed call says about whether anything happened."""

    THROTTLED = "throttled"  # refused for now; nothing happened
    REFUSED = "refused"  # it will say the same again; nothing happened
    NEVER = "never"  # it did not get there
    UNCLEAR = "unclear"  # it may have happened


@dataclass(frozen=True, slots=True)
class Aws:
    """A region's two services."""

    region: str
    ec2: Any
    autoscaling: Any


def open_aws(region: str, endpoint: str = "") -> Aws:
    """The clients of a region, made once: they are safe from many threads, making them is not."""
    with _LOCK:
        return _aws(region, endpoint)


@lru_cache(maxsize=32)
def _aws(region: str, endpoint: str) -> Aws:
    if not region:
        raise UserError("which AWS region the nodes are in is not known: set kubernetes.aws_region")
    try:
        import boto3  # type: ignore[import-untyped]
    except ImportError as missing:
        raise UserError("rebooting and replacing EC2 instances needs boto3: pip install 'sickbay[aws]'") from missing
    session, config = boto3.Session(), _config()
    made = [
        session.client(name, region_name=region, endpoint_url=endpoint or None, config=config)
        for name in ("ec2", "autoscaling")
    ]
    return Aws(region, *made)


def _config() -> Any:
    """One try each: a call that reboots must not be repeated by a library, and the case asks again by itself."""
    from botocore.config import Config  # type: ignore[import-untyped]

    return Config(connect_timeout=CONNECT_S, read_timeout=READ_S, retries={"total_max_attempts": 1, "mode": "standard"})


def region_of(provider_id: str, chosen: str = "") -> str:
    """aws:///us-west-2a/i-… is in us-west-2; so is its local zone us-west-2-lax-1a. "" when nobody says: a guess would
    ask the wrong region, which knows no such instance, and that reads as "terminated"."""
    zone = provider_id.removeprefix("aws://").strip("/").partition("/")[0]
    found = _REGION.match(zone)
    return chosen or (found.group() if found else "") or _by_environment()


def _by_environment() -> str:
    """EKS gives it to a pod with a role."""
    return os.environ.get("AWS_REGION", "") or os.environ.get("AWS_DEFAULT_REGION", "")


def instance_id(provider_id: str) -> str:
    """i-… of aws:///zone/i-…, or of an id that stands alone; "" when it is no EC2 instance."""
    tail = provider_id.rpartition("/")[2]
    is_amazons = provider_id.startswith("aws://") or "/" not in provider_id
    return tail if is_amazons and _ID.fullmatch(tail) else ""


def meaning(error: Exception) -> Meaning:
    """Whether a call that failed may have done something (botocore's exceptions, read by name and by status)."""
    code, status = code_of(error), _status(error)
    if code in _THROTTLED or status == 429:
        return Meaning.THROTTLED
    if status and status < 500:
        return Meaning.REFUSED
    if status or type(error).__name__ in ("ReadTimeoutError", "ConnectionClosedError", "HTTPClientError"):
        return Meaning.UNCLEAR
    if type(error).__name__ in ("EndpointConnectionError", "ConnectTimeoutError", "ProxyConnectionError", "SSLError"):
        return Meaning.NEVER
    return Meaning.REFUSED if is_amazons(error) else Meaning.UNCLEAR  # no credentials, a bad parameter: never sent


def code_of(error: Exception) -> str:
    return str(_response(error).get("Error", {}).get("Code", ""))


def words(error: Exception) -> str:
    """One line for an operator. No credential is ever in it: botocore puts none into its errors."""
    said = _response(error).get("Error", {})
    text = f"{said.get('Code')}: {said.get('Message')}" if said else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:300]


def is_amazons(error: Exception) -> bool:
    return type(error).__module__.startswith(("botocore", "boto3"))


def _response(error: Exception) -> dict[str, Any]:
    found = getattr(error, "response", None)
    return found if isinstance(found, dict) else {}


def _status(error: Exception) -> int:
    return int(_response(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0) or 0)
