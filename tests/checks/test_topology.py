"""Topology: fewer links than the type has are found, and whose they are; what is no fault is never one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sickbay.catalog import load
from sickbay.checks import topology
from sickbay.checks.signs import Ask, Reading, severity_of
from sickbay.checks.topology_matrix import culprits, matrix, weak
from sickbay.model import Severity, Status
from sickbay.ports import Completed
from tests.checks.hosts import MISSING, TIMED_OUT, SpokenHost, printed

P5 = load().profiles["p5.48xlarge"]
GB200 = load().profiles["p6e-gb200.36xlarge"]
G6 = load().profiles["g6.48xlarge"]
OLD = 90_000.0  # seconds up: long past the boot grace
LEGEND = "\nLegend:\n\n  X    = Self\n  SYS  = Connection ...\n  NV#  = not supported by a bonded set of # NVLinks\n"


def printed_matrix(gpus: int, path: str = "NV18", changed: dict[tuple[int, int], str] | None = None) -> str:
    """As the tool prints it: an underlined header, tabs, two network adapters, a legend."""
    other = {**(changed or {})}
    names = [f"GPU{n}" for n in range(gpus)]
    rows = [
        "\t\x1b[4m" + "\t".join([*names, "NIC0", "NIC1", "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]) + "\x1b[0m"
    ]
    for row in range(gpus):
        cells = [" X " if row == col else other.get((min(row, col), max(row, col)), path) for col in range(gpus)]
        rows.append("\t".join([f"GPU{row}", *cells, "PIX", "SYS", "0-47,96-143", "0", "", "N/A"]))
    return "\n".join(rows) + "\n" + LEGEND


def links(gpus: int = 8, inactive: dict[int, int] | None = None, note: str = "") -> str:
    rows = []
    for gpu in range(gpus):
        rows.append(f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{gpu:08d})")
        lost = (inactive or {}).get(gpu, 0)
        rows += [note] if note else [f"\t Link {n}: {'<inactive>' if n < lost else '26.562 GB/s'}" for n in range(18)]
    return "\n".join(rows) + "\n"


def fabric(*states: str, status: str = "Success") -> str:
    head = "==============NVSMI LOG==============\n\nDriver Version : 590.48.01\n\n"
    return head + "".join(
        f"GPU 00000000:{16 + n:02X}:00.0\n    Serial Number : 16{n}\n    Fabric\n        State : {state}\n"
        f"        Status : {status}\n"
        for n, state in enumerate(states)
    )


def told(
    topo: str = "", nvlink: str = "", q: str = "", service: Completed | None = None, process: Completed | None = None
) -> SpokenHost:
    answers = {
        "nvidia-smi topo -m": printed(topo or printed_matrix(8)),
        "nvidia-smi nvlink -s": printed(nvlink or links()),
        "nvidia-smi -q": printed(q or fabric(*["Completed"] * 8)),
        "systemctl": service or printed("active\n"),
        "pgrep": process or printed("", 1),
    }
    return SpokenHost(answers)


def found(host: SpokenHost, ask: Ask | None = None) -> list[tuple[str, str, Status | None]]:
    ask = ask or Ask(profile=P5, expected_gpus=8, uptime_s=OLD)
    return [
        (s.code, s.traits.get("index", s.device), s.status) for s in topology.judge(topology.collect(host, ask), ask)
    ]


def test_a_healthy_node_has_nothing_to_say_and_its_matrix_is_kept() -> None:
    ask = Ask(profile=P5, expected_gpus=8, uptime_s=OLD)
    reading = topology.collect(told(), ask)
    assert topology.judge(reading, ask) == []
    assert topology.keeps(reading) == {"topo-matrix.txt": printed_matrix(8)}
    assert (topology.CHECK.number, topology.CHECK.file) == (3, "3-topology-check")


def test_a_link_that_is_down_is_found_on_its_gpu() -> None:
    narrow = {(min(5, n), max(5, n)): "NV17" for n in range(8) if n != 5}
    host = told(printed_matrix(8, changed=narrow), links(inactive={5: 1}))
    assert found(host) == [("smi.nvlink-inactive", "5", None)]


def test_a_narrow_gpu_is_told_from_its_neighbours() -> None:
    """Originals 002.12 #14: the width (NV12, NV18) was never looked at."""
    narrow = {(min(5, n), max(5, n)): "NV12" for n in range(8) if n != 5}
    ask = Ask(profile=P5, expected_gpus=8, uptime_s=OLD)
    (sign,) = topology.judge(topology.collect(told(printed_matrix(8, changed=narrow)), ask), ask)
    assert (sign.code, sign.traits["index"]) == ("smi.nvlink-narrow", "5")
    assert sign.reason == "GPU 5 reaches the others over NV12, where NV18 is expected"
    assert sign.evidence[0] == "GPU0 - GPU5: NV12"


