"""What dcgmi prints about a simulated host: diag (DCGM 4 JSON, or 3, or the table), health, discovery, test --inject,
and the words of a dead host engine.

SimHost calls it; it reads the truth and never changes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from textwrap import wrap
from typing import Any

from sickbay.ports import Completed
from sickbay.sim.faults import Ailment, DcgmSign
from sickbay.sim.hardware import SimGpu, SimNode

# DCGM_ST_CONNECTION_NOT_VALID (-21) and DCGM_ST_NVVS_ERROR (-30) as the unsigned byte a shell sees
NO_ENGINE, NVVS_ERROR = 235, 226
DEAD = (
    "Error: unable to establish a connection to the specified host: localhost\n"
    "Error: Unable to connect to host engine. Host engine connection invalid/disconnected.\n"
)
LOST = DcgmSign(
    id=20, severity=4, category=8, test="software",
    text="The number of devices NVML returns is different than the number of devices in /dev: GPU {index} is lost.",
)  # fmt: skip

# Which tests each level runs, in the order of the report: (category, test of DCGM 4, name in DCGM 3)
TESTS = (
    (1, "Deployment", "software", "Page Retirement/Row Remap"),
    (2, "Hardware", "memory", "GPU Memory"),
    (2, "Integration", "pcie", "PCIe"),
    (3, "Hardware", "diagnostic", "Diagnostic"),
    (3, "Stress", "targeted_stress", "Targeted Stress"),
    (3, "Stress", "targeted_power", "Targeted Power"),
    (4, "Hardware", "memtest", "Memtest"),
)
DCGM_VERSIONS = {4: "4.4.2", 3: "3.3.9"}

Sees = Callable[[Ailment, int], bool]


def run(node: SimNode, argv: Sequence[str], sees: Sees, major: int = 4) -> Completed:
    """One call of dcgmi."""
    if node.node_sign("dcgm_dead"):
        return Completed(NO_ENGINE, DEAD, "")
    if node.hung:
        return Completed(None, "", "", timed_out=True, stuck=True)
    if "diag" in argv:
        return _diag(node, _level(argv), sees, major, "-j" in argv or "--json" in argv)
    if "health" in argv:
        return _health(node, "-j" in argv)
    if "--version" in argv or "-v" in argv:
        return Completed(0, f"dcgmi  version: {DCGM_VERSIONS[major]}\n", "")
    if "discovery" in argv:
        return Completed(0, _discovery(node), "")
    if "test" in argv:
        return _inject(argv)
    return Completed(1, "", "PARSE ERROR: Argument: (--help)\n")


def _level(argv: Sequence[str]) -> int:
    for flag in ("-r", "--run"):
        if flag in argv[:-1]:
            word = argv[list(argv).index(flag) + 1]
            return int(word) if word.isdigit() else 1
    return 1


def _warnings(node: SimNode, level: int, sees: Sees) -> dict[tuple[str, int], list[tuple[DcgmSign, str]]]:
    """(test, GPU index) -> what it says."""
    found: dict[tuple[str, int], list[tuple[DcgmSign, str]]] = {}
    for gpu in node.gpus:
        signs = [(LOST, {"index": gpu.slot})] if gpu.lost else []
        signs += [(a.kind.dcgm, dict(a.values)) for a in gpu.ailments if a.kind.dcgm and sees(a, level)]
        for sign, values in signs:
            found.setdefault((sign.test, gpu.slot), []).append((sign, sign.text.format(**values)))
    return found


def _diag(node: SimNode, level: int, sees: Sees, major: int, as_json: bool) -> Completed:
    found = _warnings(node, level, sees)
    ran = [row for row in TESTS if row[0] <= level]
    known = {row[2] for row in ran}
    # a sign whose own test is not run at this level is reported by the deployment check
    found = {(test if test in known else "software", gpu): said for (test, gpu), said in found.items()}
    code = NVVS_ERROR if found else 0
    if not as_json:
        return Completed(code, _diag_text(node, ran, found), "")
    report = _diag4(node, ran, found) if major >= 4 else _diag3(node, ran, found)
    return Completed(code, json.dumps(report, indent=2) + "\n", "")


Found = dict[tuple[str, int], list[tuple[DcgmSign, str]]]
Row = tuple[int, str, str, str]


def _categories(ran: Sequence[Row], test: Callable[[Row], dict[str, Any]]) -> list[dict[str, Any]]:
    names = list(dict.fromkeys(row[1] for row in ran))
    return [{"category": name, "tests": [test(row) for row in ran if row[1] == name]} for name in names]


def _diag4(node: SimNode, ran: Sequence[Row], found: Found) -> dict[str, Any]:
    def result(row: Row, gpu: SimGpu) -> dict[str, Any]:
        said = found.get((row[2], gpu.slot), [])
        entry: dict[str, Any] = {
            "entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu.slot, "status": "Fail" if said else "Pass",
        }  # fmt: skip
        if said:
            entry["warnings"] = [
                {"error_category": s.category, "error_id": s.id, "error_severity": s.severity, "warning": text}
                for s, text in said
            ]
        return entry

    def test(row: Row) -> dict[str, Any]:
        results = [result(row, gpu) for gpu in node.gpus]
        failed = any(r["status"] == "Fail" for r in results)
        return {"name": row[2], "results": results, "test_summary": {"status": "Fail" if failed else "Pass"}}

    entities = [{"device_id": "2330", "entity_id": gpu.slot, "serial_num": gpu.serial} for gpu in node.gpus]
    return {
        "DCGM Diagnostic": {"test_categories": _categories(ran, test)},
        "entity_groups": [{"entities": entities, "entity_group": "GPU", "entity_group_id": 1}],
        "metadata": {"DCGM Version": DCGM_VERSIONS[4], "Driver Version Detected": node.driver},
    }


def _diag3(node: SimNode, ran: Sequence[Row], found: Found) -> dict[str, Any]:
    def result(row: Row, gpu: SimGpu) -> dict[str, Any]:
        said = found.get((row[2], gpu.slot), [])
        entry: dict[str, Any] = {"gpu_id": str(gpu.slot), "status": "FAIL" if said else "PASS"}
        if said:
            entry["warnings"] = [
                {"warning": text, "error_id": s.id, "error_category": s.category, "error_severity": s.severity}
                for s, text in said
            ]
        return entry

    return {
        "DCGM GPU Diagnostic": {
            "test_categories": _categories(
                ran, lambda row: {"name": row[3], "results": [result(row, g) for g in node.gpus]}
            ),
            "version": DCGM_VERSIONS[3],
            "Driver Version Detected": node.driver,
        }
    }


BAR = "+---------------------------+------------------------------------------------+"
CELL = 45  # dcgmi cuts a cell after so many characters, in the middle of a word


def _cells(left: str, text: str) -> list[str]:
    """One row, or as many as the text needs."""
    parts = [text[i : i + CELL] for i in range(0, len(text), CELL)] or [""]
    return [f"| {left if n == 0 else '':<25} | {part:<46} |" for n, part in enumerate(parts)]


def _diag_text(node: SimNode, ran: Sequence[Row], found: Found) -> str:
    rows = ["Successfully ran diagnostic for group.", BAR, *_cells("Diagnostic", "Result"), BAR.replace("-", "=")]
    for name in dict.fromkeys(row[1] for row in ran):
        rows.append(f"+-----  {name}  {'-' * (18 - len(name))}+{'-' * 48}+")
        for row in (row for row in ran if row[1] == name):
            rows += _cells(row[2], "Fail" if any(test == row[2] for test, _ in found) else "Pass")
            for gpu in node.gpus:
                rows += _cells("", f"GPU{gpu.slot}: {'Fail' if (row[2], gpu.slot) in found else 'Pass'}")
            for gpu in node.gpus:
                for _, text in found.get((row[2], gpu.slot), []):
                    rows += _cells(f"Warning: GPU{gpu.slot}", text)
    return "\n".join([*rows, BAR]) + "\n"


# -- health -----------------------------------------------------------------------------------------------------------


def _incidents(gpu: SimGpu) -> dict[str, list[str]]:
    """What the watches saw: memory, links and loss; never a GPU that only needs a reset (DCGM issue 263)."""
    said: dict[str, list[str]] = {}
    if down := int(gpu.sign("links_down") or 0):
        said["NVLINK system"] = [
            f"GPU {gpu.slot}'s NvLink link {link} is currently down" for link in range(min(down, 4))
        ]
    if gpu.sign("remap_failed"):
        said["Memory system"] = [f"GPU {gpu.slot} had uncorrectable memory errors and row remapping failed."]
    if gpu.lost:
        said["Driver"] = [f"GPU {gpu.slot} has fallen off the bus"]
    return {system: [part for line in lines for part in wrap(line, 54)] for system, lines in said.items()}


def _health(node: SimNode, as_json: bool) -> Completed:
    bad = {gpu.slot: said for gpu in node.gpus if (said := _incidents(gpu))}
    overall = "Failure" if bad else "Healthy"
    if not as_json:
        return Completed(0, _health_text(overall, bad), "")
    body: dict[str, Any] = {"Overall Health": {"value": overall}}
    if bad:
        body["GPU"] = {"children": {str(slot): _health_entity(said) for slot, said in bad.items()}}
    return Completed(0, json.dumps({"body": body, "header": ["Health Monitor Report"]}, indent=2) + "\n", "")


def _health_entity(said: dict[str, list[str]]) -> dict[str, Any]:
    watches = {system: {"overflow": lines, "value": "Failure"} for system, lines in said.items()}
    return {"children": {"Errors": {"children": watches}}, "value": "Failure"}


def _health_text(overall: str, bad: dict[int, dict[str, list[str]]]) -> str:
    bar = f"+{'-' * 27}+{'-' * 58}+"
    rows = [bar, f"| {'Health Monitor Report':<85}|", bar.replace("-", "="), _health_row("Overall Health", overall)]
    rows += [_health_row("GPU", "")] if bad else []
    for slot, said in bad.items():
        rows += [_health_row(f"-> {slot}", "Failure"), _health_row("   -> Errors", "")]
        for system, lines in said.items():
            rows += [_health_row(f"      -> {system}", "Failure"), *(_health_row("", line) for line in lines)]
    return "\n".join([*rows, bar]) + "\n"


def _health_row(left: str, right: str) -> str:
    return f"| {left:<25} | {right[:56]:<56} |"


# -- discovery --------------------------------------------------------------------------------------------------------


def _discovery(node: SimNode) -> str:
    seen = [gpu for gpu in node.gpus if not gpu.lost]
    bar = f"+--------+{'-' * 70}+"
    rows = [
        f"{len(seen)} GPU{'' if len(seen) == 1 else 's'} found.",
        bar,
        f"| GPU ID | {'Device Information':<68} |",
        bar,
    ]
    for gpu in seen:
        told = ("Name: NVIDIA H100 80GB HBM3", f"PCI Bus ID: 0000{gpu.pci.upper()}.0", f"Device UUID: {gpu.uuid}")
        rows += [f"| {gpu.slot if n == 0 else '':<6} | {text:<68} |" for n, text in enumerate(told)] + [bar]
    return (
        "\n".join([*rows, "0 NvSwitches found.", "+-----------+", "| Switch ID |", "+-----------+", "+-----------+"])
        + "\n"
    )


# -- rehearsal --------------------------------------------------------------------------------------------------------


def _inject(argv: Sequence[str]) -> Completed:
    """`dcgmi test --inject`: the engine takes a made-up value for a field of a GPU into its cache."""
    wanted = ("--inject", "--gpuid", "-f", "-v")
    if not all(flag in argv for flag in wanted):
        return Completed(255, "", "PARSE ERROR: Required argument missing\n")
    return Completed(0, "Successfully injected field info.\n", "")
