"""Reports folded into a platform: its contract holds as before, and neither side undoes the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sickbay.controller.view import View
from sickbay.model import (
    Action,
    Before,
    Change,
    Done,
    Finding,
    Gpu,
    Node,
    NodeChanged,
    NodeDeleted,
    Place,
    Report,
    Unguarded,
    Verb,
)
from sickbay.platforms.reported import MOST_EARLY, ReportedFleet, fold
from tests.builders import BOOT, a_blind, a_finding, a_node
from tests.controller.door import Door, HandClock
from tests.platforms.contract import NODE, PlatformContract
from tests.platforms.test_simulated import SimStage


class ReportedStage(SimStage):
    """As the simulated one, seen through ReportedFleet, with a report on the node the contract is about."""

    def __init__(self) -> None:
        super().__init__()
        self.platform = ReportedFleet(self.platform, HandClock())  # type: ignore[assignment]
        self.platform.observe()
        boot = self.world.nodes[NODE].boot_id
        said = Report(NODE, boot, 1, 0.0, (a_finding("xid.13", 900, node=NODE, boot=boot),))
        assert self.platform.report(said) == "taken"  # type: ignore[attr-defined]


class TestReportedFleet(PlatformContract):
    @pytest.fixture
    def stage(self) -> ReportedStage:
        return ReportedStage()


def a_report(*findings: Finding, node: str = "n1", sequence: int = 1, boot: str = BOOT, at: float = 0.0) -> Report:
    return Report(node, boot, sequence, at, findings)


class Ears:
    """A fleet at a door, and the view of a controller that follows it."""

    def __init__(self, *nodes: Node) -> None:
        self.door, self.clock, self.view = Door(*nodes), HandClock(), View()
        self.fleet = ReportedFleet(self.door, self.clock)
        self.told: list[Change] = []
        self.stop = self.fleet.watch(self._hear)
        self.view.replace_all(self.fleet.observe())

    def _hear(self, change: Change) -> None:
        self.told.append(change)
        self.view.apply(change)

    def node(self, name: str = "n1") -> Node:
        return self.view.nodes[name]

    def codes(self, name: str = "n1") -> list[str]:
        return [f.code for f in self.node(name).findings]


def test_a_report_is_told_at_once_with_all_it_knows() -> None:
    ears = Ears()
    gpu = Gpu("GPU-1", "S1", "0000:3b:00", 0)
    assert ears.fleet.report(replace(a_report(a_finding()), gpus=(gpu,), factors={"driver": "580"})) == "taken"
    node = ears.node()
    assert (ears.codes(), node.gpus, node.factors) == (["xid.79"], (gpu,), {"driver": "580"})
    assert node.last_check == ears.clock.now()


def test_a_report_and_a_change_of_the_platform_keep_each_other_in_any_order() -> None:
    ears = Ears()
    ears.fleet.report(a_report(a_finding()))
    ears.door.shows("n1", cordoned=True)
    assert (ears.node().cordoned, ears.codes()) == (True, ["xid.79"])
    ears.fleet.report(a_report(a_finding("xid.48", 2), sequence=2))
    assert (ears.node().cordoned, ears.codes()) == (True, ["xid.48"])


def test_a_report_after_a_direct_look_is_not_dropped_as_older() -> None:
    """The view may know a newer version from `look` than any change has told: the next report must be built on it."""
    ears = Ears()
    ears.door.nodes["n1"] = a_node(version=99, cordoned=True)  # not told yet
    seen = ears.fleet.look("n1")
    assert seen is not None
    ears.view.put_node(seen)
    ears.fleet.report(a_report(a_finding()))
    assert (ears.codes(), ears.node().cordoned) == (["xid.79"], True)


def test_an_old_look_does_not_take_the_newest_report_away() -> None:
    ears = Ears()
    old = ears.door.nodes["n1"]
    ears.door.shows("n1", cordoned=True)
    ears.fleet.report(a_report(a_finding()))
    ears.door.nodes["n1"] = old
    ears.view.replace_all(ears.fleet.observe())
    assert (ears.codes(), ears.node().cordoned) == (["xid.79"], True)


def test_the_version_stays_the_platforms() -> None:
    ears = Ears(a_node(version=41))
    for n in range(5):
        ears.fleet.report(a_report(sequence=n + 1))
    assert ears.node().version == 41


def test_the_same_report_twice_and_one_overtaken_are_old() -> None:
    ears = Ears()
    assert ears.fleet.report(a_report(a_finding(n=2), sequence=2)) == "taken"
    told = len(ears.told)
    assert ears.fleet.report(a_report(a_finding(n=2), sequence=2)) == "old"
    assert ears.fleet.report(a_report(sequence=1)) == "old"
    assert (len(ears.told), ears.codes()) == (told, ["xid.79"])


def test_an_agent_that_lost_its_state_is_believed_after_a_while() -> None:
    ears = Ears()
    ears.fleet.report(a_report(sequence=1000))
    assert ears.fleet.report(a_report(sequence=1)) == "old"
    ears.clock.passes(901)
    assert ears.fleet.report(a_report(sequence=1)) == "taken"


def test_after_a_boot_numbers_may_begin_anew_but_a_late_letter_of_the_boot_before_is_old() -> None:
    ears = Ears(a_node(boot_id=""))
    ears.fleet.report(a_report(sequence=50, boot="boot-a", at=100.0))
    assert ears.fleet.report(a_report(sequence=1, boot="boot-b", at=400.0)) == "taken"
    ears.fleet.report(a_report(sequence=60, boot="boot-b", at=900.0))
    assert ears.fleet.report(a_report(sequence=49, boot="boot-a", at=90.0)) == "old"
    assert ears.node().boot_id == "boot-b"


def test_findings_of_a_boot_that_is_over_are_not_shown() -> None:
    ears = Ears()
    ears.fleet.report(a_report(a_finding()))
    ears.door.shows("n1", boot_id="boot-b")
    assert ears.codes() == []
    assert ears.node().last_check > 0


def test_a_platform_without_boot_ids_takes_the_agents() -> None:
    ears = Ears(a_node(boot_id=""))
    ears.fleet.report(a_report(boot="boot-x"))
    assert ears.node().boot_id == "boot-x"


def test_without_the_platforms_boot_id_the_guard_before_a_treatment_is_ours() -> None:
    ears = Ears(a_node(boot_id=""))
    ears.fleet.report(a_report(boot="boot-x"))
    late = Action("n1.1/9", Verb.REBOOT, Place("n1"), before=Before("boot-w", "i-n1", "uid-n1"))
    assert isinstance(ears.fleet.perform(late), Unguarded)
    assert ears.door.asked == []
    fits = replace(late, before=Before("boot-x", "i-n1", "uid-n1"))
    assert isinstance(ears.fleet.perform(fits), Done)
    assert ears.door.asked[0].before == Before("", "i-n1", "uid-n1")


def test_another_machine_under_the_name_does_not_inherit_what_the_old_one_said() -> None:
    ears = Ears(a_node(boot_id=""))
    ears.fleet.report(a_report(a_finding()))
    ears.door.shows("n1", instance="i-new", uid="uid-new")
    assert (ears.codes(), ears.node().boot_id) == ([], "")
    ears.fleet.report(replace(a_report(a_finding(), sequence=9), instance="i-n1"))  # the old machine still speaks
    assert ears.codes() == []


def test_a_deleted_node_takes_its_report_with_it() -> None:
    ears = Ears()
    ears.fleet.report(a_report(a_finding()))
    del ears.door.nodes["n1"]
    ears.door.tell(NodeDeleted("n1", 50, True))
    ears.door.nodes["n1"] = a_node(version=60)
    ears.door.tell(NodeChanged(ears.door.nodes["n1"]))
    assert ears.codes() == []


def test_an_agent_may_speak_before_its_node_is_shown() -> None:
    ears = Ears()
    assert ears.fleet.report(a_report(a_finding(node="n2"), node="n2")) == "early"
    assert ears.fleet.report(a_report(node="n2")) == "old"
    ears.door.nodes["n2"] = a_node("n2")
    ears.door.tell(NodeChanged(ears.door.nodes["n2"]))
    assert ears.codes("n2") == ["xid.79"]


def test_a_node_missing_from_one_look_keeps_its_report_for_a_while() -> None:
    ears = Ears()
    ears.fleet.report(a_report(a_finding()))
    node = ears.door.nodes.pop("n1")
    ears.fleet.observe()
    ears.door.nodes["n1"] = node
    assert [f.code for f in ears.fleet.observe().nodes[0].findings] == ["xid.79"]


def test_early_reports_are_bounded_in_number_and_time() -> None:
    ears = Ears()
    for n in range(MOST_EARLY + 10):
        ears.fleet.report(a_report(node=f"x{n}"))
    assert len(ears.fleet._early) == MOST_EARLY
    ears.clock.passes(3_601)
    ears.door.nodes["x4000"] = a_node("x4000")
    ears.door.tell(NodeChanged(ears.door.nodes["x4000"]))
    assert ears.node("x4000").last_check == 0.0


def test_what_the_platform_says_by_itself_stays() -> None:
    condition = a_blind(code="tool.missing", n=1, source="condition")
    both = fold(a_node(findings=(condition,)), a_report(a_finding(n=1)), 5.0).findings
    assert [(f.source, f.code) for f in both] == [("agent", "xid.79"), ("condition", "tool.missing")]


def test_after_a_stop_nothing_is_told() -> None:
    ears = Ears()
    stop: Callable[[], None] = ears.stop
    stop()
    ears.fleet.report(a_report(a_finding()))
    ears.door.shows("n1", cordoned=True)
    assert ears.told == []
