"""What a source may cause it may cause in whoever's case, and no more: over all pairs of sources."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from sickbay.core import triage
from sickbay.core.witness import weight
from sickbay.model import Latch, Phase, Severity, Verb, When
from sickbay.settings import CEILINGS
from tests.builders import CATALOG, a_finding, a_gpu, a_node, a_pass, a_policy
from tests.core.bedside import Bedside

SOURCES = tuple(CEILINGS)
PAIRS = [(a, b) for a, b in product(SOURCES, SOURCES) if weight(b, CEILINGS) < weight(a, CEILINGS)]
MILD, GRAVE = "xid.63", "xid.79"  # a row to be remapped (idle, reset); a GPU lost (now, reboot)


def opened(source: str, code: str = MILD) -> Bedside:
    bed = Bedside(node=a_node(jobs=("llama",), gpus=(a_gpu(),)), policy=a_policy(approval=()))
    bed.busy = True
    return bed.finds(code, source=source, check="kernel-log")


def latch(bed: Bedside, code: str) -> Latch | None:
    return next((la for la in bed.record.latched if la.code == code), None)


def test_there_are_pairs_to_look_at() -> None:
    assert len(PAIRS) >= 20
    assert ("agent", "webhook") in PAIRS


@pytest.mark.parametrize(("strong", "weak"), PAIRS)
def test_a_weaker_source_adds_no_rung_no_haste_and_no_severity_beyond_its_own(strong: str, weak: str) -> None:
    alone, both = opened(strong), opened(strong).finds(GRAVE, 2, source=weak, check="other")
    ceiling = CEILINGS[weak]
    added = {r.verb for r in both.case.plan.rungs} - {r.verb for r in alone.case.plan.rungs}
    lost = {r.verb for r in alone.case.plan.rungs} - {r.verb for r in both.case.plan.rungs}
    assert added <= ceiling
    assert not lost or ceiling & frozenset(r.verb for r in both.case.plan.rungs)
    if Verb.DRAIN not in ceiling:
        assert triage.soonest(both.case.diagnoses) is triage.soonest(alone.case.diagnoses)
    if not ceiling & {Verb.RESET_GPU, Verb.REBOOT, Verb.REPLACE}:
        assert triage.severity(both.case) == triage.severity(alone.case) or triage.severity(both.case) is (
            Severity.MONITOR
        )


def test_a_webhooks_lost_gpu_in_an_agents_idle_case_takes_no_rung_and_drains_no_job() -> None:
    """It dropped RESET from the ladder and drained the running job."""
    bed = opened("agent").until(Phase.HOLDING).waits(60.0)
    assert bed.phase is Phase.HOLDING
    bed.finds(GRAVE, 2, source="webhook", check="webhook").waits(3_600.0)
    assert bed.phase is Phase.HOLDING, "the job goes on"
    assert bed.case.plan.rungs[0].verb is Verb.RESET_GPU
    assert triage.soonest(bed.case.diagnoses) is When.IDLE


@pytest.mark.parametrize(("strong", "weak"), PAIRS)
def test_a_weaker_repeat_leaves_the_verdict_to_its_strongest_witness(strong: str, weak: str) -> None:
    bed = opened(strong, GRAVE)
    before = latch(bed, GRAVE)
    bed.now += 5.0
    bed.finds(GRAVE, 99, source=weak, check="other", boot="another-boot").finds(GRAVE, 100, source=weak, check="other")
    assert latch(bed, GRAVE) == before
    assert all(d.source == strong for d in bed.case.diagnoses if d.code == GRAVE) or bed.last is None


PASSED = sorted(
    (code, CATALOG.faults[row.fault].cleared_by.removeprefix("pass:"))
    for code, row in CATALOG.codes.items()
    if CATALOG.faults[row.fault].treats and CATALOG.faults[row.fault].cleared_by.startswith("pass:")
)[:3]


@pytest.mark.parametrize(("strong", "weak"), PAIRS)
@pytest.mark.parametrize(("code", "check"), PASSED)
def test_a_weaker_source_never_acquits(code: str, check: str, strong: str, weak: str) -> None:
    bed = Bedside().finds(code, source=strong, check=check)
    before = bed.record.latched
    assert before
    assert bed.reports(replace(a_pass(check, 500), source=weak)).record.latched == before
    assert bed.reports(replace(a_pass(check, 501), source=strong)).record.latched == ()


def test_what_an_outsider_says_in_the_same_breath_swallows_nothing() -> None:
    """An uncontained error swallows a contained one of the same GPU: but not an agent's by a webhook's."""
    bed = Bedside().reports(
        a_finding("xid.94", 1, source="agent"), a_finding("xid.95", 2, source="webhook", check="webhook")
    )
    assert {(la.code, la.source) for la in bed.record.latched} == {("xid.94", "agent"), ("xid.95", "webhook")}
    assert triage.soonest(bed.case.diagnoses) is triage.soonest(Bedside().finds("xid.94").case.diagnoses)


@pytest.mark.parametrize(("strong", "weak"), PAIRS)
def test_a_stronger_source_is_heard_although_a_weaker_one_has_said_it(strong: str, weak: str) -> None:
    bed = opened(weak, GRAVE).finds(GRAVE, 2, source=strong, check="kernel-log")
    found = latch(bed, GRAVE)
    if found is not None:
        assert found.source == strong


def test_an_outsiders_lie_does_not_hide_what_the_agent_sees_from_another_side() -> None:
    """A lost GPU swallows "one GPU too few": but not an agent's word by a webhook's."""
    bed = opened("webhook", GRAVE).finds("smi.gpu-missing", 2, source="agent", check="nvidia-smi")
    sources = {la.source for la in bed.record.latched}
    assert "agent" in sources or not any(f.code == "smi.gpu-missing" for f in (bed.node.findings if bed.node else ()))


def test_an_outsider_who_repeats_himself_does_not_put_off_the_treatment() -> None:
    bed = opened("webhook", GRAVE)
    seen = [la.seen for la in bed.record.latched]
    for n in range(2, 9):
        bed.now += 5.0
        bed.finds(GRAVE, n, source="webhook", check="kernel-log")
    assert [la.seen for la in bed.record.latched] == seen


def test_a_passed_examination_is_not_followed_by_a_stronger_treatment_on_an_outsiders_word() -> None:
    bed = Bedside(policy=a_policy(approval=())).finds(MILD, source="agent", check="kernel-log")
    bed.finds(GRAVE, 2, source="webhook", check="webhook", device="0000:99:00").until(
        Phase.VERIFYING
    ).verified().turns()
    assert Verb.REBOOT not in bed.case.rungs_tried
    assert bed.phase in (Phase.ESCALATED, Phase.RETURNING, Phase.RESOLVED)
