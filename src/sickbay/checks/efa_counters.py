"""Check: do the EFA adapters' error counters grow faster than a busy healthy adapter's?

`checks/run` calls it in every cycle; it reads files. Totals since boot say nothing and are never judged: only a rise
between our own polls does, and a rise alone treats no node, because the far end may be the cause.
"""

from __future__ import annotations

from collections.abc import Iterator

from sickbay.checks.efa_enumeration import TOOL_S
from sickbay.checks.efa_text import rdma_statistics
from sickbay.checks.infiniband_sysfs import adapters, as_counters, counters
from sickbay.checks.signs import Ask, Check, Reading, Sign, quote
from sickbay.model import Status
from sickbay.ports import Completed, Host

EVENTS = (
    "rx_drops", "rdma_read_wr_err", "rdma_write_wr_err", "retrans_timeout_events", "unresponsive_remote_events",
    "impaired_remote_conn_events",
)  # fmt: skip
PACKETS = ("retrans_pkts",)
PER_EVENT = 10.0  # a timed-out event costs about this many packets: the peer's bursts stand 1 to 10


def collect(host: Host, ask: Ask) -> Reading:
    """From sysfs; from `rdma statistic` where the kernel keeps that to itself."""
    names = [adapter.name for adapter in adapters(host) or () if adapter.efa]
    files = counters(host, names, (*EVENTS, *PACKETS))
    if not names or any(value is not None for value in files.values()):
        return Reading(Completed(0, " ".join(names), ""), files=files)
    said = host.run(("rdma", "-p", "statistic", "show"), TOOL_S)
    return Reading(Completed(0, " ".join(names), ""), outputs={"rdma": said}, files=files)


def read(reading: Reading) -> dict[str, dict[str, float]]:
    said = reading.outputs.get("rdma")
    return rdma_statistics(said.stdout) if said is not None else as_counters(reading.files)


def samples(reading: Reading) -> dict[str, float]:
    wanted = (*EVENTS, *PACKETS)
    found = read(reading)
    return {
        f"efa-counters/{name}/{key}": value
        for name, row in found.items()
        for key, value in row.items()
        if key in wanted
    }


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    names = reading.done.stdout.split()
    if not names:
        return [Sign("", "no EFA adapter is here, so there is no counter to watch", status=Status.OK)]
    if not read(reading):
        said = "the counters of the EFA adapters cannot be read, neither in /sys nor by rdma"
        return [Sign("tool.unreadable", said, status=Status.UNKNOWN)]
    return [sign for name in names for sign in _adapter(name, ask)]


def _adapter(name: str, ask: Ask) -> Iterator[Sign]:
    """One sign an adapter, naming every counter that grew too much."""
    grown = [word for key in (*EVENTS, *PACKETS) if (word := _grown(name, key, ask))]
    if grown:
        yield Sign("efa.counter-rise", f"EFA adapter {name} loses packets: {'; '.join(grown)}", evidence=quote(*grown),
                   traits={"adapter": name})  # fmt: skip


def _grown(name: str, key: str, ask: Ask) -> str:
    since = ask.at - ask.limits["efa-window-s"]
    figure = f"efa-counters/{name}/{key}"
    points = ask.series.since(figure, since)
    if len(points) < 2:
        return ""
    span = points[-1][0] - points[0][0]
    rise = ask.series.rise(figure, since)
    return f"{key} +{rise:.0f} in {span:.0f} s" if rise > _allowed(key, span, ask) else ""


def _allowed(key: str, span_s: float, ask: Ask) -> float:
    rate = ask.limits["efa-rate-events"] * span_s
    if key in PACKETS:
        return ask.limits["efa-burst-packets"] + PER_EVENT * rate
    return ask.limits["efa-burst-events"] + rate


CHECK = Check("efa-counters", None, collect, judge, samples)
