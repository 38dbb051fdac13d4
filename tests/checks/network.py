"""Hosts with a network: EFA adapters on an Amazon machine, mlx5 ports on another. Builders for the network checks."""

from __future__ import annotations

from dataclasses import replace

from sickbay.catalog import Profile, load
from sickbay.checks.signs import Ask, Check, Sign, Stamp, finding
from sickbay.model import Finding
from tests.checks.hosts import SpokenHost, printed

P5, P5EN = load().profiles["p5.48xlarge"], load().profiles["p5en.48xlarge"]
ENA = "0000:00:05.0 Ethernet controller: Amazon.com, Inc. Elastic Network Adapter (ENA)\n"
PONG = "bytes   #sent   #ack     total       time     MB/sec\n64      10      =10      1.2k        0.00s      1.77\n"
HELP = printed("Usage:\n")


def small(profile: Profile = P5, efas: int = 4, **changes: object) -> Profile:
    return replace(profile, efas=efas, **changes)  # type: ignore[arg-type]


def lspci(count: int, tail: str = "") -> str:
    rows = (
        f"0000:{n + 16:02x}:00.0 Ethernet controller: Amazon.com, Inc. Elastic Fabric Adapter (EFA){tail}\n"
        for n in range(count)
    )
    return ENA + "".join(rows)


def names(count: int) -> tuple[str, ...]:
    return tuple(f"rdmap{n + 16}s0" for n in range(count))


def fi_info(count: int) -> str:
    kinds = (("efa-direct", "rdm"), ("efa", "rdm"), ("efa", "dgrm"))
    return "".join(
        f"provider: efa\n    fabric: {fabric}\n    domain: {name}-{kind}\n    version: 201.0\n"
        for name in names(count)
        for fabric, kind in kinds
    )


def efa_host(count: int = 4, bound: int | None = None, offered: int | None = None) -> SpokenHost:
    """A healthy host with so many adapters; fewer of them bound to the driver, fewer offered by libfabric."""
    bound = count if bound is None else bound
    host = SpokenHost()
    host.answers = {
        "lspci": printed(lspci(count)),
        "fi_info": printed(fi_info(bound if offered is None else offered)),
        "fi_pingpong": HELP,
    }
    host.folders = {
        "/sys/class/infiniband": names(bound),
        "/sys/module": ("efa", "ib_core", "ib_uverbs", "nvidia"),
        "/dev/infiniband": ("rdma_cm", *(f"uverbs{n}" for n in range(bound))),
    }
    for name in names(bound):
        host.files[f"/sys/class/infiniband/{name}/device/vendor"] = "0x1d0f\n"
    return host


def looked(check: Check, host: SpokenHost, ask: Ask) -> list[Sign]:
    """One poll, as the runner does it."""
    reading = check.collect(host, ask)
    if check.samples is not None:
        ask.series.add(ask.at, check.samples(reading))
    return check.judge(reading, ask)


def codes(signs: list[Sign]) -> list[str]:
    return [sign.code for sign in signs if sign.code]


def found(sign: Sign) -> Finding:
    """With the catalog's severity."""
    return finding(sign, load(), Stamp("check", "node-1"), 1)
