"""dcgmi's tables for people: the same verdicts as its JSON, however a cell was cut."""

from __future__ import annotations

import pytest

from sickbay.catalog import load
from sickbay.checks import dcgm_diag, dcgm_health, dcgm_output
from sickbay.checks.signs import Sign
from sickbay.model import Status
from sickbay.sim.host import SimHost
from sickbay.sim.world import World

BAR = "+---------------------------+------------------------------------------------+"


def cells(left: str, text: str) -> str:
    parts = [text[i : i + 45] for i in range(0, len(text), 45)]
    return "".join(f"| {left if n == 0 else '':<25} | {part:<46} |\n" for n, part in enumerate(parts))


def table(*rows: tuple[str, str], section: str = "Hardware") -> str:
    body = "".join(cells(left, text) for left, text in rows)
    return f"Successfully ran diagnostic for group.\n{BAR}\n{cells('Diagnostic', 'Result')}{BAR}\n" + (
        f"+-----  {section}  ----------+------------------------------------------------+\n{body}{BAR}\n"
    )


def told(text: str) -> list[tuple[str, str, Status | None]]:
    return [(s.code.removeprefix("dcgm."), s.traits.get("index", ""), s.status) for s in dcgm_diag.signs(text)]


def test_a_passed_table_is_quiet() -> None:
    assert told(table(("memory", "Pass"), ("", "GPU0: Pass"), ("", "GPU1: Pass"))) == []
    assert told(table(("GPU Memory", "Pass - All"), ("Diagnostic", "Pass - All"))) == []


def test_one_failing_gpu_among_many_is_named() -> None:
    rows = (("memory", "Fail"), ("", "GPU0: Pass"), ("", "GPU3: Fail"))
    assert told(table(*rows)) == [("test-failed", "3", None)]
    assert told(table(("GPU Memory", "Pass - GPUs: 0, 1, 2"), ("", "Fail - GPU: 3"))) == [("test-failed", "3", None)]


def test_a_warning_cut_in_the_middle_of_words_is_read_whole() -> None:
    text = "GPU 3 had uncorrectable memory errors and row remapping failed. Run a field diagnostic on the GPU."
    rows = (("GPU Memory", "Pass - GPUs: 0, 1, 2"), ("", "Fail - GPU: 3"), ("Warning", text))
    assert told(table(*rows)) == [("DCGM_FR_ROW_REMAP_FAILURE", "3", None)]
    rows4 = (("memory", "Fail"), ("", "GPU3: Fail"), ("Warning: GPU3", text))
    assert told(table(*rows4)) == [("DCGM_FR_ROW_REMAP_FAILURE", "3", None)]


def test_a_warning_beside_a_pass_is_only_watched() -> None:
    rows = (
        ("GPU Memory", "Pass - All"),
        ("Warning", "GPU 1 had uncorrectable memory errors and row remapping failed."),
    )
    assert told(table(*rows)) == [("DCGM_FR_ROW_REMAP_FAILURE", "1", Status.DEGRADED)]


def test_info_rows_say_nothing() -> None:
    assert told(table(("PCIe", "Pass - All"), ("Info", "GPU 0 row remapping failed (never read)"))) == []


def test_skipped_tests_are_not_passed_tests() -> None:
    assert told(table(("pcie", "Skip"), ("", "GPU0: Skip"))) == [("no-hardware-test", "", Status.UNKNOWN)]


def test_deployment_alone_proves_nothing_about_a_gpu() -> None:
    assert told(table(("software", "Pass"), section="Deployment")) == [("no-hardware-test", "", Status.UNKNOWN)]


@pytest.mark.parametrize("kind", ["row_remap_failed_64", "ecc_dbe_48", "gpu_lost_79", "degrading", "silent_corruption"])
def test_the_table_and_both_json_forms_agree_about_a_simulated_host(kind: str) -> None:
    world = World(3, 1)
    (node,) = world.nodes.values()
    world.illness.strike(kind, node, 2, recall=1.0, dormant=False)
    said = [
        SimHost(world, node, major).run(("dcgmi", "diag", "-r", "4", *flags), 60.0).stdout
        for major, flags in ((4, ("-j",)), (3, ("-j",)), (4, ()))
    ]
    verdicts = [_verdicts(dcgm_diag.signs(text)) for text in said]
    assert verdicts[0] == verdicts[1]
    assert _faults(verdicts[2]) == _faults(verdicts[0])


def _faults(verdicts: list[tuple[str, str]]) -> set[tuple[str, str]]:
    return {(load().codes[code].fault, gpu) for code, gpu in verdicts}


def _verdicts(signs: list[Sign]) -> list[tuple[str, str]]:
    return sorted((s.code, s.traits.get("index", "")) for s in signs)


@pytest.mark.parametrize("kind", ["row_remap_failed_64", "gpu_lost_79", "nvlink_down_after_boot"])
def test_health_in_words_and_in_json_agree_about_a_simulated_host(kind: str) -> None:
    world = World(3, 1)
    (node,) = world.nodes.values()
    world.illness.strike(kind, node, 2, dormant=False)
    host = SimHost(world, node)
    words, document = (host.run(("dcgmi", "health", "-c", *flag), 60.0).stdout for flag in ((), ("-j",)))
    assert _verdicts(dcgm_health.signs(words)) == _verdicts(dcgm_health.signs(document)) != []


@pytest.mark.parametrize(
    ("argv", "shape"), [(("diag", "-r", "1"), "diag"), (("health", "-c"), "health"), (("discovery", "-l"), "list")]
)
def test_each_output_of_dcgmi_is_told_apart(argv: tuple[str, ...], shape: str) -> None:
    world = World(3, 1)
    (node,) = world.nodes.values()
    text = SimHost(world, node).run(("dcgmi", *argv), 60.0).stdout
    assert dcgm_output.shape_of(text) == shape
    assert {sign.status for sign in dcgm_output.signs(text)} <= {Status.UNKNOWN}
