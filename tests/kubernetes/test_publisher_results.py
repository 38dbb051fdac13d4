"""The annotation `results`: what fits into it, and what anybody who may patch a node can do with it. No cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sickbay.core import triage
from sickbay.kube import results
from sickbay.model import Finding, Gpu, NodeRecord, Place, Report, Severity, Status
from sickbay.platforms.reported import fold
from tests.agent.builders import BOOT, CATALOG, NODE, WALL, a_finding, passed
from tests.builders import a_node
from tests.fuzzing import EXAMPLES
from tests.kubernetes.publishing import label_time

FUZZ = EXAMPLES // 20
NAMES = {"nvidia-smi": "0-nvidia-smi"}


def a_report(*findings: Finding, **changed: Any) -> Report:
    return replace(Report(NODE, BOOT, 7, WALL, findings), **changed)


def read(text: str) -> Report | None:
    return results.decode(text, NODE)


def test_a_report_is_read_as_it_was_written() -> None:
    gpus = tuple(Gpu(f"GPU-{n}", f"16500{n}", f"0000:{n}b:00", n) for n in range(8))
    report = a_report(
        a_finding("xid.79", 3, evidence=("NVRM: Xid",), traits={"pid": "1"}, count=4, part="165001"),
        passed("nvidia-smi", 2), gpus=gpus, factors={"driver": "580.1"}, instance="i-0abc", cluster="lab",
    )  # fmt: skip
    assert read(results.encode(report, "fail", Severity.REBOOT, NAMES)) == report


def test_the_originals_words_come_first() -> None:
    """ISOLATE is the originals' word for REPLACE; a check that passed has no severity (originals 002.12 #2)."""
    report = a_report(
        a_finding("xid.79", 3, severity=Severity.REPLACE), a_finding("xid.13", 4), passed("nvidia-smi", 2),
        factors={"instance-type": "p5.48xlarge"},
    )  # fmt: skip
    shown = json.loads(results.encode(report, "fail", Severity.REPLACE, NAMES))
    assert list(shown) == ["timestamp", "hostname", "instance_type", "status", "severity", "checks", "report"]
    assert (shown["timestamp"], shown["severity"]) == ("2027-01-15T08:00:00Z", "ISOLATE")
    assert shown["checks"] == [
        {"check": "kernel-log", "status": "FAIL", "severity": "ISOLATE"},
        {"check": "0-nvidia-smi", "status": "PASS", "severity": ""},
    ]


def test_what_could_not_be_looked_at_is_no_pass() -> None:
    blind = a_finding("tool.timeout", 2, check="topology", status=Status.UNKNOWN, severity=Severity.NONE)
    shown = json.loads(results.encode(a_report(blind), "unknown", Severity.NONE))
    assert shown["checks"] == [{"check": "topology", "status": "SKIP", "severity": ""}]


def test_too_much_is_cut_and_the_worst_finding_stays() -> None:
    many = [a_finding("xid.13", n, reason="r" * 400, evidence=("e" * 400,) * 4) for n in range(2, 98)]
    report = a_report(a_finding("xid.79", 1, evidence=("GPU has fallen off the bus",)), *many)
    text = results.encode(report, "fail", Severity.REBOOT)
    assert len(text.encode()) <= results.MOST_BYTES
    found = read(text)
    assert found is not None
    assert found.findings[0].code == "xid.79"
    assert len(found.findings) >= 12


def test_a_chassis_full_of_gpus_does_not_push_the_findings_out() -> None:
    gpus = tuple(Gpu(f"GPU-{n:036d}", f"{n:013d}", f"0000:{n:02x}:00", n) for n in range(256))
    found = read(results.encode(a_report(a_finding("xid.79", 1), gpus=gpus), "fail", Severity.REBOOT))
    assert found is not None
    assert (found.findings[0].code, found.gpus) == ("xid.79", ())


