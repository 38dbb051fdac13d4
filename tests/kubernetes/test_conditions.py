"""Node conditions of others, the Draino flow: believed as told, never for more than a cordon, a drain and checks."""

from __future__ import annotations

import pytest

from sickbay import catalog
from sickbay.core import plan, triage
from sickbay.kube.objects import Condition, NodeObject
from sickbay.model import TREATMENTS, Finding, NodeRecord, Severity, Status, Verb
from sickbay.platforms.kubernetes.conditions import Heard, Rule, hear, rules
from sickbay.platforms.kubernetes.memory import Memory
from sickbay.settings import Policy
from tests.kubernetes.stage import StageClock
from tests.kubernetes.test_views import node_of, said, shown, speaking

CATALOG = catalog.load()
T1, T2, T3 = "2026-11-16T03:40:00Z", "2026-11-16T03:50:00Z", "2026-11-16T04:00:00Z"


def told(
    kind: str, status: str, at: str = T1, message: str = "GPU count 7 != 8", boot_id: str = "boot-1"
) -> NodeObject:
    return told_all((kind, status, at), message=message, boot_id=boot_id)


def told_all(*conditions: tuple[str, str, str], message: str = "", boot_id: str = "boot-1") -> NodeObject:
    made = [
        {"type": kind, "status": status, "reason": "GPUsAreDown", "message": message, "lastTransitionTime": at}
        for kind, status, at in conditions
    ]
    return node_of(boot_id=boot_id, conditions=[{"type": "Ready", "status": "True"}, *made])


def heard(node: NodeObject, *wanted: str, memory: Memory | None = None, by_agent: bool = False) -> Heard:
    return hear(node, rules(wanted), memory or Memory(StageClock()), told=by_agent)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("GPUProblem", Rule("GPUProblem", "True", 0.0)),
        ("Ready=Unknown,30m", Rule("Ready", "Unknown", 1800.0)),
        ("AcceleratedHardwareReady=False,10s", Rule("AcceleratedHardwareReady", "False", 10.0)),
        ("example.com/Bad=True,2h", Rule("example.com/Bad", "True", 7200.0)),
    ],
)
def test_conditions_are_written_as_draino_takes_them(text: str, rule: Rule) -> None:
    """originals 003.4."""
    assert rules((text,)) == (rule,)


def test_a_condition_that_stands_is_a_finding_that_quotes_who_set_it() -> None:
    (found,) = heard(told("GPUProblem", "True"), "GPUProblem").findings
    assert (found.source, found.check, found.code, found.status) == (
        "condition", "condition", "condition.GPUProblem", Status.FAILED,
    )  # fmt: skip
    assert found.reason == "Node condition GPUProblem is True: GPU count 7 != 8"
    assert found.evidence == ("GPUProblem=True GPUsAreDown: GPU count 7 != 8",)
    assert found.boot_id == "boot-1"


def test_a_condition_that_nobody_asked_us_to_believe_says_nothing() -> None:
    assert heard(told("KernelDeadlock", "True"), "GPUProblem").findings == ()
    assert heard(told("KernelDeadlock", "True")).findings == ()


def test_the_same_transition_is_the_same_finding_for_ever_and_the_next_one_is_another() -> None:
    (first,), (again,) = (heard(told("GPUProblem", "True"), "GPUProblem").findings for _ in range(2))
    (later,) = heard(told("GPUProblem", "True", T3), "GPUProblem").findings
    assert first.id == again.id
    assert triage.sequence(later.id) > triage.sequence(first.id) > 0


def test_how_long_it_has_stood_is_what_we_watched_ourselves() -> None:
    clock = StageClock()
    memory, node = Memory(clock), told("KernelDeadlock", "True", "1999-01-01T00:00:00Z")
    first = heard(node, "KernelDeadlock=True,10m", memory=memory)
    assert first.findings == ()
    assert first.due_s == pytest.approx(600, abs=1)
    clock.passed += 599
    assert heard(node, "KernelDeadlock=True,10m", memory=memory).findings == ()
    clock.passed += 2
    assert heard(node, "KernelDeadlock=True,10m", memory=memory).findings


def test_a_condition_that_turned_in_between_begins_anew() -> None:
    """originals 003.5 #9: a flapping condition."""
    clock = StageClock()
    memory = Memory(clock)
    heard(told("KernelDeadlock", "True", T1), "KernelDeadlock=True,10m", memory=memory)
    clock.passed += 700
    assert heard(told("KernelDeadlock", "True", T2), "KernelDeadlock=True,10m", memory=memory).findings == ()


def test_a_long_or_hostile_message_is_cut() -> None:
    (found,) = heard(told("GPUProblem", "True", message="x" * 100_000), "GPUProblem").findings
    assert len(found.reason) < 400
    assert all(len(line) < 500 for line in found.evidence)


