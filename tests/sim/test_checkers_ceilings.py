"""The judge of whose word caused what, made to complain and made content."""

from __future__ import annotations

import pytest

from sickbay.model import Action, Case, Diagnosis, Phase, Place, Severity, Verb, When
from tests.builders import a_case
from tests.sim.ward import Ward

NODE = "node-0005"


def told(fault: str, code: str, source: str) -> Diagnosis:
    return Diagnosis(fault, Place(NODE), Severity.REBOOT, When.NOW, 0.9, (), 0.0, code, source)


def after(*diagnoses: Diagnosis, verb: Verb = Verb.REBOOT) -> list[str]:
    """Who complains of this treatment by a case with these diagnoses."""
    ward = Ward(brains=0)
    case: Case = a_case(Phase.REPAIRING, node=NODE, diagnoses=diagnoses)
    ward.run.store.create(case)
    ward.judge.look()
    ward.world.treatments.begin(f"{case.id}/7", verb, ward.world.nodes[NODE])
    ward.judge.look()
    return [by for by in ward.judge.by if by == "WithinCeilings"]


def test_a_treatment_that_only_a_webhook_asked_for() -> None:
    assert after(told("gpu-lost", "xid.79", "webhook")) == ["WithinCeilings"]


def test_a_rung_that_only_the_webhooks_fault_has() -> None:
    agents, webhooks = told("ecc-double-bit", "xid.48", "agent"), told("gpu-lost", "xid.79", "webhook")
    assert after(agents, webhooks, verb=Verb.POWER_CYCLE) == ["WithinCeilings"]


@pytest.mark.parametrize("source", ["agent", "monitor"])
def test_what_a_strong_witness_asked_for_beside_a_weak_one_is_right(source: str) -> None:
    assert after(told("gpu-lost", "xid.79", source), told("gpu-lost-silent", "smi.gpu-lost", "webhook")) == []


@pytest.mark.parametrize(
    ("fault", "severity", "complained"),
    [
        ("row-remap-pending", Severity.RESET, True),
        ("gpu-lost", Severity.REBOOT, False),
        ("row-remap-pending", Severity.REBOOT, False),  # the driver itself asks for more than a reset
    ],
)
def test_work_is_stopped_for_what_can_wait_though_the_nodes_own_agent_said_it(
    fault: str, severity: Severity, complained: bool
) -> None:
    ward = Ward(brains=0)
    ward.submit("llama", (NODE,))
    ward.passes(1200.0)
    found = Diagnosis(fault, Place(NODE), severity, When.NOW, 0.9, (), 0.0, "", "agent")
    case: Case = a_case(Phase.DRAINING, node=NODE, diagnoses=(found,))
    ward.run.store.create(case)
    ward.judge.look()
    ward.run.platform.perform(Action(f"{case.id}/2", Verb.CORDON, Place(NODE)))
    ward.run.platform.perform(Action(f"{case.id}/4", Verb.DRAIN, Place(NODE)))
    ward.judge.look()
    assert ("WithinCeilings" in ward.judge.by) is complained


def test_a_rung_that_is_on_no_ladder_of_what_the_agent_said() -> None:
    assert after(told("ecc-double-bit", "xid.48", "agent"), verb=Verb.POWER_CYCLE) == ["WithinCeilings"]
