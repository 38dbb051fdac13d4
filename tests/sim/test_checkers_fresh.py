"""The judge of fresh evidence complains when it must, and holds its peace when it need not. No brain runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sickbay.model import Action, Case, Diagnosis, Phase, Place, Severity, Verb, When
from tests.builders import a_case
from tests.sim.ward import Ward, a_policy

NODE = "node-0003"
LATER_S = 3600.0

XID = ("gpu-lost", "xid.79", "agent")  # cleared by a boot
SMI = ("monitor-sick", "smi.timeout", "agent")
AWAY = ("node-not-ready", "monitor.not-ready", "monitor")
FOR_GOOD = ("row-remap-failed", "xid.64", "agent")  # cleared by a person


def unwatched(**policy: object) -> Ward:
    return Ward(brains=0, policy=a_policy(**policy))


def has_case(ward: Ward, *said: tuple[str, str, str], phase: Phase = Phase.QUEUED) -> Case:
    """About what was truly said of the node just now."""
    for _, code, source in said:
        if source == "agent":
            ward.world.agents.printed.setdefault(NODE, {})[code] = ward.world.now
    found = tuple(
        Diagnosis(fault, Place(NODE), Severity.REBOOT, When.NOW, 0.9, (), 0.0, code, source)
        for fault, code, source in said
    )
    case = a_case(phase, node=NODE, diagnoses=found)
    ward.run.store.create(case)
    looks(ward)
    ward.run.platform.perform(Action(f"{NODE}.1/2", Verb.CORDON, Place(NODE)))
    return case


def looks(ward: Ward) -> None:
    ward.world.note("tick")
    ward.judge.look()


def waits(ward: Ward, seconds: float = LATER_S) -> None:
    """As a leader does: it looks every minute."""
    for _ in range(round(seconds / 60.0)):
        ward.passes(60.0)
        looks(ward)


def treats(ward: Ward, n: int = 1) -> None:
    ward.world.treatments.begin(f"{NODE}.{n}/7", Verb.REBOOT, ward.world.nodes[NODE])
    looks(ward)


def complaints(ward: Ward) -> list[str]:
    return [said for said, who in zip(ward.judge.violations, ward.judge.by, strict=True) if who == "FreshEvidence"]


def boots(ward: Ward) -> None:
    assert ward.world.people.reboot(NODE)


def boots_and_is_sick(ward: Ward) -> None:
    boots(ward)
    ward.passes(900.0)
    ward.world.strike("gpu_lost_79", NODE, 0)


def boots_sick(ward: Ward) -> None:
    """What the new boot printed first, its agent's later cycles do not see: seed 323."""
    boots(ward)
    ward.world.after(420.0, lambda: says(ward))


def says(ward: Ward) -> None:
    ward.world.agents.printed[NODE]["xid.79"] = ward.world.now
    ward.world.agents.well_at[NODE] = ward.world.now + 1.0


def nothing(ward: Ward) -> None:
    """Nobody touches it."""


@pytest.mark.parametrize(
    ("said", "befalls", "after_s", "complained"),
    [
        ((XID,), boots, LATER_S, True),
        ((XID,), boots, 480.0, False),  # it booted a moment ago, which a late view may not show yet
        ((XID,), nothing, LATER_S, False),
        ((XID,), boots_and_is_sick, LATER_S, False),
        ((XID,), boots_sick, LATER_S, False),
        ((XID, FOR_GOOD), boots, LATER_S, False),
        ((XID, AWAY), boots, LATER_S, True),
    ],
)
def test_a_node_is_treated_for_what_a_boot_has_refuted(
    said: tuple[tuple[str, str, str], ...], befalls: Callable[[Ward], None], after_s: float, complained: bool
) -> None:
    ward = unwatched()
    has_case(ward, *said)
    befalls(ward)
    waits(ward, after_s)
    treats(ward)
    assert bool(complaints(ward)) is complained


@pytest.mark.parametrize("excuse", ["an earlier treatment", "an examination", "a person's word", "flaps"])
def test_a_node_that_a_boot_has_cleared_may_be_treated_after(excuse: str) -> None:
    ward = unwatched(flaps_accepted=0 if excuse == "flaps" else 2)
    has_case(ward, XID)
    if excuse == "an examination":
        ward.run.platform.perform(Action(f"{NODE}.1/6", Verb.VERIFY, Place(NODE), {"checks": "nvidia-smi"}))
    if excuse == "a person's word":
        ward.world.note("order", NODE, act="retry", by="alice", case=f"{NODE}.1")
    if excuse == "an earlier treatment":
        treats(ward)
        waits(ward)
    else:
        boots(ward)
        waits(ward)
    ward.world.treatments.begin(f"{NODE}.1/9", Verb.REBOOT, ward.world.nodes[NODE])
    looks(ward)
    assert complaints(ward) == []


@pytest.mark.parametrize(
    ("said", "ready", "flaps_accepted", "complained"),
    [
        ((AWAY,), True, 2, True),
        ((AWAY,), False, 2, False),
        ((AWAY,), True, 0, False),
        ((AWAY, XID), True, 2, False),  # its absence is not all there is
    ],
)
def test_a_node_is_treated_for_its_absence_when_it_is_back(
    said: tuple[tuple[str, str, str], ...], ready: bool, flaps_accepted: int, complained: bool
) -> None:
    """Without any grace: the door reads that once more before the call."""
    ward = unwatched(flaps_accepted=flaps_accepted)
    ward.world.network.cut([NODE], "control", 1200.0 if ready else 9000.0)
    ward.passes(900.0)
    has_case(ward, *said)
    ward.passes(400.0)
    assert ward.world.nodes[NODE].ready is ready
    treats(ward)
    assert bool(complaints(ward)) is complained


@pytest.mark.parametrize(
    ("case", "booted_s", "complained"),
    [
        (f"{NODE}.1", None, False),
        (f"{NODE}.2", None, True),  # it is another case's examination
        (f"{NODE}.1", LATER_S, True),
        (f"{NODE}.1", 120.0, False),  # too lately to be seen
    ],
)
def test_a_node_is_returned_on_an_examination_of_an_earlier_boot(
    case: str, booted_s: float | None, complained: bool
) -> None:
    ward = unwatched()
    ward.run.platform.perform(Action(f"{NODE}.1/2", Verb.CORDON, Place(NODE)))
    ward.world.note("verify", NODE, key=f"{case}/6", checks="nvidia-smi", bad=0)
    if booted_s is not None:
        boots(ward)
        ward.passes(400.0 + booted_s)
    ward.run.platform.perform(Action(f"{NODE}.1/8", Verb.RELEASE, Place(NODE)))
    looks(ward)
    assert bool(complaints(ward)) is complained


def test_a_node_that_is_let_go_needs_no_examination() -> None:
    ward = unwatched()
    ward.run.platform.perform(Action(f"{NODE}.1/2", Verb.CORDON, Place(NODE)))
    ward.run.platform.perform(Action(f"{NODE}.1/8", Verb.RELEASE, Place(NODE), {"cancel": "1"}))
    looks(ward)
    assert complaints(ward) == []
