"""Anything may stand where dcgmi's answer should: no reader raises, and no part is condemned but by its own words.

tests/fuzzing.py says how many examples.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.catalog import load
from sickbay.checks import dcgm_diag, dcgm_gate, dcgm_health, dcgm_output
from sickbay.checks.signs import Ask, Reading, Sign, Stamp, finding
from sickbay.model import Severity, Status
from sickbay.ports import Completed
from tests.checks.test_dcgm_health import report
from tests.checks.test_dcgm_text import table
from tests.fuzzing import EXAMPLES

CATALOG = load()

# None of these says that a part is beyond repair, and no digits can be drawn.
PIECES = st.sampled_from(
    [
        "|", "| ", " |\n", "\n", "+-----  Hardware  ----------+------+\n", "|-----  Deployment  ------+------|\n",
        "| memory                    | Fail |\n", "| GPU Memory | Pass - GPUs: 0, 1 |\n", "|  | Fail - GPU: 3 |\n",
        "|  | GPU3: Fail |\n", "| Warning | GPU 3 row remap", "| Error | ", "Successfully ran diagnostic for group.",
        "| Overall Health | Failure |\n", "| -> 0 | Failure |\n", "|    -> NVLINK system | Failure |\n",
        "GPU 0's NvLink link 0 is currently down", "Health watches not enabled", '{"body":', '{"Overall Health":',
        '"value":', '"children":', "{", "}", "[", "]", ",", '"', "null", "true", '{"DCGM Diagnostic":',
        '"test_categories":', '"tests":', '"results":', '"status": "Fail"', '"warnings":', '"error_id":',
        '"runtime_error": "x"', "Detected a FAILURE in health system Memory: 'x'", "#Entity  XIDER\n", "GPU 1  \n",
        "[Feb 25 2025 13:59:45] [ERROR] [tid 1] detected NVSwitch fatal error ", "pci bus id ", "…", "\x00", "\x1b[4m",
    ]
)  # fmt: skip
SOUP = st.lists(st.one_of(PIECES, st.text(st.characters(exclude_categories=["Nd", "Cs"]), max_size=5)), max_size=40)
LEAF = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 6), st.floats(), st.sampled_from(["Fail", "Pass", "", "0", "GPU"])
)
KEYS = st.sampled_from(
    [
        "DCGM Diagnostic", "DCGM GPU Diagnostic", "test_categories", "category", "tests", "results", "status", "name",
        "warnings", "warning", "error_severity", "entity_id", "entity_group", "entity_groups", "entities", "gpu_ids",
        "serial_num", "test_summary", "runtime_error", "body", "Overall Health", "children", "value", "overflow",
        "header", "GPU", "0", "Memory system", "Link 0", "CRC Data Error",
    ]
)  # fmt: skip
TREE: st.SearchStrategy[Any] = st.recursive(
    LEAF, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)), max_leaves=12
)
ROOTED = st.tuples(st.sampled_from(["DCGM Diagnostic", "DCGM GPU Diagnostic", "body", "x"]), TREE)


def worst(signs: list[Sign]) -> Severity:
    return max((finding(sign, CATALOG, Stamp("dcgm-l2", "n"), 1).severity for sign in signs), default=Severity.NONE)


def read_by_all(text: str, code: int | None) -> list[Sign]:
    done = Completed(code, text, "")
    told = dcgm_output.signs(text) + dcgm_output.link_signs(text) + dcgm_output.last_xids(text)
    told += dcgm_output.fabric_signs(text) + dcgm_health.signs(text) + dcgm_diag.signs(text)
    return told + dcgm_diag.judge(Reading(done), Ask()) + dcgm_health.judge(Reading(done), Ask())


@settings(max_examples=EXAMPLES // 2)
@given(SOUP.map("".join), st.sampled_from([0, 1, 205, 226, 235, None]))
def test_fuzz_no_soup_of_dcgms_words_raises_or_condemns(soup: str, code: int | None) -> None:
    told = read_by_all(soup, code)
    assert worst(told) < Severity.REPLACE
    assert all(len(sign.reason) < 600 and sum(map(len, sign.evidence)) < 1200 for sign in told)


@settings(max_examples=EXAMPLES // 2)
@given(ROOTED)
def test_fuzz_no_tree_of_dcgms_keys_raises_or_condemns(rooted: tuple[str, Any]) -> None:
    assert worst(read_by_all(json.dumps({rooted[0]: rooted[1]}), 0)) < Severity.REPLACE


WHOLE = (
    table(
        ("memory", "Fail"),
        ("", "GPU3: Fail"),
        ("Warning: GPU3", "GPU 3 had memory errors and row remappings are pending"),
    ),
    report("Memory system", "Detected 2 volatile double-bit ECC error(s) in GPU 0."),
    table(("GPU Memory", "Pass - All"), ("Warning", "GPU 1 had uncorrectable memory errors and row remapping failed.")),
)


@settings(max_examples=EXAMPLES // 2)
@given(st.sampled_from(WHOLE), st.data())
def test_fuzz_a_damaged_answer_never_becomes_a_replacement(text: str, data: st.DataObject) -> None:
    hole, cut = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, len(text)))
    filler = data.draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=3))
    damaged = text[:hole] + filler + text[hole + 1 : cut]
    assert worst([sign for sign in read_by_all(damaged, 226) if sign.status is None]) < Severity.REPLACE


@settings(max_examples=EXAMPLES)
@given(st.text(max_size=80), st.text(max_size=80), st.sampled_from([0, 6, 255]))
def test_fuzz_the_gate_never_raises_and_never_blames_a_gpu(apps: str, mig: str, code: int) -> None:
    outputs = {"compute-apps": Completed(0, apps, ""), "mig": Completed(code, mig, "")}
    refused = dcgm_gate.refusal(outputs)
    assert refused is None or refused.status is Status.UNKNOWN
