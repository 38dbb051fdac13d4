"""Check 6: can every EFA adapter send to itself? fi_pingpong, server and client, on each libfabric domain.

Deep: it uses the network, so it runs on an idle node. Each run is pinned to its adapter by FI_EFA_IFACE and -d; the
original suite's FI_EFA_DEVICE_NAME is no variable of libfabric, so it tested the first adapter 32 times. A pass counts
only if this adapter's own send counter moved. It must never blame a part for a missing tool or a closed port.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from sickbay.checks import efa_text
from sickbay.checks.efa_enumeration import PATHS, TOOL_S, expected, tool
from sickbay.checks.infiniband_sysfs import adapters, as_counters, counters
from sickbay.checks.signs import Ask, Check, Reading, Sign, quote, unusable
from sickbay.model import Status
from sickbay.ports import Completed, Host

LIMIT_S = 180.0  # of one adapter, as the original suite
SETTLE_S = 3.0  # the server listens by then
AT_ONCE = 8
FIRST_PORT = 49_152  # two ports a run, all different, so that runs side by side cannot collide
OWN_LIMIT_S = 2 * (32 / AT_ONCE) * (LIMIT_S + SETTLE_S) + 60  # 32 adapters, each of them failing twice
SENT = ("tx_bytes", "tx_pkts", "send_wrs", "rdma_read_wrs", "rdma_write_wrs")
LOST = ("rx_drops", "retrans_timeout_events")
RESULTS = "efa-loopback-results.json"


def collect(host: Host, ask: Ask) -> Reading:
    info = tool(host, ("fi_info", "-p", "efa", "-t", "FI_EP_RDM"), TOOL_S)
    domains = efa_text.domains(info.stdout)
    names = [adapter.name for adapter in adapters(host) or () if adapter.efa]
    outputs = {"fi_info": info}
    files: dict[str, str | None] = {"adapters": " ".join(names)}
    place = _place(host) if domains else None
    if place is not None:
        before = counters(host, names, (*SENT, *LOST))
        outputs |= _twice(host, ask, place, domains)
        after = counters(host, names, (*SENT, *LOST))
        files |= {f"before {key}": text for key, text in before.items()}
        files |= {f"after {key}": text for key, text in after.items()}
    done = Completed(0, "", "") if place is not None else Completed(None, "", "", missing=True)
    return Reading(done, outputs=outputs, files=files)


def _place(host: Host) -> str | None:
    """Where fi_pingpong is. Behind `env` a missing tool would look like a failing one."""
    return next((place for place in PATHS if not host.run((f"{place}fi_pingpong", "-h"), TOOL_S).missing), None)


def _twice(host: Host, ask: Ask, place: str, domains: Sequence[str]) -> dict[str, Completed]:
    """Every domain once, and those that failed a second time: a lost race with the server is not a broken part."""
    outputs: dict[str, Completed] = {}
    left = list(domains)
    for attempt in ("first", "again"):
        ends = _round(host, ask, place, left, attempt == "again")
        outputs |= {f"{attempt} {domain}": done for domain, done in ends.items()}
        left = [domain for domain, done in ends.items() if not passed(done)]
    return outputs


def _round(host: Host, ask: Ask, place: str, domains: Sequence[str], again: bool) -> dict[str, Completed]:
    base = FIRST_PORT + (2 * efa_text.MOST if again else 0)
    ports = range(base, base + 2 * len(domains), 2)
    with ThreadPoolExecutor(AT_ONCE, "efa-loopback") as pool:
        ends = pool.map(partial(_pingpong, host, ask, place), domains, ports)
        return dict(zip(domains, ends, strict=True))


def _pingpong(host: Host, ask: Ask, place: str, domain: str, port: int) -> Completed:
    """The client's end. The server's is quoted only if the client did not get that far."""
    limit = ask.number("efa-timeout-s", LIMIT_S)
    with ThreadPoolExecutor(1, "efa-server") as pool:
        serving = pool.submit(host.run, _argv(place, domain, port), limit + SETTLE_S)
        time.sleep(ask.number("efa-settle-s", SETTLE_S))
        client = host.run((*_argv(place, domain, port + 1), "-P", str(port), "localhost"), limit)
        served = serving.result()
    said = client.stderr if passed(client) else f"{client.stderr}\nserver: {served.stderr or served.stdout}"[:4_000]
    return Completed(client.code, client.stdout, said, client.timed_out, client.missing, client.stuck)


def _argv(place: str, domain: str, port: int) -> tuple[str, ...]:
    pinned = ("env", "FI_LOG_LEVEL=warn", "FI_EFA_ENABLE_SHM_TRANSFER=0", f"FI_EFA_IFACE={domain}")
    return (*pinned, f"{place}fi_pingpong", "-d", f"{domain}-rdm", "-e", "rdm", "-p", "efa", "-B", str(port))


def passed(done: Completed) -> bool:
    """Ended well and at least one size came back whole: exit code 0 alone is no proof."""
    return done.code == 0 and not done.timed_out and efa_text.pingpong_rows(done.stdout) > 0


@dataclass(frozen=True, slots=True)
class Trial:
    """How one domain's test ended, the better of its two runs."""

    domain: str
    done: Completed

    @property
    def passed(self) -> bool:
        return passed(self.done)


