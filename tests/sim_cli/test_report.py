"""The counting itself, on cases built by hand: docs/metrics.md as arithmetic."""

from __future__ import annotations

from sickbay.core.spans import split
from sickbay.model import Case, Diagnosis, Entry, Phase, Place, Plan, Severity, Verb, When
from sickbay.sim.report import corrupted_lineages, false_disruption_rate, mttr, relapse
from sickbay.sim.world import Fact

DAY = 86_400.0
T0 = 1_790_000_000.0  # wall time of the first line of evidence


def case(
    name: str = "node-1.1", *, phases: tuple[tuple[Phase, float], ...], opened: float = 4.0,
    fault: str = "gpu-lost", part: str = "", rungs: tuple[Verb, ...] = (Verb.REBOOT,), events: tuple[str, ...] = (),
    instance: str = "i-1", newcomer: bool = False,
) -> Case:  # fmt: skip
    node = name.rpartition(".")[0]
    what = Diagnosis(fault, Place(node), Severity.REBOOT, When.NOW, 1.0, ("line",), 0.0, part=part)
    return Case(
        name, node, "uid", "default", (what,), Plan(), phases[-1][0], 9, T0 + opened, 0.0, None, instance=instance,
        rungs_tried=rungs, newcomer=newcomer, timeline=tuple((p.value, T0 + at) for p, at in phases),
        journal=tuple(Entry(1, e, 0.0, "sickbay", "") for e in events), first_evidence_at=T0,
    )  # fmt: skip


# The worked example of docs/metrics.md, in seconds from its first line of evidence.
EXAMPLE = (
    (Phase.SUSPECTED, 4.0), (Phase.CORDONING, 4.0), (Phase.HOLDING, 5.0), (Phase.DRAINING, 15.0),
    (Phase.COLLECTING, 330.0), (Phase.QUEUED, 390.0), (Phase.REPAIRING, 390.0), (Phase.VERIFYING, 1_110.0),
    (Phase.RETURNING, 1_430.0), (Phase.RESOLVED, 1_440.0),
)  # fmt: skip


def test_the_five_parts_are_those_of_the_worked_example() -> None:
    parts = split(case(phases=EXAMPLE), T0 + 1_440.0)
    assert parts == {"detect": 4.0, "decide": 0.0, "drain": 326.0, "repair": 780.0, "verify": 330.0}
    assert sum(parts.values()) == 24 * 60


def test_a_replaced_node_is_back_when_its_successor_has_passed_its_checks() -> None:
    old = case(phases=(*EXAMPLE[:7], (Phase.RESOLVED, 1_200.0)), events=("REPLACED",), rungs=(Verb.REPLACE,))
    new = case("node-1.2", phases=((Phase.SUSPECTED, 1_210.0), (Phase.RESOLVED, 1_500.0)), opened=1_210.0,
               instance="i-2", newcomer=True)  # fmt: skip
    assert mttr([old, new], [], T0 + 2_000.0).mean_s == 1_500.0
    alone = mttr([old], [], T0 + 2_000.0)
    assert (alone.cases, alone.censored, alone.censored_at_least_s) == (0, 1, 2_000.0)


def test_open_and_escalated_cases_are_censored_and_never_dropped() -> None:
    stuck = case(phases=((Phase.CORDONING, 4.0), (Phase.ESCALATED, 90.0)))
    counted = mttr([], [stuck], T0 + 1_000.0)
    assert (counted.cases, counted.censored, counted.censored_at_least_s) == (0, 1, 1_000.0)


def test_a_part_that_fails_in_another_machine_is_a_relapse_and_a_new_part_is_not() -> None:
    first = case(phases=EXAMPLE, part="s-1", rungs=(Verb.REPLACE,))
    moved = case("node-2.1", phases=((Phase.WAITING, 2 * DAY),), opened=2 * DAY, part="s-1")
    other = case("node-1.2", phases=((Phase.WAITING, 2 * DAY),), opened=2 * DAY, part="s-2")
    assert relapse([first, moved], T0 + 30 * DAY).relapsed == 1
    assert relapse([first, other], T0 + 30 * DAY).relapsed == 0


def test_a_case_younger_than_a_week_cannot_tell_whether_it_relapses() -> None:
    counted = relapse([case(phases=EXAMPLE)], T0 + 2 * DAY)
    assert (counted.resolved, counted.censored) == (0, 1)


def test_a_case_that_passed_untreated_is_a_false_disruption() -> None:
    treated, untreated = case(phases=EXAMPLE), case("node-2.1", phases=EXAMPLE, rungs=())
    never_cordoned = case("node-3.1", phases=((Phase.SUSPECTED, 4.0), (Phase.DISMISSED, 9.0)), rungs=())
    assert false_disruption_rate([treated, untreated, never_cordoned]) == 0.5


def test_one_corrupt_lineage_counts_once_however_often_it_is_restarted() -> None:
    def facts(*kinds: str) -> list[Fact]:
        return [Fact(float(i), kind, "", {"job": "train"}) for i, kind in enumerate(kinds)]

    assert corrupted_lineages(facts("place", "corrupt-restart", "place", "corrupt-restart")) == 1
    assert corrupted_lineages(facts("place", "corrupt-restart", "place", "place", "corrupt-restart")) == 2
