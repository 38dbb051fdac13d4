"""Check 6, EFA loopback: each adapter for itself, twice before it is blamed, and nothing blamed for a missing tool."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from sickbay.checks.efa_loopback import AT_ONCE, CHECK, RESULTS
from sickbay.checks.signs import Ask, Reading
from sickbay.model import Severity, Status
from sickbay.ports import Completed
from tests.checks.hosts import MISSING, TIMED_OUT, SpokenHost, printed
from tests.checks.network import PONG, codes, efa_host, found, looked, names, small

QUICK = {"efa-settle-s": "0"}
FAILS = printed("", 1, "fi_cq_readerr: prov_err 4113: Unreachable remote\n")


def asking(**known: Any) -> Ask:
    return Ask(profile=small(), options=QUICK, **known)


@dataclass
class LoopHost(SpokenHost):
    """fi_pingpong on it fails on the adapters of `broken`, as often as it says there."""

    broken: dict[str, int] = field(default_factory=dict)
    failure: Completed = FAILS
    moves: bool = True  # do the adapters' own counters move?
    runs: list[list[str]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        if argv[0] != "env":
            return super().run(argv, timeout_s)
        with self.lock:
            self.runs.append(list(argv))
        name = argv[argv.index("-d") + 1].removesuffix("-rdm")
        if "localhost" not in argv:
            return printed(PONG)
        self._count(name)
        if self.broken.get(name, 0) > 0:
            self.broken[name] -= 1
            return self.failure
        return printed(PONG)

    def _count(self, name: str) -> None:
        path = f"/sys/class/infiniband/{name if self.moves else names(1)[0]}/ports/1/hw_counters/tx_pkts"
        self.files[path] = str(int(self.files.get(path, "7")) + 20)


def loop_host(count: int = 4, **more: Any) -> LoopHost:
    plain = efa_host(count)
    host = LoopHost(answers=plain.answers, files=plain.files, folders=plain.folders, **more)
    for name in names(count):
        for counter, value in (("tx_pkts", "7"), ("rx_drops", "912"), ("retrans_timeout_events", "3")):
            host.files[f"/sys/class/infiniband/{name}/ports/1/hw_counters/{counter}"] = value
    return host


def test_adapters_that_all_reach_themselves_have_nothing_to_say() -> None:
    assert looked(CHECK, loop_host(), asking()) == []


def test_old_totals_on_the_counters_are_no_finding() -> None:
    """originals 002.9 warns of rx_drops > 0 since boot; 912 old ones say nothing about this test."""
    assert looked(CHECK, loop_host(), asking()) == []


def test_each_run_is_pinned_to_its_own_adapter() -> None:
    """originals 002.9 pinned by FI_EFA_DEVICE_NAME, which libfabric does not know: all runs used one adapter."""
    host = loop_host()
    looked(CHECK, host, asking())
    clients = [argv for argv in host.runs if "localhost" in argv]
    assert sorted(argv[argv.index("-d") + 1] for argv in clients) == [f"{name}-rdm" for name in names(4)]
    for argv in host.runs:
        assert f"FI_EFA_IFACE={argv[argv.index('-d') + 1].removesuffix('-rdm')}" in argv
        assert "FI_EFA_ENABLE_SHM_TRANSFER=0" in argv


def test_no_two_runs_share_a_port() -> None:
    host = loop_host(broken={names(4)[1]: 9})
    looked(CHECK, host, asking())
    ports = [argv[argv.index("-B") + 1] for argv in host.runs]
    assert len(set(ports)) == len(ports)
    assert all(1024 < int(port) < 65_536 for port in ports)


def test_a_pass_that_moved_another_adapters_counter_is_unknown() -> None:
    signs = looked(CHECK, loop_host(moves=False), asking())
    assert [(sign.code, sign.status, sign.count) for sign in signs] == [("tool.unreadable", Status.UNKNOWN, 3)]


def test_one_adapter_that_fails_twice_alone_is_its_own_fault() -> None:
    name = names(4)[2]
    (sign,) = looked(CHECK, loop_host(broken={name: 2}), asking())
    assert sign.code == "efa.loopback"
    assert sign.reason == f"EFA adapter {name} cannot send to itself: its loopback test ended with exit code 1, twice"
    assert "fi_cq_readerr: prov_err 4113: Unreachable remote" in sign.evidence
    assert found(sign).severity is Severity.REBOOT


def test_an_adapter_that_passes_the_repeat_is_well() -> None:
    host = loop_host(broken={names(4)[2]: 1})
    assert looked(CHECK, host, asking()) == []
    assert sum("localhost" in argv for argv in host.runs) == 5


def test_a_hanging_adapter_is_named_as_hanging() -> None:
    (sign,) = looked(CHECK, loop_host(broken={names(4)[0]: 2}, failure=TIMED_OUT), asking())
    assert "did not end in time, twice" in sign.reason


def test_all_adapters_failing_is_the_set_up_and_not_four_broken_parts() -> None:
    (sign,) = looked(CHECK, loop_host(broken=dict.fromkeys(names(4), 2)), asking())
    assert (sign.code, found(sign).severity) == ("efa.loopback-all", Severity.MONITOR)


def test_exit_code_0_without_a_single_pong_is_no_pass() -> None:
    (sign,) = looked(CHECK, loop_host(broken={names(4)[0]: 2}, failure=printed("")), asking())
    assert sign.code == "efa.loopback"


def test_a_missing_pingpong_is_unknown_and_never_a_pass_or_a_treatment() -> None:
    """originals 002.9: no fi_pingpong was SKIP, no fi_info was FAIL/RESET."""
    host = loop_host()
    host.answers.pop("fi_pingpong")
    (sign,) = looked(CHECK, host, asking())
    assert (sign.code, sign.status) == ("tool.missing", Status.UNKNOWN)
    host.answers.pop("fi_info")
    (sign,) = looked(CHECK, host, asking())
    assert (sign.code, sign.status) == ("tool.missing", Status.UNKNOWN)
    assert found(sign).severity is Severity.NONE


def test_a_tool_that_env_cannot_start_is_missing_too() -> None:
    (sign,) = looked(CHECK, loop_host(broken={names(4)[0]: 2}, failure=printed("", 127)), asking())
    assert sign.status is Status.UNKNOWN


def test_a_libfabric_that_offers_nothing_is_unknown_and_isolates_nobody() -> None:
    """originals 002.9: no domain was FAIL/ISOLATE."""
    host = loop_host()
    host.answers["fi_info"] = printed("", 61, "fi_getinfo: -61 (No data available)\n")
    (sign,) = looked(CHECK, host, asking())
    assert (sign.status, sign.evidence) == (Status.UNKNOWN, ("fi_getinfo: -61 (No data available)",))


def test_a_node_that_should_have_no_adapter_has_nothing_to_test() -> None:
    host = SpokenHost(answers={"fi_info": MISSING})
    assert looked(CHECK, host, Ask(profile=small(efas=0), options=QUICK)) == []


def test_packets_lost_during_the_test_are_watched() -> None:
    host = loop_host()
    reading = CHECK.collect(host, asking())
    drops = f"after {names(4)[3]}/rx_drops"
    worse = Reading(reading.done, outputs=reading.outputs, files={**reading.files, drops: "920"})
    (sign,) = CHECK.judge(worse, asking())
    assert (sign.code, sign.evidence) == ("efa.test-errors", ("rx_drops +8",))
    assert found(sign).severity is Severity.MONITOR


def test_the_artefact_is_the_original_suites() -> None:
    host = loop_host(2, broken={names(2)[1]: 2}, failure=TIMED_OUT)
    assert CHECK.keeps is not None
    kept = CHECK.keeps(CHECK.collect(host, asking()))
    assert json.loads(kept[RESULTS]) == [
        {"domain": f"{names(2)[0]}-rdm", "status": "PASS", "exit_code": 0},
        {"domain": f"{names(2)[1]}-rdm", "status": "FAIL", "exit_code": 124},
    ]


def test_the_check_is_deep_has_its_own_time_limit_and_bounds_what_runs_at_once() -> None:
    assert CHECK.deep
    assert (CHECK.number, CHECK.file) == (6, "6-efa-loopback")
    assert CHECK.own_limit_s >= 2 * 32 / AT_ONCE * 180
    assert codes(looked(CHECK, loop_host(32), asking())) == []