def test_a_label_holds_the_same_moment() -> None:
    assert results.label_stamp(WALL) == "2027-01-15T080000Z"
    assert label_time(results.label_stamp(WALL)) == WALL
    assert label_time("yesterday") == 0.0


def test_an_annotation_copied_from_another_node_says_nothing_about_this_one() -> None:
    text = results.encode(a_report(a_finding("xid.79", 1)), "fail", Severity.REBOOT)
    assert results.decode(text, "node-2") is None


def test_its_findings_are_an_agents_and_about_its_own_node() -> None:
    liar = a_finding("xid.79", 1, source="operator", place=Place("node-2", "0000:3b:00"), answers="node-2.4/7")
    found = read(results.encode(a_report(liar), "fail", Severity.REBOOT))
    assert found is not None
    (one,) = found.findings
    assert (one.source, one.place, one.answers) == ("agent", Place(NODE, "0000:3b:00"), "")


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "null", "[]", "7", '{"report": null}', '{"report": []}', '{"report": {"node": 7}}', "[" * 100_000,
        '{"report":' * 5_000, '{"report": {"node": "node-1", "boot_id": "b", "sequence": -1, "at": 0}}',
        '{"report": {"node": "node-1", "boot_id": "b", "sequence": 1, "at": 1e999}}',
        '{"report": {"node": "node-1", "boot_id": "b", "sequence": 1, "at": 0, "schema": 99}}',
        '{"report": {"node": "node-1", "boot_id": "b", "sequence": 1, "at": 0, "findings": [null]}}', "x" * 300_000,
    ],
)  # fmt: skip
def test_what_is_no_report_is_none(text: str) -> None:
    assert read(text) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
FIELDS = ("node", "boot_id", "sequence", "at", "findings", "gpus", "factors", "instance", "cluster", "schema")


@settings(max_examples=FUZZ, deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), JSON), st.dictionaries(st.text(max_size=12), JSON, max_size=6))
@example({"findings": [{"severity": []}]}, {})
def test_fuzz_whatever_somebody_wrote_there_nothing_is_raised(changed: dict[str, Any], finding: dict[str, Any]) -> None:
    good = json.loads(results.encode(a_report(a_finding("xid.79", 1)), "fail", Severity.REBOOT))
    good["report"]["findings"][0].update(finding)
    good["report"].update(changed)
    report = read(json.dumps(good))
    if report is not None:
        shown = fold(replace(a_node(), name=NODE), report, WALL)
        triage.take(NodeRecord(NODE), shown, shown.findings, CATALOG, 0.0)


@settings(max_examples=FUZZ, deadline=None)
@given(st.text(max_size=400) | st.binary(max_size=400).map(lambda data: data.decode("latin-1")))
def test_fuzz_no_text_is_too_odd(text: str) -> None:
    read(text)
    read(f'{{"report":{text}}}')


@settings(max_examples=FUZZ, deadline=None)
@given(
    st.lists(st.tuples(st.text(max_size=600), st.lists(st.text(max_size=600), max_size=6)), max_size=40),
    st.dictionaries(st.text(max_size=300), st.text(max_size=2_000), max_size=12),
    st.integers(0, 300),
)
def test_fuzz_whatever_a_node_prints_the_annotation_stays_within_bounds(
    said: list[tuple[str, list[str]]], factors: dict[str, str], gpus: int
) -> None:
    findings = [
        a_finding("xid.79", n, reason=reason, evidence=tuple(lines), check=reason[:300] or "kernel-log")
        for n, (reason, lines) in enumerate(said)
    ]
    shape = tuple(Gpu("\x1b" * 200, "s" * 200, "p" * 200, n) for n in range(gpus))
    text = results.encode(a_report(*findings, factors=factors, gpus=shape), "fail", Severity.REBOOT)
    assert len(text.encode()) <= results.MOST_BYTES
    assert json.loads(text)["status"] == "fail"