def test_two_narrow_gpus_are_both_named_and_a_single_narrow_pair_blames_neither() -> None:
    two = {(min(a, b), max(a, b)): "NV9" for a in (2, 6) for b in range(8) if a != b}
    assert found(told(printed_matrix(8, changed=two))) == [
        ("smi.nvlink-narrow", "2", None),
        ("smi.nvlink-narrow", "6", None),
    ]
    assert found(told(printed_matrix(8, changed={(0, 1): "NV4"}))) == [("smi.nvlink-narrow", "", None)]


def test_only_pcie_between_all_gpus_is_one_finding_about_the_fabric() -> None:
    assert found(told(printed_matrix(8, "SYS"))) == [("smi.nvlink-absent", "", None)]


def test_pcie_to_one_gpu_is_that_gpu() -> None:
    alone = {(0, n): "SYS" for n in range(1, 8)}
    assert found(told(printed_matrix(8, changed=alone))) == [("smi.nvlink-narrow", "0", None)]


@pytest.mark.parametrize("profile", [G6, None])
def test_pcie_paths_are_no_fault_where_no_nvlink_is_expected(profile: object) -> None:
    ask = Ask(profile=G6 if profile else None, expected_gpus=8, uptime_s=OLD)
    host = told(printed_matrix(8, "PHB"), links(note="Device does not have or support Nvlink"))
    assert found(host, ask) == []


def test_gpus_without_a_bridge_are_no_fault() -> None:
    """A PCIe A100 has twelve links and nothing to join them to: all inactive, and healthy."""
    ask = Ask(expected_gpus=4, uptime_s=OLD)
    assert found(told(printed_matrix(4, "SYS"), links(4, dict.fromkeys(range(4), 18))), ask) == []


def test_mig_is_no_fault() -> None:
    host = told(printed_matrix(8, "SYS"), links(note="Nvlink queries are not supported for Devices in MIG mode"))
    assert found(host) == []


def test_without_a_profile_a_gpu_unlike_its_equals_is_noted_and_not_treated() -> None:
    ask = Ask(expected_gpus=8, uptime_s=OLD)
    assert found(told(nvlink=links(inactive={3: 2})), ask) == [("smi.nvlink-uneven", "3", None)]
    assert severity_of("smi.nvlink-uneven", {}, load()) is Severity.MONITOR


def test_after_a_boot_links_are_only_watched() -> None:
    young = Ask(profile=P5, expected_gpus=8, uptime_s=120)
    host = told(nvlink=links(inactive={3: 1}), q=fabric(*["In Progress"] * 8), service=printed("inactive\n", 3))
    assert {status for _, _, status in found(host, young)} == {Status.DEGRADED}
    assert len(found(host, young)) == 3
    assert {status for _, _, status in found(host, replace(young, uptime_s=601))} == {None}


def test_links_and_fabric_are_believed_after_three_looks_only() -> None:
    catalog = load()
    for code in ("inactive", "narrow", "absent"):
        row = catalog.codes[f"smi.nvlink-{code}"]
        assert (row.confirm or catalog.faults[row.fault].confirm) == 3
    for code in ("smi.fabric-not-ready", "smi.fabric-manager-down"):
        assert (catalog.codes[code].confirm or catalog.faults[catalog.codes[code].fault].confirm) == 3


