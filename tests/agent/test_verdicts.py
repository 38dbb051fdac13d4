"""What an agent believes of its node, and what ends it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sickbay.agent.verdicts import MOST, Verdicts, booted, cleared, glimpse, reset, take, verdict_of
from sickbay.model import Finding, Place, Severity, Status
from tests.agent.builders import BOOT, CATALOG, GPU, NODE, a_finding, blind, passed

WELL = (passed("nvidia-smi", 1), passed("topology", 2))


def after(*cycles: tuple[Finding, ...]) -> Verdicts:
    state = Verdicts()
    for cycle in cycles:
        state = take(state, cycle, CATALOG)
    return state


def codes(state: Verdicts) -> set[str]:
    return {verdict.finding.code for verdict in state.latched}


def test_a_fault_stays_when_its_lines_have_scrolled_away() -> None:
    """originals 002.12 #13: noise aged an Xid out of the log and the node healed by itself."""
    state = after((a_finding("xid.79", 1),), (passed("nvidia-smi", 9),), (passed("nvidia-smi", 10),))
    assert codes(state) == {"xid.79"}
    assert verdict_of(state).status == "fail"


def test_a_failed_level_2_diagnostic_latches_until_level_2_passes() -> None:
    """originals 002.12 #5: the next five-minute cycle wiped the L2 failure and the taint with it."""
    failed = a_finding("dcgm.DCGM_FR_FAULTY_MEMORY", 3, check="dcgm-l2")
    assert failed.severity > Severity.MONITOR
    state = after((failed,), (passed("nvidia-smi", 4),), (passed("nvidia-smi", 5), passed("topology", 6)))
    assert verdict_of(state).status == "fail"
    assert not codes(take(state, (passed("dcgm-l2", 7),), CATALOG))


def test_a_later_weaker_finding_of_the_same_check_erases_nothing() -> None:
    """originals 002.12 #1: "persistence mode disabled" overwrote Xid 79, and the node ended as warn."""
    lost, watched = a_finding("smi.gpu-lost", 1, check="nvidia-smi"), a_finding("smi.made-up", 2, check="nvidia-smi")
    assert watched.severity is Severity.MONITOR
    assert verdict_of(after((lost,), (watched,))).severity is Severity.REBOOT
    both = after((a_finding("xid.79", 1), a_finding("xid.13", 2)))
    assert verdict_of(both).severity is Severity.REBOOT


def test_a_healthy_node_is_pass_with_no_severity() -> None:
    """originals 002.12 #2: healthy nodes were labelled pass:SKIP."""
    verdict = verdict_of(after(WELL))
    assert (verdict.status, verdict.severity) == ("pass", Severity.NONE)


def test_monitor_is_a_warning_and_no_failure() -> None:
    """originals 002.12 #7: a WARN tainted the node although MONITOR means: keep it in service."""
    state = after(WELL, (a_finding("xid.13", 5),))
    verdict = verdict_of(state)
    assert (verdict.status, verdict.severity) == ("warn", Severity.MONITOR)


def test_only_the_named_check_clears() -> None:
    lost = a_finding("smi.gpu-lost", 1, check="nvidia-smi")  # cleared by pass:nvidia-smi
    assert codes(after((lost,), (passed("topology", 2), passed("dcgm-l2", 3)))) == {"smi.gpu-lost"}
    assert not codes(after((lost,), (passed("nvidia-smi", 2),)))


def test_a_pass_that_is_older_than_the_finding_clears_nothing() -> None:
    """Threads overlap: an answer collected before the line was printed says nothing about it."""
    state = take(after((a_finding("xid.13", 5),)), (passed("nvidia-smi", 4),), CATALOG)
    assert codes(state) == {"xid.13"}


def test_a_check_that_passes_early_in_a_cycle_does_not_end_what_another_still_sees() -> None:
    """nvlink-down is believed after three cycles and cleared by nvidia-smi, which passes in each of them."""

    def cycle(n: int) -> tuple[Finding, ...]:
        return passed("nvidia-smi", n), a_finding(DOWN, n + 1, check="topology")

    state = after(cycle(10), cycle(20))
    assert verdict_of(state).status != "fail"
    assert verdict_of(take(state, cycle(30), CATALOG)).status == "fail"


DOWN = next(code for code, row in CATALOG.codes.items() if row.fault == "nvlink-down")


def test_three_in_a_row_means_in_a_row() -> None:
    sick = a_finding(DOWN, 1, check="topology")
    state = after((sick,), (replace(sick, id=f"{BOOT}/2"),), (passed("topology", 3),))
    assert not codes(state)
    state = take(state, (replace(sick, id=f"{BOOT}/4"),), CATALOG)
    assert verdict_of(take(state, WELL[:1], CATALOG)).status != "fail"


def test_twice_in_one_look_is_not_twice_in_a_row() -> None:
    sick = a_finding(DOWN, 1, check="topology")
    state = after((sick, replace(sick, id=f"{BOOT}/2"), replace(sick, id=f"{BOOT}/3")))
    assert not state.believed()


def test_what_is_new_and_grave_is_latched_in_the_middle_of_a_cycle_and_counted_once() -> None:
    lost = a_finding("smi.gpu-lost", 1, check="nvidia-smi")
    state = glimpse(Verdicts(), (lost,), CATALOG)
    assert verdict_of(state).status == "fail"
    assert take(state, (lost,), CATALOG).latched[0].polls == 1


