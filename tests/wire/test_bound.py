"""A case is one object of bounded size: 128 entries and 64 KB, whatever happens to it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay import wire
from sickbay.model import Case, Diagnosis, Entry, Notice, Phase, Place, Plan, Recovery, RecoveryPhase, Severity, When

ESCAPE = "\x1b"  # six bytes each in JSON


def a_case(entries: int, why: str = "why", because: tuple[str, ...] = ("line",), diagnoses: int = 1) -> Case:
    sick = Diagnosis("gpu-lost", Place("n1"), Severity.REBOOT, When.NOW, 1.0, because, 0.0)
    case = Case("n1.1", "n1", "u", "p", (sick,) * diagnoses, Plan(), Phase.WAITING, 1, 0.0, 0.0, None)
    return replace(case, journal=_journal(entries, why))


def _journal(entries: int, why: str) -> tuple[Entry, ...]:
    return tuple(Entry(step, "DONE", float(step), "sickbay", why) for step in range(entries))


def _steps(record: Case | Recovery) -> list[int]:
    return [entry.step for entry in record.journal]


@pytest.mark.parametrize("entries", [0, 1, 128])
def test_a_case_within_bounds_is_the_very_same_object(entries: int) -> None:
    case = a_case(entries)
    assert wire.bound(case) is case


def test_the_first_entries_and_the_newest_stay_and_the_rest_is_counted() -> None:
    bounded = wire.bound(a_case(300))
    assert _steps(bounded) == [*range(8), *range(180, 300)]
    assert bounded.dropped_entries == 172


def test_dropped_entries_add_up_as_a_case_grows_one_entry_at_a_time() -> None:
    case = a_case(0)
    for entry in _journal(500, "why"):
        case = wire.bound(replace(case, journal=(*case.journal, entry)))
    assert _steps(case) == [*range(8), *range(380, 500)]
    assert case.dropped_entries == 372


def test_long_reasons_are_cut_and_say_so() -> None:
    bounded = wire.bound(a_case(20, why="x" * 100_000))
    assert all(len(entry.why) <= 1024 and entry.why.endswith("…") for entry in bounded.journal)
    assert len(wire.encode(bounded)) <= wire.MAX_BYTES


def test_long_evidence_is_cut_to_its_first_lines() -> None:
    bounded = wire.bound(a_case(1, because=tuple(f"{n} " + "y" * 4000 for n in range(100))))
    (diagnosis,) = bounded.diagnoses
    assert [line.split()[0] for line in diagnosis.because] == [str(n) for n in range(16)]
    assert max(map(len, diagnosis.because)) == 512


def test_a_recovery_is_bounded_too() -> None:
    recovery = Recovery("job", RecoveryPhase.RUNNING, 0, 0, 0.0, None, journal=_journal(300, "why"))
    assert _steps(wire.bound(recovery)) == [*range(8), *range(180, 300)]
    shouting = replace(recovery, tracebacks=("z" * 90_000,) * 50, because=("q" * 9_000,) * 50)
    assert len(wire.encode(wire.bound(shouting))) <= wire.MAX_BYTES


def test_a_notice_nobody_could_deliver_does_not_outgrow_the_record() -> None:
    case = replace(a_case(5), notices=(Notice("k", "urgent", "t", "b" * 500_000),))
    bounded = wire.bound(case)
    assert len(wire.encode(bounded)) <= wire.MAX_BYTES
    assert bounded.notices[0].key == "k"


def test_the_timeline_is_bounded_as_the_journal_is() -> None:
    case = replace(a_case(1), timeline=tuple((f"P{n}", float(n)) for n in range(500)))
    times = [at for _, at in wire.bound(case).timeline]
    assert times == [*map(float, range(8)), *map(float, range(380, 500))]


@settings(max_examples=60, deadline=None)
@given(
    entries=st.integers(0, 200),
    why=st.sampled_from(["", "why", "x" * 600, ESCAPE * 500, "é" * 2000, "x" * 50_000]),
    because=st.sampled_from([(), ("line",), (ESCAPE * 400,) * 30, ("x" * 9000,) * 3]),
    diagnoses=st.integers(0, 40),
)
def test_whatever_comes_in_the_result_is_bounded_and_stable(
    entries: int, why: str, because: tuple[str, ...], diagnoses: int
) -> None:
    case = a_case(entries, why, because, diagnoses)
    bounded = wire.bound(case)
    assert len(bounded.journal) <= wire.MAX_ENTRIES
    assert len(wire.encode(bounded)) <= wire.MAX_BYTES
    assert wire.bound(bounded) == bounded
    assert len(bounded.journal) + bounded.dropped_entries == entries
    assert _steps(bounded)[:8] == list(range(min(entries, 8)))
