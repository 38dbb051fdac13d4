"""Anything may be in a log. No input raises, and a part is condemned exactly when its own evidence says so.

SICKBAY_FUZZ is the number of examples per property (`make soak` sets 100,000); `-k fuzz` selects them all.
"""

from __future__ import annotations

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.checks import dcgm_diag, dcgm_metrics, kernel_log, kernel_scan, nvidia_smi
from sickbay.checks.recognise import KINDS, binary, kind_of
from sickbay.checks.signs import Sign, Stamp, finding
from sickbay.core.blame import blame
from sickbay.core.diagnose import diagnose
from sickbay.model import Blame, Finding, Place, Severity, Status
from tests.checks.test_dcgm_diag import PASS, failed, result
from tests.checks.test_nvidia_smi import text as smi_text
from tests.diagnose import grammar
from tests.diagnose.builders import CATALOG

EXAMPLES = int(os.environ.get("SICKBAY_FUZZ", "300"))

# None of these says that a part is beyond repair, and no digits can be drawn to make up a code that does.
PIECES = st.sampled_from(
    [
        "NVRM:", " Xid (PCI:", "0000:3b:00", "):", " 79", " 64,", " 154, ", "to 0x", "pid=", "name=", "<unknown>", "\n",
        "[1.0] ", "kernel: ", "Nov 22 14:56:44 h ", "SXid (PCI:", ".0): 20034, Fatal",
        "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6", "fallen off the bus", "The NVIDIA GPU ", "{", "}", '"',
        "EDAC MC0: 1 UE ", "PCIe Bus Error: severity=Uncorrected (Fatal)", "6,1,2,-;", "<6>",
        '{"_TRANSPORT":"kernel","MESSAGE":"', "\x00", "…", "blocked for more than", " [nvidia]", " : ", "Yes",
        "GPU 00000000:10:00.0", "Remapped Rows", "    ", "Pending", "Unable to determine the device handle for GPU",
        "DCGM_FI_DEV_XID_ERRORS", "Traceback (most recent call last):", "KeyError: 1", "CUDA error: ",
        "uncorrectable ECC error",
    ]
)  # fmt: skip
SOUP = st.lists(
    st.one_of(PIECES, st.text(st.characters(exclude_categories=["Nd", "Cs"]), max_size=6)), max_size=60
).map("".join)


def findings(signs: list[Sign], check: str) -> list[Finding]:
    return [finding(sign, CATALOG, Stamp(check, "n"), n) for n, sign in enumerate(signs)]


def worst(found: list[Finding]) -> Severity:
    return max((d.severity for d in diagnose(found, CATALOG)), default=Severity.NONE)


def scanned(raw: bytes, cut: int) -> Severity:
    found = kernel_scan.scan([raw[i : i + cut] for i in range(0, len(raw), cut)])
    return worst(findings(kernel_log.signs(found), "kernel-log"))


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 2**32), st.sampled_from([97, 4096, 1 << 20]))
def test_a_log_condemns_a_part_exactly_when_the_kernel_said_so(seed: int, cut: int) -> None:
    log = grammar.log(seed)
    raw = "\n".join(log.lines).encode("utf-8", "surrogatepass")
    assert (scanned(raw, cut) is Severity.REPLACE) == log.final, seed


@settings(max_examples=EXAMPLES)
@given(SOUP, st.integers(1, 200))
def test_no_soup_of_kernel_words_raises_or_condemns(soup: str, cut: int) -> None:
    assert scanned(soup.encode(), cut) < Severity.REPLACE


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
        assert worst(findings(judge(soup), name)) < Severity.REPLACE
    nvidia_smi.inventory(soup)
    blame(soup.splitlines())


CARD = st.fixed_dictionaries(
    {
        "pending": st.sampled_from(["No", "Yes", "N/A"]),
        "dbe": st.sampled_from(["0", "4", "N/A"]),
        "slow": st.sampled_from(["Active", "Not Active"]),
        "recovery": st.sampled_from(["None", "Reset", "Reboot", "Drain P2P"]),
        "sram": st.sampled_from(["No", "No", "No", "N/A", "Yes"]),
        "failed": st.sampled_from(["No", "No", "No", "N/A", "Yes"]),
    }
)


@settings(max_examples=EXAMPLES)
@given(st.lists(CARD, min_size=1, max_size=4))
def test_nvidia_smi_condemns_exactly_the_cards_that_say_so(cards: list[dict[str, str]]) -> None:
    told = diagnose(findings(nvidia_smi.signs(smi_text(*cards)), "nvidia-smi"), CATALOG)
    condemned = {d.place.device for d in told if d.severity is Severity.REPLACE}
    assert condemned == {f"0000:{n + 16:02x}:00" for n, c in enumerate(cards) if "Yes" in (c["sram"], c["failed"])}


# By hand, from dcgm_errors.h: too many retired pages (7, 8), row remapping failed (80). All others can be treated.
FINAL_ERRORS = {7, 8, 80}
FAILURE = st.tuples(st.integers(1, 111), st.sampled_from([2, 4, 6]), st.sampled_from(["Fail", "Fail", "Pass", "Skip"]))


@settings(max_examples=EXAMPLES)
@given(st.lists(FAILURE, max_size=4))
def test_dcgm_condemns_exactly_for_the_errors_that_say_so(failures: list[tuple[int, int, str]]) -> None:
    rows = [failed(error, level, gpu) | {"status": s} for gpu, (error, level, s) in enumerate(failures)]
    final = any(error in FINAL_ERRORS and status == "Fail" for error, _, status in failures)
    assert (worst(findings(dcgm_diag.signs(result(PASS, *rows)), "dcgm-l2")) is Severity.REPLACE) == final


WHOLE = (smi_text({}, {"pending": "Yes"}), result(PASS, failed(29, 5)), smi_text({"dbe": "4"}, {}))


@settings(max_examples=EXAMPLES)
@given(st.sampled_from(WHOLE), st.data())
def test_a_truncated_or_damaged_result_never_becomes_a_replacement(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    hole = data.draw(st.integers(0, len(text)))
    damaged = text[:hole] + data.draw(st.text(max_size=3)) + text[hole + 1 : cut]
    for name, judge in (("nvidia-smi", nvidia_smi.signs), ("dcgm-l2", dcgm_diag.signs)):
        assert worst(findings(judge(damaged), name)) < Severity.REPLACE


ERRORS = ("KeyError: 'a'", "ValueError: bad", "TypeError: no", "IndexError: 3", "AssertionError: x", "ImportError: y")
HARD = (
    "NVRM: Xid (PCI:0000:3b:00): 79, lost",
    "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "GPU is lost",
)


@settings(max_examples=EXAMPLES)
@given(st.sampled_from(ERRORS), st.lists(st.sampled_from((*HARD, "step 3 loss 1.0", "watchdog timeout")), max_size=6))
def test_a_program_error_is_never_called_hardware(error: str, around: list[str]) -> None:
    trace = ["Traceback (most recent call last):", '  File "/home/ann/train.py", line 3, in main', f"{error}"]
    assert blame([*around, *trace]).blame is not Blame.HARDWARE


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
