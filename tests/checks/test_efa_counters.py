"""EFA counters: what grew while we watched, never what they show."""

from __future__ import annotations

from dataclasses import replace

from sickbay.checks.efa_counters import CHECK
from sickbay.checks.signs import Ask
from sickbay.model import Severity, Status
from tests.checks.hosts import SpokenHost, printed
from tests.checks.network import codes, efa_host, found, looked, names

FOLDER = "/sys/class/infiniband/{name}/ports/1/hw_counters/{key}"


def shown(host: SpokenHost, key: str, value: int, which: int = 0) -> SpokenHost:
    host.files[FOLDER.format(name=names(4)[which], key=key)] = f"{value}\n"
    return host


def test_large_totals_since_boot_are_no_finding() -> None:
    """originals 002.9 judged rx_drops > 0, which any adapter reaches in its first week."""
    ask, host = Ask(at=1000.0), shown(efa_host(), "rx_drops", 999_999)
    assert looked(CHECK, host, ask) == []
    assert looked(CHECK, host, replace(ask, at=1300.0)) == []


def test_a_rise_beyond_burst_and_rate_is_watched_and_names_adapter_and_counter() -> None:
    ask, host = Ask(at=1000.0), shown(efa_host(), "rx_drops", 500, which=2)
    looked(CHECK, host, ask)
    (sign,) = looked(CHECK, shown(host, "rx_drops", 1000, which=2), replace(ask, at=1300.0))
    assert sign.reason == f"EFA adapter {names(4)[2]} loses packets: rx_drops +500 in 300 s"
    assert found(sign).severity is Severity.MONITOR


def test_a_rise_within_burst_and_rate_is_a_busy_adapter() -> None:
    ask, host = Ask(at=1000.0), shown(efa_host(), "retrans_timeout_events", 0)
    looked(CHECK, host, ask)
    assert looked(CHECK, shown(host, "retrans_timeout_events", 400), replace(ask, at=1300.0)) == []


def test_retransmitted_packets_may_be_ten_times_as_many() -> None:
    ask, host = Ask(at=0.0), shown(efa_host(), "retrans_pkts", 0)
    looked(CHECK, host, ask)
    assert looked(CHECK, shown(host, "retrans_pkts", 4_000), replace(ask, at=300.0)) == []
    assert codes(looked(CHECK, shown(host, "retrans_pkts", 90_000), replace(ask, at=600.0))) == ["efa.counter-rise"]


def test_a_counter_that_starts_anew_grew_by_what_it_shows() -> None:
    ask, host = Ask(at=0.0), shown(efa_host(), "rx_drops", 100_000)
    looked(CHECK, host, ask)
    assert looked(CHECK, shown(host, "rx_drops", 3), replace(ask, at=300.0)) == []


def test_what_grew_long_ago_is_forgotten() -> None:
    ask, host = Ask(at=0.0), shown(efa_host(), "rx_drops", 0)
    looked(CHECK, host, ask)
    looked(CHECK, shown(host, "rx_drops", 50_000), replace(ask, at=300.0))
    for at in (1500.0, 1800.0):
        last = looked(CHECK, host, replace(ask, at=at))
    assert last == []


def test_rdma_says_it_where_sysfs_does_not() -> None:
    host, ask = efa_host(), Ask(at=0.0)
    host.answers["rdma"] = printed(f"link {names(4)[0]}/1 tx_bytes 5 rx_drops 7 \n")
    assert looked(CHECK, host, ask) == []
    host.answers["rdma"] = printed(f"link {names(4)[0]}/1\n    tx_bytes 5\n    rx_drops 7000\n")
    assert codes(looked(CHECK, host, replace(ask, at=300.0))) == ["efa.counter-rise"]


def test_counters_nobody_can_read_are_unknown() -> None:
    (sign,) = looked(CHECK, efa_host(), Ask())
    assert sign.status is Status.UNKNOWN


def test_a_node_without_adapters_has_no_counters() -> None:
    (sign,) = looked(CHECK, SpokenHost(), Ask())
    assert (sign.code, sign.status) == ("", Status.OK)
