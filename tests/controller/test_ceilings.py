"""Who may cause what is the operator's to say."""

from __future__ import annotations

from sickbay.model import Verb
from sickbay.settings import CEILINGS, Policy, Settings
from sickbay.sim.run import SimRun
from sickbay.sim.world import World


def treated(ceiling: frozenset[Verb]) -> set[str]:
    settings = Settings(policy=Policy(max_verb="REPLACE"), ceilings={**CEILINGS, "agent": ceiling})
    run = SimRun(World(3, 6, silent_failure=0.0, reboot_hangs=0.0), settings)
    run.add_brain()
    run.run_for(60.0)
    run.world.strike("gpu_lost_79", "node-0002", 1, cure="reboot")
    run.run_for(3_600.0)
    return {f.kind for f in run.world.log if f.node == "node-0002"} & {"cordon", "treat-start"}


def test_an_agent_that_may_only_cordon_causes_no_treatment() -> None:
    assert treated(frozenset({Verb.CORDON, Verb.VERIFY})) == {"cordon"}
    assert treated(CEILINGS["agent"]) == {"cordon", "treat-start"}
