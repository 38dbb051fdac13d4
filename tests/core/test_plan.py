"""Which rungs, which checks: the catalog's ladders folded together, cut by source, platform and policy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.core import plan
from sickbay.model import TREATMENTS, Phase, Plan, Severity, Verb
from sickbay.settings import LEVELS, Policy
from tests.builders import CATALOG, EVERY_VERB, a_case, a_diagnosis, a_node, a_policy

TREATED = sorted(name for name, fault in CATALOG.faults.items() if fault.treats)
some_faults = st.lists(st.sampled_from(TREATED), min_size=1, max_size=5)


def verbs(*faults: str, before: tuple[str, ...] = ()) -> list[Verb]:
    old = plan.make([a_diagnosis(f) for f in before], CATALOG) if before else None
    return [r.verb for r in plan.make([a_diagnosis(f) for f in faults], CATALOG, before=old).rungs]


def test_one_fault_has_the_ladder_of_its_row() -> None:
    assert verbs("gpu-lost") == [Verb.REBOOT, Verb.POWER_CYCLE, Verb.REPLACE]


def test_two_faults_start_where_the_worse_one_starts() -> None:
    assert verbs("ecc-uncontained", "gpu-lost") == [Verb.REBOOT, Verb.POWER_CYCLE, Verb.REPLACE]


def test_a_fault_without_a_ladder_adds_none() -> None:
    assert verbs("newcomer") == []
    assert verbs("newcomer", "row-remap-failed") == [Verb.REPLACE]


def test_a_raised_severity_starts_on_its_own_rung() -> None:
    """Uncontained on an A100 without MIG: a reset is not enough."""
    raised = a_diagnosis("ecc-uncontained", severity=Severity.REBOOT)
    assert plan.make([raised], CATALOG).rungs[0].verb is Verb.REBOOT


def times(kind: str, before: Plan | None = None) -> dict[Verb, float]:
    node = a_node(factors={plan.TYPE: kind}) if kind else a_node()
    made = plan.make([a_diagnosis("ecc-uncontained"), a_diagnosis("gpu-lost")], CATALOG, before=before, node=node)
    return {rung.verb: rung.timeout_s for rung in made.rungs}


def test_how_long_a_rung_may_take_is_the_profile_s_word() -> None:
    p5, g5 = CATALOG.profiles["p5.48xlarge"], CATALOG.profiles["g5.xlarge"]
    assert times("p5.48xlarge")[Verb.REBOOT] == p5.reboot_s > times("g5.xlarge")[Verb.REBOOT] == g5.reboot_s
    assert times("dgx-h100")[Verb.REPLACE] == CATALOG.profiles["dgx-h100"].replace_s


def test_a_type_nobody_knows_keeps_the_ladder_s_times() -> None:
    ladder = {rung.verb: rung.timeout_s for rung in CATALOG.ladders["reboot-power-replace"]}
    assert times("") == times("a type of its own") == ladder


def test_the_profile_s_times_last_when_findings_join_the_case() -> None:
    opened = plan.make([a_diagnosis("gpu-lost")], CATALOG, node=a_node(factors={plan.TYPE: "g5.xlarge"}))
    assert times("g5.xlarge", before=opened)[Verb.REBOOT] == CATALOG.profiles["g5.xlarge"].reboot_s


@given(some_faults, some_faults)
def test_a_new_plan_is_never_below_the_old_one(old: list[str], new: list[str]) -> None:
    before, after = verbs(*old), verbs(*new, before=tuple(old))
    if before:
        assert TREATMENTS.index(after[0]) >= TREATMENTS.index(before[0])


@given(some_faults)
def test_rungs_climb_and_never_repeat(faults: list[str]) -> None:
    order = [TREATMENTS.index(v) for v in verbs(*faults)]
    assert order == sorted(set(order))


@given(some_faults)
def test_the_examination_always_has_the_light_suite_and_every_fault_s_own_checks(faults: list[str]) -> None:
    made = plan.make([a_diagnosis(f) for f in faults], CATALOG)
    assert set(plan.LIGHT) <= set(made.verify_with)
    assert all(set(CATALOG.faults[f].verify_with) <= set(made.verify_with) for f in faults)


@pytest.mark.parametrize(
    ("source", "may"),
    [
        ("agent", EVERY_VERB),
        ("condition", {Verb.CORDON, Verb.DRAIN, Verb.VERIFY}),
        ("sweep", {Verb.CORDON, Verb.VERIFY}),
        ("llm", {Verb.CORDON, Verb.VERIFY}),
        ("job", set()),
        ("a stranger", set()),
    ],
)
def test_a_source_may_cause_only_what_its_ceiling_allows(source: str, may: set[Verb]) -> None:
    case = a_case(diagnoses=(a_diagnosis(source=source),))
    assert plan.allowed(case, a_policy(), EVERY_VERB) == may


@pytest.mark.parametrize("level", LEVELS)
def test_the_policy_lets_us_go_so_far_and_no_further(level: str) -> None:
    allowed = plan.allowed(a_case(), replace(a_policy(), max_verb=level), EVERY_VERB)
    beyond = {Verb(name) for name in LEVELS[LEVELS.index(level) + 1 :]}
    assert not allowed & beyond
    assert {Verb.VERIFY, Verb.RELEASE, Verb.COLLECT} <= allowed


def test_a_fresh_install_only_observes() -> None:
    assert not plan.allowed(a_case(Phase.WAITING), Policy(), EVERY_VERB) & {Verb.CORDON, Verb.DRAIN, *TREATMENTS}


def test_what_the_platform_cannot_do_is_not_allowed() -> None:
    assert Verb.POWER_CYCLE not in plan.allowed(a_case(), a_policy(), EVERY_VERB - {Verb.POWER_CYCLE})
