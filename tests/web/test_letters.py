"""What of a report is believed: everything about the node itself, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.core import triage
from sickbay.model import NodeRecord, Place, Report, Severity
from sickbay.platforms.reported import fold
from sickbay.web.letters import LONGEST_LINE, Refused, read_report
from tests.builders import CATALOG, a_node
from tests.fuzzing import EXAMPLES, FORMS, forms
from tests.web.letters import BOOT, CLUSTER, NODE, a_report, body, xid_79


def read(report: Report | bytes) -> Report:
    return read_report(report if isinstance(report, bytes) else body(report), NODE, CLUSTER, 7.0)


def refusal(report: Report | bytes) -> Refused:
    with pytest.raises(Refused) as refused:
        read(report)
    return refused.value


def test_an_agents_report_is_read_as_it_was_sent() -> None:
    report = a_report(xid_79(), factors={"driver": "580.105.08"})
    assert read(report).findings == (xid_79(received_at=7.0),)
    assert read(report).factors == {"driver": "580.105.08"}


def test_a_node_cannot_speak_as_monitor_or_operator_nor_about_another_node() -> None:
    liar = [xid_79(source=source, place=Place("node-0002", "0000:3b:00")) for source in ("monitor", "operator", "llm")]
    assert {(f.source, f.place) for f in read(a_report(*liar)).findings} == {("agent", Place(NODE, "0000:3b:00"))}


def test_a_node_answers_its_own_examination_and_no_other_nodes() -> None:
    keys = {"node-0001.3/12": True, "node-0002.3/12": False, "node-0001.3": False, "train#9": True, "": False}
    for key, allowed in keys.items():
        (finding,) = read(a_report(xid_79(answers=key))).findings
        assert finding.answers == (key if allowed else "")


def test_where_a_machine_stands_is_not_the_nodes_to_say() -> None:
    assert read(a_report(factors={"rack": "r9", "image": "mine", "nccl": "2.27"})).factors == {"nccl": "2.27"}


WRONG: tuple[Any, ...] = (1.5, None, True, "x", [], {}, [1.5], [None], ["x"], {"x": 1})
FIELDS = [*(("report", name) for name in json.loads(body(a_report()))),
          *(("finding", name) for name in json.loads(body(a_report(xid_79())))["findings"][0])]  # fmt: skip


@pytest.mark.parametrize(("part", "field"), FIELDS)
def test_a_field_of_the_wrong_kind_is_refused_by_its_name_and_by_what_it_must_be(part: str, field: str) -> None:
    """ "findings": 1.5 was answered "'float' object is not iterable"."""
    for wrong in WRONG:
        tree = json.loads(body(a_report(xid_79())))
        (tree if part == "report" else tree["findings"][0])[field] = wrong
        why = answered(json.dumps(tree).encode())
        assert not why or field in why or "it cannot speak for" in why, (wrong, why)
        assert not any(word in why for word in ("object is not", "NoneType", "attribute", "__"))


def answered(data: bytes) -> str:
    """Why it is refused; "" if it is taken."""
    try:
        read(data)
    except Refused as refused:
        return refused.why
    return ""


def test_findings_that_are_a_number_are_told_to_be_a_list() -> None:
    tree = {**json.loads(body(a_report())), "findings": 1.5}
    why = refusal(json.dumps(tree).encode()).why
    assert "Expected `array`, got `float` - at `$.findings`" in why


def test_a_devices_name_is_one_short_line() -> None:
    (finding,) = read(a_report(xid_79(place=Place(NODE, "/fsx/my data\n" + "x" * 500)))).findings
    assert finding.place.device.startswith("/fsx/my data?xxx")
    assert len(finding.place.device) == 256


def test_a_version_that_cannot_be_compared_costs_no_report() -> None:
    odd = {"driver": "580", "Bad Name": "x", "nccl": "y" * 300, "efa": "1\n2"}
    assert read(a_report(xid_79(), factors=odd)).factors == {"driver": "580"}


def test_the_cluster_is_the_tokens() -> None:
    assert read(a_report(cluster="default")).cluster == CLUSTER


def test_a_report_about_another_node_is_refused() -> None:
    assert refusal(a_report(node="node-0002")).status == 403
    assert "cannot speak for 'node-0002'" in refusal(a_report(node="node-0002")).why


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"id": "boot/" + "9" * 5000}, "findings[0].id"),
        ({"id": "boot/²"}, "findings[0].id"),  # a digit to str.isdigit, not to int()
        ({"id": "no sequence"}, "findings[0].id"),
        ({"count": -1}, "count"),
        ({"code": "x" * 300}, "code"),
    ],
)
def test_what_would_confuse_the_controller_is_refused_with_its_place(changed: dict[str, Any], says: str) -> None:
    refused = refusal(a_report(xid_79(**changed)))
    assert refused.status == 400
    assert says in refused.why


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"null", b"7", b"\xff", b"[" * 100_000, b'{"node": 7}', b'{"findings": {"severity": 1}}']
)
def test_what_is_no_report_is_refused_with_what_is_wrong(raw: bytes) -> None:
    refused = refusal(raw)
    assert refused.status == 400
    assert refused.why.startswith("the body is not a report: ")
    assert len(refused.why) < 400


def test_a_report_of_a_newer_version_says_so() -> None:
    assert "schema" in refusal(json.dumps({**json.loads(body(a_report())), "schema": 99}).encode()).why


def test_long_lines_are_cut_and_too_many_findings_refused() -> None:
    (finding,) = read(a_report(xid_79(reason="x" * 5000, evidence=("y" * 5000,) * 40))).findings
    assert len(finding.reason) == LONGEST_LINE
    assert len(finding.evidence) == 16
    assert "send the worst" in refusal(a_report(*(xid_79(n) for n in range(600)))).why


# --- fuzz -------------------------------------------------------------------------------------------------------------

WORDS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["agent", "monitor", "operator", NODE, BOOT, f"{BOOT}/7", "REPLACE", "FAILED", "OK", "xid.79", "/²"]
    ),
)
NUMBERS = st.one_of(st.integers(), st.floats(), st.booleans(), st.none())
LEAVES = st.one_of(WORDS, NUMBERS)


def mostly(sound: st.SearchStrategy[Any], wild: st.SearchStrategy[Any] = LEAVES) -> st.SearchStrategy[Any]:
    """Nine times in ten as it should be: most examples must get past the first field."""
    return st.integers(0, 9).flatmap(lambda n: wild if n == 0 else sound)


FINDING = st.fixed_dictionaries(
    {
        "id": mostly(st.integers(0, 10**9).map(lambda n: f"{BOOT}/{n}")),
        "source": WORDS,
        "check": WORDS,
        "place": st.fixed_dictionaries({"node": WORDS, "device": mostly(st.sampled_from(["", "0000:3b:00"]), WORDS)}),
        "status": st.sampled_from(["OK", "FAILED", "DEGRADED", "UNKNOWN"]),
        "code": st.one_of(st.sampled_from(["xid.79", "xid.64", "tool.timeout", "smi.gpu-lost", ""]), WORDS),
        "reason": WORDS,
    },
    optional={
        "severity": mostly(st.sampled_from([s.name for s in Severity])),
        "evidence": st.lists(WORDS, max_size=3),
        "boot_id": st.one_of(st.just(BOOT), WORDS),
        "at": mostly(st.floats(0, 1e12), NUMBERS),
        "count": mostly(st.integers(1, 9), NUMBERS),
        "answers": WORDS,
        "traits": mostly(st.dictionaries(WORDS, WORDS, max_size=3)),
    },
)
REPORT = st.fixed_dictionaries(
    {
        "node": mostly(st.just(NODE)),
        "boot_id": st.one_of(st.just(BOOT), WORDS),
        "sequence": mostly(st.integers(0, 100), NUMBERS),
        "at": mostly(st.floats(0, 1e12), NUMBERS),
    },
    optional={
        "findings": mostly(st.lists(FINDING, max_size=3)),
        "gpus": mostly(st.just([]), st.lists(st.dictionaries(WORDS, LEAVES, max_size=4), max_size=2)),
        "factors": mostly(st.dictionaries(st.sampled_from(["driver", "nccl", "rack"]), WORDS, max_size=3)),
        "cluster": mostly(st.just(CLUSTER)),
        "schema": mostly(st.just(1), NUMBERS),
    },
)
BODIES = mostly(REPORT.map(lambda tree: json.dumps(tree).encode("utf-8", "surrogatepass")), st.binary(max_size=200))


def read_or_refusal(raw: bytes) -> Report | Refused:
    try:
        return read(raw)
    except Refused as refused:
        return refused


@settings(max_examples=EXAMPLES // FORMS)
@given(BODIES)
def test_fuzz_any_body_is_a_report_of_its_own_node_or_a_sentence(raw: bytes) -> None:
    for text in forms(raw.decode("latin-1")):
        is_a_report_or_a_sentence(text.encode("latin-1"))


def is_a_report_or_a_sentence(raw: bytes) -> None:
    """And what passes goes through triage, which may assume what letters.py has promised."""
    report = read_or_refusal(raw)
    if isinstance(report, Refused):
        assert report.status in (400, 403)
        assert report.why
        return
    assert report.node == NODE
    assert {(f.source, f.place.node) for f in report.findings} <= {("agent", NODE)}
    node = fold(a_node(NODE, boot_id=BOOT), report, 1.0)
    triage.take(NodeRecord(NODE), node, node.findings, CATALOG, 10.0)
