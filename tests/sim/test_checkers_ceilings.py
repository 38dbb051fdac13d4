"""The judge of whose word caused what, made to complain and made content."""

from __future__ import annotations

import pytest

from sickbay.model import Action, Case, Diagnosis, Phase, Place, Severity, Verb, When
from tests.builders import a_case
from tests.sim.ward import Ward

NODE = "node-0005"


def told(fault: str, code: str, source: str) -> Diagnosis:
    return Diagnosis(fault, Place(NODE), Severity.REBOOT, When.NOW, 0.9, (), 0.0, code, source)


def is_said(ward: Ward, d: Diagnosis) -> None:
    """In truth: by the tools to the node's agent, or by somebody outside. What only the controller sees nobody says."""
    if d.source == "agent":
        ward.world.agents.printed.setdefault(NODE, {})[d.code] = ward.world.now
    elif d.source != "monitor":
        ward.world.outsiders.accuse(d.source, NODE, d.code, 1)


def after(*diagnoses: Diagnosis, verb: Verb = Verb.REBOOT, said: tuple[Diagnosis, ...] | None = None) -> list[str]:
    """Who complains of this treatment by a case with these diagnoses; `said`: what was truly said, else all of it."""
    ward = Ward(brains=0)
    for each in diagnoses if said is None else said:
        is_said(ward, each)
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


@pytest.mark.parametrize(("code", "source"), [("xid.79", "agent"), ("monitor.not-ready", "monitor")])
def test_what_a_strong_witness_asked_for_beside_a_weak_one_is_right(code: str, source: str) -> None:
    assert after(told("gpu-lost", code, source), told("gpu-lost-silent", "smi.gpu-lost", "webhook")) == []


@pytest.mark.parametrize("source", ["agent", "monitor"])
def test_a_record_that_has_an_outsiders_word_from_somebody_stronger_convinces_nobody(source: str) -> None:
    record, truth = told("gpu-lost", "xid.79", source), told("gpu-lost", "xid.79", "webhook")
    assert after(record, said=(truth,)) == ["WithinCeilings"]


@pytest.mark.parametrize("source", ["agent", "monitor", "operator"])
def test_what_nobody_ever_said_is_nobodys_word(source: str) -> None:
    assert after(told("gpu-lost", "xid.79", source), said=()) == ["WithinCeilings"]


@pytest.mark.parametrize(
    ("fault", "code", "also", "complained"),
    [
        ("row-remap-pending", "xid.63", "", True),
        ("gpu-lost", "xid.79", "", False),
        ("row-remap-pending", "xid.63", "xid.154", False),  # the driver itself asks for more than a reset
    ],
)
def test_work_is_stopped_for_what_can_wait_though_the_nodes_own_agent_said_it(
    fault: str, code: str, also: str, complained: bool
) -> None:
    ward = Ward(brains=0)
    ward.submit("llama", (NODE,))
    ward.passes(1200.0)
    found = Diagnosis(fault, Place(NODE), Severity.REBOOT, When.NOW, 0.9, (), 0.0, code, "agent")
    for said in (code, also):
        ward.world.agents.printed.setdefault(NODE, {})[said] = ward.world.now
    case: Case = a_case(Phase.DRAINING, node=NODE, diagnoses=(found,))
    ward.run.store.create(case)
    ward.judge.look()
    ward.run.platform.perform(Action(f"{case.id}/2", Verb.CORDON, Place(NODE)))
    ward.run.platform.perform(Action(f"{case.id}/4", Verb.DRAIN, Place(NODE)))
    ward.judge.look()
    assert ("WithinCeilings" in ward.judge.by) is complained


def test_a_rung_that_is_on_no_ladder_of_what_the_agent_said() -> None:
    assert after(told("ecc-double-bit", "xid.48", "agent"), verb=Verb.POWER_CYCLE) == ["WithinCeilings"]


@pytest.mark.parametrize(("same_parts", "complained"), [(True, False), (False, True)])
def test_a_machine_is_given_back_for_a_gpu_that_is_said_to_have_been_sent_away(
    same_parts: bool, complained: bool
) -> None:
    """By the world's truth: a GPU was condemned on the healthy machine that it had come with (seed 50001073)."""
    ward = Ward(brains=0)
    node = ward.world.nodes[NODE]
    new = ward.world.treatments.new_instance(node, node.gpus if same_parts else None)
    back = Diagnosis(
        "condemned-part", Place(NODE), Severity.REPLACE, When.CHECKPOINT, 0.9, (), 0.0, "monitor.condemned-part",
        "monitor", new.gpus[3].serial,
    )  # fmt: skip
    case: Case = a_case(Phase.REPAIRING, node=NODE, diagnoses=(back,))
    ward.run.store.create(case)
    ward.judge.look()
    ward.world.treatments.begin(f"{case.id}/7", Verb.REPLACE, ward.world.nodes[NODE])
    ward.judge.look()
    assert ("WithinCeilings" in ward.judge.by) is complained
