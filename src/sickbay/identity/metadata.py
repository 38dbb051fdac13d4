"""The machine's own metadata: the DMI table (a file, always there) and EC2's metadata service (IMDSv2 only).

For `identity/machine` and the instance-events check. Every question has a short limit, off EC2 none is asked, and
nothing here knows a region or an endpoint but the link-local address that every EC2 instance has.
"""

from __future__ import annotations

from sickbay.ports import Host

IMDS = "http://169.254.169.254"
LIMIT_S = 2.0
BLOCKED = (
    "the metadata service did not answer (in a container without host networking the hop limit of 1 blocks it: "
    "set the instance's HttpPutResponseHopLimit to 2, or the agent's hostNetwork to true)"
)
_DMI = "/sys/class/dmi/id/"


def dmi(host: Host, name: str) -> str:
    """One field of the DMI table, such as sys_vendor or product_name; "" if it cannot be read."""
    return (host.read(_DMI + name) or "").strip()[:128]


def on_ec2(host: Host) -> bool:
    """By the DMI table: no waiting for an address that does not exist elsewhere."""
    return dmi(host, "sys_vendor") == "Amazon EC2"


def token(host: Host, base: str = IMDS) -> str:
    """A session token, "" if there is none. Version 1 (no token) is not tried: many fleets forbid it, and rightly."""
    headers = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    return (host.fetch(f"{base}/latest/api/token", LIMIT_S, "PUT", headers) or "").strip()


def ask(host: Host, path: str, session: str, base: str = IMDS) -> str | None:
    """The answer under latest/meta-data/, None if there is none."""
    return host.fetch(f"{base}/latest/meta-data/{path}", LIMIT_S, "GET", {"X-aws-ec2-metadata-token": session})
