"""Anything may be in a log. No input raises, and nothing but its own evidence condemns a part.

SICKBAY_FUZZ multiplies the number of examples (make soak).
"""

from __future__ import annotations

import os
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.checks import dcgm_diag, dcgm_metrics, kernel_log, kernel_scan, nvidia_smi
from sickbay.checks.recognise import KINDS, binary, kind_of
from sickbay.checks.signs import Sign, Stamp, finding
from sickbay.core.blame import blame
from sickbay.core.diagnose import diagnose
from sickbay.model import Finding, Place, Severity, Status
from tests.checks.test_dcgm_diag import PASS, failed, result
from tests.checks.test_nvidia_smi import text as smi_text
from tests.diagnose.builders import CATALOG

EXAMPLES = 200 * int(os.environ.get("SICKBAY_FUZZ", "1"))

PIECES = st.sampled_from(
    [
        "NVRM:",
        " Xid (PCI:",
        "0000:3b:00",
        "):",
        " 79",
        " 64,",
        " 154, ",
        "to 0x",
        "pid=",
        "name=",
        "<unknown>",
        "\n",
        "[1.0] ",
        "kernel: ",
        "Nov 22 14:56:44 h ",
        "SXid (PCI:",
        ".0): 20034, Fatal",
        "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6",
        "fallen off the bus",
        "The NVIDIA GPU ",
        "{",
        "}",
        '"',
        "EDAC MC0: 1 UE ",
        "PCIe Bus Error: severity=Uncorrected (Fatal)",
        "6,1,2,-;",
        "<6>",
        '{"_TRANSPORT":"kernel","MESSAGE":"',
        "\x00",
        "…",
        "blocked for more than",
        " [nvidia]",
        " : ",
        "Yes",
        "GPU 00000000:10:00.0",
        "Remapped Rows",
        "    ",
        "Pending",
        "Unable to determine the device handle for GPU",
        "DCGM_FI_DEV_XID_ERRORS",
        "Traceback (most recent call last):",
        "KeyError: 1",
        "CUDA error: ",
        "uncorrectable ECC error",
    ]
)
SOUP = st.lists(st.one_of(PIECES, st.text(max_size=6)), max_size=60).map("".join)
FINAL = re.compile(
    r"Remapping Failure|remapped_row_failure|Threshold|Unrepairable|\b64\b|157|161|165|ROW_REMAP|SRAM|\b54\b",
    re.IGNORECASE,
)


def findings(signs: list[Sign], check: str) -> list[Finding]:
    return [finding(sign, CATALOG, Stamp(check, "n"), n) for n, sign in enumerate(signs)]


def worst(found: list[Finding]) -> Severity:
    return max((d.severity for d in diagnose(found, CATALOG)), default=Severity.NONE)


@settings(max_examples=EXAMPLES)
@given(SOUP, st.integers(1, 200))
def test_no_soup_of_kernel_words_raises_or_condemns(soup: str, cut: int) -> None:
    raw = soup.encode("utf-8", "surrogatepass")
    found = kernel_scan.scan([raw[i : i + cut] for i in range(0, len(raw), cut)])
    judged = findings(kernel_log.signs(found), "kernel-log")
    assert worst(judged) < Severity.REPLACE or FINAL.search(soup)


@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=400))
def test_no_bytes_raise(raw: bytes) -> None:
    kernel_scan.scan([raw])
    binary(raw)
    text = raw.decode("utf-8", "replace")
    assert kind_of(text) in (*KINDS, "")
    blame(text.splitlines())


@settings(max_examples=EXAMPLES)
@given(SOUP)
def test_no_soup_raises_in_the_other_readers_or_condemns_a_part(soup: str) -> None:
    for name, judge in (
        ("nvidia-smi", nvidia_smi.signs),
        ("dcgm-l2", dcgm_diag.signs),
        ("metrics", dcgm_metrics.signs),
    ):
        assert worst(findings(judge(soup), name)) < Severity.REPLACE or FINAL.search(soup)
    nvidia_smi.inventory(soup)
    blame(soup.splitlines())


WHOLE = (smi_text({}, {"pending": "Yes"}), result(PASS, failed(29, 5)), smi_text({"dbe": "4"}, {}))


@settings(max_examples=EXAMPLES)
@given(st.sampled_from(WHOLE), st.data())
def test_a_truncated_or_damaged_result_never_becomes_a_replacement(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    hole = data.draw(st.integers(0, len(text)))
    damaged = text[:hole] + data.draw(st.text(max_size=3)) + text[hole + 1 : cut]
    for name, judge in (("nvidia-smi", nvidia_smi.signs), ("dcgm-l2", dcgm_diag.signs)):
        assert worst(findings(judge(damaged), name)) < Severity.REPLACE


CODES = st.sampled_from([*sorted(CATALOG.codes), "xid.9999", "", "nonsense"])
TRAITS = st.dictionaries(
    st.sampled_from(
        ["text", "hex", "intr", "status", "unit", "driver", "events", "span_s", "pid", "sites", "user", "sticky", "mig"]
    ),
    st.sampled_from(["", "0", "1", "2", "ffffffff", "570.1", "x", "900", "Fatal", "enabled"]),
)


@settings(max_examples=EXAMPLES)
@given(st.lists(st.tuples(CODES, st.sampled_from(Status), st.sampled_from(["", "0000:01:00"]), TRAITS), max_size=6))
def test_no_mix_of_findings_raises_and_unknown_or_ok_never_treats(
    rows: list[tuple[str, Status, str, dict[str, str]]],
) -> None:
    given_ = [
        Finding(
            f"b/{n}", "agent", "c", Place("n", device), status, code, code, severity=Severity.MONITOR, traits=traits
        )
        for n, (code, status, device, traits) in enumerate(rows)
    ]
    told = diagnose(given_, CATALOG, recent=given_)
    assert len({(d.fault, d.place) for d in told}) == len(told)
    assert [d.severity for d in told] == sorted((d.severity for d in told), reverse=True)
    if all(f.status in (Status.UNKNOWN, Status.OK) for f in given_):
        assert all(d.severity <= Severity.MONITOR for d in told)