def test_a_setter_who_cannot_tell_is_not_a_sickness_and_not_health_either() -> None:
    """originals 003.5 #3, #5: Unknown for ever, and nobody was told."""
    node = told_all(("GPUProblem", "Unknown", T1), ("KernelDeadlock", "False", T1))
    (found,) = heard(node, "GPUProblem", "KernelDeadlock").findings
    assert (found.status, found.code) == (Status.UNKNOWN, "condition.GPUProblem")
    assert "cannot tell" in found.reason


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_two_statuses_of_one_condition_are_each_believed(status: str) -> None:
    """Draino's usual pair: Ready=False and Ready=Unknown."""
    clock = StageClock()
    memory, pair = Memory(clock), ("Sound=False,10m", "Sound=Unknown,10m")
    first = heard(told("Sound", status), *pair, memory=memory)
    assert first.findings == ()
    assert first.due_s == pytest.approx(600, abs=1)
    clock.passed += 601
    (found,) = heard(told("Sound", status), *pair, memory=memory).findings
    assert (found.status, found.reason) == (Status.FAILED, f"Node condition Sound is {status}: GPU count 7 != 8")


def test_one_condition_that_passed_does_not_clear_another_that_stands() -> None:
    node = told_all(("A", "False", T3), ("B", "True", T1))
    assert [f.code for f in heard(node, "A", "B").findings] == ["condition.B"]
    both = told_all(("A", "False", T1), ("B", "False", T2))
    (clear,) = heard(both, "A", "B").findings
    assert (clear.status, triage.sequence(clear.id)) == (Status.OK, int(clear.at))
    assert "A, B" in clear.reason


def test_a_condition_that_is_not_there_clears_nothing() -> None:
    assert heard(told("Other", "False"), "GPUProblem").findings == ()


def test_a_condition_without_a_time_is_heard_all_the_same() -> None:
    node = told("GPUProblem", "True")
    assert node.status.conditions
    node.status.conditions[1] = Condition(type="GPUProblem", status="True", message="m")
    assert heard(node, "GPUProblem").findings


# -- GPUProblem has two authors: our agent, and node-problem-detector


def test_our_own_agents_condition_is_not_counted_beside_its_report() -> None:
    """The agent writes GPUProblem and its report in one PATCH: one illness, told once."""
    sick = {"type": "GPUProblem", "status": "True", "reason": "GPUsAreDown", "lastTransitionTime": T1}
    node = speaking(said(), conditions=[{"type": "Ready", "status": "True"}, sick])
    assert [f.source for f in shown(node, conditions=("GPUProblem",)).findings] == ["agent"]


def test_a_problem_that_our_agent_does_not_see_is_node_problem_detectors_and_counts() -> None:
    sick = {"type": "GPUProblem", "status": "True", "reason": "GPUsAreDown", "lastTransitionTime": T1}
    node = speaking(said(findings=()), conditions=[{"type": "Ready", "status": "True"}, sick])
    assert [f.code for f in shown(node, conditions=("GPUProblem",)).findings] == ["condition.GPUProblem"]


# -- what the brain makes of it


def case_of(*findings: Finding) -> tuple[NodeRecord, frozenset[Verb]]:
    node = shown(node_of(boot_id="boot-1"))
    triaged = triage.take(NodeRecord(node.name), node, findings, CATALOG, now=10.0)
    case, record = triage.open_case(
        triaged.record, node, triaged.record.latched, CATALOG, Policy(), now=10.0, at=10.0, cluster=""
    )
    assert case.plan.rungs == (), "a condition brings no rung into the plan, also none beside an agent's finding"
    return record, plan.allowed(case, Policy(max_verb="REPLACE"), frozenset(Verb))


@pytest.mark.parametrize("kind", ["GPUProblem", "KernelDeadlock", "example.com/Something-Own"])
def test_a_condition_cordons_drains_and_verifies_but_never_treats(kind: str) -> None:
    (found,) = heard(told(kind, "True"), kind).findings
    _, verbs = case_of(found)
    assert {Verb.CORDON, Verb.DRAIN, Verb.VERIFY} <= verbs
    assert verbs.isdisjoint(TREATMENTS)


def test_a_condition_is_cleared_only_by_a_later_observation_of_the_same_kind() -> None:
    """originals 003.5 #9: and even then the node is verified before it returns, since CLEARED leads to a drain."""
    node = shown(node_of(boot_id="boot-1"))
    (sick,) = heard(told("GPUProblem", "True", T1), "GPUProblem").findings
    (well,) = heard(told("GPUProblem", "False", T2), "GPUProblem").findings
    record = triage.take(NodeRecord(node.name), node, (sick,), CATALOG, now=10.0).record
    assert [latch.fault for latch in record.latched] == ["reported-condition"]
    absent = triage.take(record, node, (), CATALOG, now=20.0)
    assert absent.record.latched
    (old,) = heard(told("GPUProblem", "False", "2026-11-16T03:00:00Z"), "GPUProblem").findings
    assert triage.take(record, node, (old,), CATALOG, now=20.0).record.latched
    assert not triage.take(record, node, (well,), CATALOG, now=20.0).record.latched


def test_a_condition_beside_an_agents_finding_does_not_raise_its_treatment() -> None:
    """The agent may reset; the condition must not turn that into a reboot."""
    (found,) = heard(told("GPUProblem", "True"), "GPUProblem").findings
    row = CATALOG.fault_of(found.code)
    assert row is not None
    assert (row.ladder, row.severity, row.treats) == ("", Severity.MONITOR, True)