def test_unknown_neither_sets_nor_clears() -> None:
    state = after((a_finding("smi.gpu-lost", 1, check="nvidia-smi"),), (blind("nvidia-smi", 2),))
    assert codes(state) == {"smi.gpu-lost"}
    assert not codes(after((blind("nvidia-smi", 1),)))


def test_a_node_whose_gpus_cannot_be_looked_at_is_unknown_and_never_well() -> None:
    assert verdict_of(Verdicts()).status == "unknown"
    assert verdict_of(after(WELL, (blind("nvidia-smi", 5, "tool.missing"),))).status == "unknown"


def test_a_warning_does_not_hide_that_the_gpus_cannot_be_seen() -> None:
    assert verdict_of(after((blind("nvidia-smi", 1),), (a_finding("xid.13", 2),))).status == "unknown"


def test_a_tool_that_cannot_be_killed_for_three_cycles_is_a_hung_driver_and_a_slow_one_is_none() -> None:
    """originals 003.5 #5: a hanging nvidia-smi was UNKNOWN for ever, so the commonest failure was never acted upon."""
    stuck = [(a_finding("smi.driver-hung", n, check="nvidia-smi"),) for n in (1, 2, 3)]
    assert [verdict_of(after(*stuck[:n])).status == "fail" for n in (1, 2, 3)] == [False, False, True]
    slow = [(blind("nvidia-smi", n),) for n in range(1, 10)]
    assert verdict_of(after(*slow)).status == "unknown"


def test_a_boot_clears_what_a_boot_clears_once_the_machine_has_settled() -> None:
    state = after((a_finding("xid.79", 1),))
    assert codes(booted(state, BOOT, 9_999.0, CATALOG)) == {"xid.79"}
    assert codes(booted(state, "boot-b", 5.0, CATALOG)) == {"xid.79"}
    assert not codes(booted(state, "boot-b", 600.0, CATALOG))


def test_a_boot_does_not_clear_what_only_an_operator_may() -> None:
    state = after((a_finding("smi.remap-failed", 1, check="nvidia-smi"),))
    assert codes(booted(state, "boot-b", 9_999.0, CATALOG)) == {"smi.remap-failed"}
    assert codes(reset(state, (), CATALOG)) == {"smi.remap-failed"}
    assert not codes(cleared(state))


def test_a_reset_ends_the_xids_of_the_gpu_it_touched() -> None:
    """originals 002.12 #13: after a GPU reset an old Xid kept the node failing."""
    here = a_finding("xid.48", 1)
    there = a_finding("xid.48", 2, place=Place(NODE, "0000:86:00"))
    state = reset(after((here, there)), (GPU,), CATALOG)
    assert [verdict.finding.place.device for verdict in state.latched] == ["0000:86:00"]
    assert not reset(state, (), CATALOG).latched


def test_an_operator_clears_one_device_or_all() -> None:
    state = after((a_finding("xid.79", 1), a_finding("xid.79", 2, place=Place(NODE, "0000:86:00"))))
    assert len(cleared(state, GPU).latched) == 1
    assert not cleared(state).latched


def test_the_worst_words_stay_under_the_newest_number() -> None:
    bad = a_finding("xid.154", 1, severity=Severity.REBOOT, reason="reboot required")
    mild = a_finding("xid.154", 2, severity=Severity.MONITOR, status=Status.DEGRADED, reason="none")
    kept = after((bad,), (mild,)).latched[0].finding
    assert (kept.reason, kept.id, kept.count, kept.severity) == ("reboot required", f"{BOOT}/2", 2, Severity.REBOOT)


def test_beyond_the_bound_the_worst_are_kept() -> None:
    many = tuple(a_finding("xid.13", n, place=Place(NODE, f"0000:{n:02x}:00")) for n in range(1, 200))
    state = after(many, (a_finding("xid.79", 999),))
    assert len(state.latched) == MOST
    assert "xid.79" in codes(state)


def test_a_report_has_the_worst_first() -> None:
    state = after((*WELL, a_finding("xid.13", 5), a_finding("xid.79", 6), blind("clock", 7)))
    assert [f.code for f in state.findings()] == ["xid.79", "xid.13", "tool.timeout", "", ""]


CODES = st.sampled_from(["xid.79", "xid.13", "smi.gpu-lost", DOWN, "smi.remap-failed", "no.such-code"])
CHECKS = st.sampled_from(["kernel-log", "nvidia-smi", "topology", "dcgm-l2"])
ANSWERS = st.one_of(
    st.builds(lambda code, check: a_finding(code, check=check), CODES, CHECKS),
    st.builds(lambda check: passed(check, 0), CHECKS),
    st.builds(lambda check: blind(check, 0), CHECKS),
)


@given(st.lists(st.lists(ANSWERS, max_size=4), max_size=8))
def test_what_needs_a_reboot_never_goes_by_any_sequence_of_answers(cycles: list[list[Finding]]) -> None:
    state, number = after((a_finding("xid.79", 1),)), 1
    for cycle in cycles:
        numbered = []
        for finding in cycle:
            number += 1
            numbered.append(replace(finding, id=f"{BOOT}/{number}"))
        state = take(state, numbered, CATALOG)
        assert "xid.79" in codes(state)
        assert verdict_of(state).status == "fail"