def test_the_legend_is_no_finding() -> None:
    """Originals 002.12 #14: "not supported" in a legend made every B200 node warn."""
    assert "not supported" in LEGEND
    assert found(told(printed_matrix(8) + LEGEND)) == []


def test_fewer_rows_than_gpus_is_a_missing_gpu_even_after_a_boot() -> None:
    young = Ask(profile=P5, expected_gpus=8, uptime_s=10)
    assert found(told(printed_matrix(7), links(7), fabric(*["Completed"] * 7)), young) == [
        ("smi.gpu-missing", "", None)
    ]


def test_more_gpus_than_the_profile_has_is_the_profiles_fault() -> None:
    ask = Ask(expected_gpus=4, uptime_s=OLD)
    assert [code for code, _, _ in found(told(), ask)] == ["smi.gpu-surplus"]
    assert severity_of("smi.gpu-surplus", {}, load()) is Severity.MONITOR


def test_a_gpu_outside_the_fabric_is_named_and_all_of_them_are_one_finding() -> None:
    states = ["Completed"] * 7 + ["Not Started"]
    assert found(told(q=fabric(*states))) == [("smi.fabric-not-ready", "0000:17:00", None)]
    assert found(told(q=fabric(*["In Progress"] * 8))) == [("smi.fabric-not-ready", "", None)]
    assert found(told(q=fabric(*["Completed"] * 8, status="Insufficient Resources")))[0][0] == "smi.fabric-not-ready"


def test_fabric_manager_that_systemd_calls_dead_is_a_finding() -> None:
    assert found(told(service=printed("failed\n", 3))) == [("smi.fabric-manager-down", "", None)]


def test_fabric_manager_found_as_a_process_is_running() -> None:
    assert found(told(service=MISSING, process=printed("2213\n"))) == []
    assert found(told(service=printed("inactive\n", 3), process=printed("2213\n"))) == []


def test_a_process_that_a_container_may_not_see_is_only_watched_and_no_tool_is_unknown() -> None:
    assert found(told(service=MISSING)) == [("smi.fabric-manager-down", "", Status.DEGRADED)]
    assert found(told(service=MISSING, process=MISSING)) == [("tool.failed", "", Status.UNKNOWN)]


def test_no_fabric_manager_is_looked_for_where_the_switches_stand_elsewhere_or_are_none() -> None:
    for profile in (GB200, G6, None):
        host = told(printed_matrix(4), links(4), fabric(*["Completed"] * 4), service=printed("failed\n", 3))
        topology.judge(topology.collect(host, Ask(profile=profile)), Ask(profile=profile))
        assert not any("fabricmanager" in asked for asked in host.asked)


def test_without_a_tool_or_a_matrix_it_is_unknown_and_nothing_else_is_asked() -> None:
    for answer in (MISSING, TIMED_OUT):
        host = SpokenHost({"nvidia-smi": answer})
        assert [status for _, _, status in found(host)] == [Status.UNKNOWN]
        assert len(host.asked) == 1
    assert [status for _, _, status in found(told("Failed to initialize NVML: Unknown Error"))] == [Status.UNKNOWN]


def test_spaces_old_adapter_names_and_missing_rows_are_read() -> None:
    text = (
        "    GPU0    GPU1    GPU4    mlx5_0  CPU Affinity   NUMA Affinity\n"
        "GPU0     X      NV12    NV12    NODE    0-47,96-143    0\n"
        "GPU4    NV12    NV6      X      SYS     0-47,96-143    0\n"
    )
    read = matrix(text)
    assert read.rows == [0, 4]
    assert read.paths == {(0, 1): "NV12", (0, 4): "NV12", (1, 4): "NV6"}
    assert weak(read.paths, 12) == {(1, 4): "NV6"}
    assert culprits([(1, 4)]) == ([], [(1, 4)])


def test_a_reading_of_nothing_is_unknown() -> None:
    assert [s.status for s in topology.judge(Reading(Completed(0, "", "")), Ask())] == [Status.UNKNOWN]