def trials(reading: Reading) -> list[Trial]:
    firsts = [key.removeprefix("first ") for key in reading.outputs if key.startswith("first ")]
    last = {name: reading.outputs.get(f"again {name}") or reading.outputs[f"first {name}"] for name in firsts}
    return [Trial(name, done) for name, done in last.items()]


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    info = reading.outputs.get("fi_info", Completed(None, "", "", missing=True))
    if (blind := unusable(info, "fi_info")) is not None:
        return [] if _not_here(reading, ask) else [blind]
    if not efa_text.domains(info.stdout):
        return _no_domain(info, reading, ask)
    if (blind := unusable(reading.done, "fi_pingpong")) is not None:
        return [blind]
    ends = trials(reading)
    return [*_failures(ends), *_untested(ends, reading), *_losses(reading)]


def _not_here(reading: Reading, ask: Ask) -> bool:
    return expected(ask) == 0 and not reading.files.get("adapters")


def _no_domain(info: Completed, reading: Reading, ask: Ask) -> list[Sign]:
    if _not_here(reading, ask):
        return [Sign("", "no EFA adapter is here and none is expected: nothing to test", status=Status.OK)]
    said = "libfabric offers no EFA adapter, so none could be tested"
    error = efa_text.fi_error(f"{info.stdout}\n{info.stderr}")
    return [Sign("tool.failed", said, evidence=quote(error), status=Status.UNKNOWN)]


def _failures(ends: list[Trial]) -> Iterator[Sign]:
    bad = [end for end in ends if not end.passed]
    if any(end.done.code == 127 or end.done.missing for end in bad):
        yield Sign("tool.missing", "fi_pingpong could not be started, so we cannot tell", status=Status.UNKNOWN)
    elif bad and len(bad) == len(ends):
        said = (
            f"none of {len(ends)} EFA adapters passes its loopback test: look at security group, memory limit, software"
        )
        yield Sign("efa.loopback-all", said, evidence=_quoted(bad[0]), count=len(bad))
    else:
        yield from map(_failure, bad)


def _failure(end: Trial) -> Sign:
    how = "did not end in time" if end.done.timed_out else f"ended with exit code {end.done.code}"
    said = f"EFA adapter {end.domain} cannot send to itself: its loopback test {how}, twice"
    return Sign("efa.loopback", said, evidence=_quoted(end), traits={"adapter": end.domain})


def _quoted(end: Trial) -> tuple[str, ...]:
    lines = [line for line in f"{end.done.stdout}\n{end.done.stderr}".splitlines() if line.strip()]
    return quote(*lines[-3:])


def _rises(reading: Reading) -> Mapping[str, Mapping[str, float]]:
    def at(word: str) -> dict[str, dict[str, float]]:
        mark = f"{word} "
        return as_counters({k.removeprefix(mark): v for k, v in reading.files.items() if k.startswith(mark)})

    return efa_text.rises(at("before"), at("after"))


def _untested(ends: list[Trial], reading: Reading) -> Iterator[Sign]:
    """Where counters move at all, an adapter whose own stood still was not the one that was tested."""
    sent = {name for name, row in _rises(reading).items() if any(row.get(key) for key in SENT)}
    still = [end.domain for end in ends if end.passed and sent and end.domain not in sent]
    if still:
        said = f"the test of {len(still)} EFA adapters went another way: nothing was sent on {', '.join(still[:4])}"
        yield Sign("tool.unreadable", said, status=Status.UNKNOWN, count=len(still))


def _losses(reading: Reading) -> Iterator[Sign]:
    for name, row in sorted(_rises(reading).items()):
        lost = [f"{key} +{row[key]:.0f}" for key in LOST if row.get(key)]
        if lost:
            said = f"EFA adapter {name} lost packets in its own loopback test: {', '.join(lost)}"
            yield Sign("efa.test-errors", said, evidence=quote(*lost), traits={"adapter": name})


def keeps(reading: Reading) -> dict[str, str]:
    """The artefact of the original suite."""
    rows = [
        {"domain": f"{end.domain}-rdm", "status": "PASS" if end.passed else "FAIL", "exit_code": _exit_code(end)}
        for end in trials(reading)
    ]
    return {RESULTS: json.dumps(rows, indent=1)}


def _exit_code(end: Trial) -> int:
    """124 for one that was given up, as timeout(1) says."""
    return 124 if end.done.timed_out else end.done.code if end.done.code is not None else 127


CHECK = Check("efa-loopback", 6, collect, judge, deep=True, file="6-efa-loopback", own_limit_s=OWN_LIMIT_S, keeps=keeps)
