"""Which GPU is meant: a node names its own parts, by what no other part goes by."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sickbay.core.parts import believed, is_name, name_of
from sickbay.model import Gpu, Phase, Severity
from tests.builders import a_finding, a_gpu, a_node, a_policy
from tests.core.bedside import Bedside

OPEN_HANDED = a_policy(max_verb="REPLACE", approval=())
PCI = ("0000:53:00", "0000:54:00")


def nameless(serial: str = "0") -> tuple[Gpu, ...]:
    return tuple(Gpu(f"GPU-{n}f", serial, pci, n) for n, pci in enumerate(PCI))


def part_of(bed: Bedside) -> str:
    return bed.case.diagnoses[0].part


@pytest.mark.parametrize("text", ["", "0", "0000000000", "N/A", "[N/A]", "[Not Supported]", "GPU-00000000-0000"])
def test_what_every_board_prints_that_has_no_number_is_no_name(text: str) -> None:
    assert not is_name(text)


@pytest.mark.parametrize("text", ["1653311000075", "S1", "GPU-647e2271-ad97"])
def test_a_serial_and_a_uuid_are_names(text: str) -> None:
    assert is_name(text)


def test_a_gpu_without_a_number_goes_by_its_uuid() -> None:
    assert [name_of(gpu, a_node(gpus=nameless()), {}) for gpu in nameless()] == ["GPU-0f", "GPU-1f"]


def test_one_number_on_two_gpus_of_a_node_names_neither() -> None:
    twins = nameless("12345")
    assert name_of(twins[0], a_node(gpus=twins), {}) == "GPU-0f"


def test_a_number_that_another_node_shows_too_names_neither() -> None:
    gpu = Gpu("GPU-0f", "S1", PCI[0], 0)
    carriers = {"S1": ("n1", "n2"), "GPU-0f": ("n1",)}
    assert name_of(gpu, a_node(gpus=(gpu,)), carriers) == "GPU-0f"
    assert name_of(gpu, a_node(gpus=(gpu,)), {**carriers, "GPU-0f": ("n1", "n2")}) == ""


@pytest.mark.parametrize("said", ["", "0"])
def test_of_gpus_without_a_number_the_address_says_which_is_meant(said: str) -> None:
    sick = a_finding("smi.remap-failed", part=said, device=PCI[1])
    assert [f.part for f in believed([sick], a_node(gpus=nameless()), {})] == ["GPU-1f"]


def test_a_node_names_no_part_that_is_not_in_it() -> None:
    bed = Bedside(node=a_node(gpus=(a_gpu("S1"),))).finds("smi.remap-failed", part="S9")
    assert part_of(bed) == ""


def test_its_own_part_is_believed() -> None:
    bed = Bedside(node=a_node(gpus=(a_gpu("S1"),))).finds("smi.remap-failed", part="S1")
    assert part_of(bed) == "S1"


def test_where_a_nodes_gpus_are_not_known_it_names_none_that_another_shows() -> None:
    bed = Bedside()
    bed.carriers = {"S9": ("n2",)}
    assert part_of(bed.finds("smi.remap-failed", part="S9")) == ""
    assert part_of(Bedside().finds("smi.remap-failed", part="S9")) == "S9"


def test_an_examination_names_no_part_of_another_node_either() -> None:
    bed = Bedside(node=a_node(gpus=(a_gpu("S1"),)), policy=OPEN_HANDED).finds("xid.79", part="S1")
    bed.until(Phase.VERIFYING)
    sick = a_finding("smi.remap-failed", 60, boot=bed.case.record.boot_id if bed.case.record else "", part="S9")
    bed.verified(sick=(replace(sick, severity=Severity.REPLACE),))
    assert "S9" not in [d.part for d in bed.case.diagnoses]


def test_a_part_that_its_own_node_shows_before_the_replacement_begins_is_not_condemned() -> None:
    """Whose agent was silent when another node named it."""
    bed = Bedside(policy=OPEN_HANDED).finds("smi.remap-failed", part="S9").until(Phase.QUEUED)
    bed.carriers = {"S9": ("n2",)}
    assert condemned_with(bed.until(Phase.REPAIRING).is_sent()) == {}


def test_a_part_that_shows_up_elsewhere_once_the_replacement_has_begun_is_condemned() -> None:
    bed = Bedside(policy=OPEN_HANDED).finds("smi.remap-failed", part="S9").until(Phase.REPAIRING).is_sent()
    bed.carriers = {"S9": ("n2",)}
    assert condemned_with(bed.turns()) == {"S9": "row-remap-failed in case n1.1"}


def condemned_with(bed: Bedside) -> dict[str, str]:
    bed.shows(instance="i-new", uid="uid-new", boot_id="boot-new", findings=())
    assert bed.decision is not None
    return dict(bed.decision.condemn)


def test_a_part_that_two_nodes_show_accuses_neither_of_them() -> None:
    bed = Bedside()
    bed.condemned, bed.carriers = {"S9": ()}, {"S9": ("n1", "n2")}
    bed.shows(gpus=(a_gpu("S9"),))
    assert bed.live is None


def test_a_machine_that_was_there_before_a_part_was_condemned_is_not_accused_of_it() -> None:
    bed = Bedside()
    bed.condemned = {"S9": (bed.node.instance,)}  # type: ignore[union-attr]
    bed.shows(gpus=(a_gpu("S9"),))
    assert bed.live is None
    bed.shows(instance="i-new", uid="uid-new", boot_id="boot-new")
    assert bed.case.diagnoses[0].fault == "condemned-part"


@pytest.mark.parametrize("opened", [True, False], ids=["with its case", "without one"])
def test_who_acknowledges_a_node_pardons_the_condemned_parts_in_it(opened: bool) -> None:
    bed = Bedside()
    bed.condemned = {"S9": () if opened else ("i-n1",), "S8": ()}
    bed.shows(gpus=(a_gpu("S9"),)).commands("acknowledge")
    assert bed.live is None
    assert bed.decision is not None
    assert [serial for serial, _ in bed.decision.pardon] == ["S9"]


def test_another_word_about_a_node_pardons_nothing() -> None:
    bed = Bedside()
    bed.condemned = {"S9": ()}
    bed.shows(gpus=(a_gpu("S9"),)).commands("hold")
    assert bed.decision is not None
    assert bed.decision.pardon == ()
