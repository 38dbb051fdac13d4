"""Alerts and webhooks that say what is not so, or say once more what an agent said: whose word causes what."""

from __future__ import annotations

import pytest

from sickbay.model import Phase
from sickbay.sim.outsiders import GRAVE
from tests.sim.ward import Ward, names

SICK = "node-0001"


@pytest.mark.parametrize("source", ["webhook", "alertmanager", "llm", "sweep"])
def test_an_outsiders_word_neither_drains_the_job_of_an_agents_idle_case_nor_takes_a_rung_from_it(source: str) -> None:
    ward = Ward()
    ward.submit(nodes=names(0, 4))
    ward.passes(600.0)
    ward.world.strike("row_remap_pending_63", SICK, 2)
    ward.until_phase(SICK, Phase.HOLDING)
    ward.world.outsiders.accuse(source, SICK, "xid.79", 2)
    ward.passes(3600.0)
    assert ward.facts("drain", SICK) == []
    ward.world.people.delete_job("llama")
    ward.until(lambda: ward.treatments(SICK))
    assert ward.treatments(SICK) == ["RESET_GPU"]
    ward.is_sound()


@pytest.mark.parametrize("code", GRAVE)
def test_a_healthy_node_that_is_only_talked_about_is_never_treated(code: str) -> None:
    ward = Ward()
    ward.submit(nodes=names(0, 4))
    for source in ("webhook", "alertmanager", "condition"):
        ward.world.outsiders.accuse(source, SICK, code, 0)
        ward.passes(7200.0)
    assert ward.treatments() == []
    ward.is_sound()


def test_a_weaker_witness_who_repeats_an_agents_word_changes_nothing() -> None:
    ward = Ward()
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    ward.until(lambda: ward.case(SICK) is not None)
    ward.world.outsiders.repeat("webhook", SICK)
    ward.until_ended(SICK)
    assert ward.treatments(SICK)[:1] == ["REBOOT"]
    ward.is_sound()
