"""Check: InfiniBand and RoCE ports. Down for minutes, up and down again and again, or slower than before.

`checks/run` calls it in every cycle; it reads files. A port that nobody ever saw up has no cable or no use here, and is
no fault. Counters since boot are never judged, only what happened while we watched. EFA adapters have no such ports.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from sickbay.checks.infiniband_sysfs import adapters, port_files
from sickbay.checks.infiniband_text import OFF, Port, ports_of, printed_ports
from sickbay.checks.signs import Ask, Check, Reading, Sign, quote
from sickbay.model import Status
from sickbay.ports import Completed, Host

TOOL_S = 20.0


def collect(host: Host, ask: Ask) -> Reading:
    found = adapters(host)
    if found is None:  # perhaps a container without /sys: the tool may still be let through
        return Reading(host.run(("ibstat",), TOOL_S))
    names = [adapter.name for adapter in found if not adapter.efa]
    return Reading(Completed(0, "", ""), files=port_files(host, names))


def ports(reading: Reading) -> list[Port]:
    return ports_of(reading.files) or printed_ports(reading.done.stdout)


def samples(reading: Reading) -> dict[str, float]:
    """down: 1 or 0; link_downed and rate where the port says them."""
    figures: dict[str, float] = {}
    for port in ports(reading):
        if not port.known:
            continue
        figures[_name(port, "down")] = 0.0 if port.up else 1.0
        if port.downed is not None:
            figures[_name(port, "link_downed")] = port.downed
        if port.up and port.rate_gbps:
            figures[_name(port, "rate")] = port.rate_gbps
    return figures


def _name(port: Port, figure: str) -> str:
    return f"infiniband/{port.name}/{figure}"


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    seen = ports(reading)
    if not seen:
        return [] if reading.done.missing or not reading.done.timed_out else [_no_answer()]
    known = [port for port in seen if port.known]
    told = [sign for port in known for sign in _port(port, ask)]
    if not known:
        told.append(Sign("tool.unreadable", "no port of an RDMA adapter says its state", status=Status.UNKNOWN))
    return told


def _no_answer() -> Sign:
    return Sign("tool.timeout", "ibstat did not answer in time, so we cannot tell", status=Status.UNKNOWN)


def _port(port: Port, ask: Ask) -> Iterator[Sign]:
    if not port.up and (port.downed or _seen_up(port, ask)):
        yield _down(port, ask)
    flaps = _flaps(port, ask)
    if flaps >= ask.limits["port-flaps"]:
        hours = ask.limits["port-flap-window-s"] / 3600
        said = f"port {port.name} lost its link {flaps} times within {hours:.0f} h: cable, transceiver or switch port"
        yield Sign("nic.flapping", said, evidence=_quoted(port), count=flaps, traits=_traits(port))
    best = max((value for _, value in ask.series.points.get(_name(port, "rate"), ())), default=0.0)
    if port.up and 0 < port.rate_gbps < best:
        said = f"port {port.name} runs at {port.rate_gbps:g} Gb/s and ran at {best:g} Gb/s before"
        yield Sign("nic.slow-link", said, evidence=_quoted(port), traits=_traits(port))


def _seen_up(port: Port, ask: Ask) -> bool:
    return any(not value for _, value in ask.series.points.get(_name(port, "down"), ()))


def _down(port: Port, ask: Ask) -> Sign:
    if port.physical == OFF:
        return Sign(
            "nic.port-disabled", f"port {port.name} was switched off", evidence=_quoted(port), traits=_traits(port)
        )
    held = ask.series.held(_name(port, "down"), ask.at)
    # Lost before we began to watch: perhaps years ago, by somebody's hand. Worth a word, not a treatment.
    long = held >= ask.limits["port-down-s"] and _seen_up(port, ask) and not ask.young
    since = f"for {held:.0f} s" if held else "now"
    said = f"port {port.name} has no link {since} ({port.state}, {port.physical or 'physical state not said'})"
    status = None if long else Status.DEGRADED
    return Sign("nic.link-down", said, evidence=_quoted(port), status=status, traits=_traits(port))


def _flaps(port: Port, ask: Ask) -> int:
    """Losses of link we saw ourselves or the adapter counted between our polls, whichever is more.

    A counter that falls was cleared, and what it shows since may be the training of links after a boot: not counted.
    """
    since = ask.at - ask.limits["port-flap-window-s"]
    seen = [value for _, value in ask.series.since(_name(port, "down"), since)]
    counted = [value for _, value in ask.series.since(_name(port, "link_downed"), since)]
    lost = sum(1 for before, after in pairwise(seen) if after and not before)
    return max(lost, int(sum(max(after - before, 0) for before, after in pairwise(counted))))


def _quoted(port: Port) -> tuple[str, ...]:
    losses = "" if port.downed is None else f", link_downed {port.downed:.0f}"
    return quote(f"{port.name}: {port.state}, {port.physical}, {port.rate_gbps:g} Gb/s {port.layer}{losses}")


def _traits(port: Port) -> dict[str, str]:
    return {"port": port.name, "layer": port.layer}


CHECK = Check("infiniband", None, collect, judge, samples)
