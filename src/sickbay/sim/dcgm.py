"""What dcgmi prints about a simulated host: diag (DCGM 4 JSON, or 3), health, and the words of a dead host engine.

SimHost calls it; it reads the truth and never changes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
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
        return Completed(None, "", "", timed_out=True)
    if "diag" in argv:
        return _diag(node, _level(argv), sees, major, "-j" in argv or "--json" in argv)
    if "health" in argv:
        return _health(node, "-j" in argv)
    if "--version" in argv or "-v" in argv:
        return Completed(0, f"dcgmi  version: {DCGM_VERSIONS[major]}\n", "")
    if "discovery" in argv:
        return Completed(0, f"{sum(not g.lost for g in node.gpus)} GPUs found.\n", "")
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


def _diag_text(node: SimNode, ran: Sequence[Row], found: Found) -> str:
    bar = "+---------------------------+------------------------------------------------+"
    rows = ["Successfully ran diagnostic for group.", bar, f"| {'Diagnostic':<25} | {'Result':<46} |", bar]
    for row in ran:
        failed = any(test == row[2] for test, _ in found)
        rows.append(f"| {row[2]:<25} | {'Fail' if failed else 'Pass':<46} |")
        rows += [
            f"| {'':<25} | {f'GPU{gpu.slot}: ' + ('Fail' if (row[2], gpu.slot) in found else 'Pass'):<46} |"
            for gpu in node.gpus
        ]
    return "\n".join([*rows, bar]) + "\n"


def _health(node: SimNode, as_json: bool) -> Completed:
    """Health says what the watches saw: memory and NVLink, never a GPU that only needs a reset (DCGM issue 263)."""
    bad = [gpu for gpu in node.gpus if gpu.sign("links_down") or gpu.sign("remap_failed") or gpu.lost]
    overall = "Failure" if bad else "Healthy"
    if as_json:
        body: dict[str, Any] = {"Overall Health": {"value": overall}}
        if bad:
            body["GPU"] = {"children": {str(gpu.slot): {"value": "Failure"} for gpu in bad}}
        return Completed(0, json.dumps({"body": body, "header": ["Health Monitor Report"]}, indent=2) + "\n", "")
    bar = "+---------------------------+-----------------------------------------------+"
    rows = ["Health Monitor Report", bar, f"| {'Overall Health':<25} | {overall:<45} |"]
    rows += [f"| {f'-> {gpu.slot}':<25} | {'Failure':<45} |" for gpu in bad]
    return Completed(0, "\n".join([*rows, bar]) + "\n", "")
