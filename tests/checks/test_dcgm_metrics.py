"""dcgm-exporter's text: our scanner agrees with prometheus_client's parser, and blanks are not numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from sickbay.checks import dcgm_metrics
from sickbay.checks.dcgm_metrics import Sample, samples
from sickbay.model import Status
from tests.checks import samples as recorded

NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,12}", fullmatch=True)
LABELS = st.dictionaries(
    NAMES.filter(lambda name: not name.startswith("__")),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12),
    max_size=4,
)
VALUES = st.one_of(st.floats(), st.integers(-(2**63), 2**63))


def written(name: str, labels: dict[str, str], value: float, stamp: str) -> str:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

    inside = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value!r}{stamp}\n" if labels else f"{name} {value!r}{stamp}\n"


@given(st.lists(st.tuples(NAMES, LABELS, VALUES, st.sampled_from(["", " 1395066363000"])), max_size=8))
def test_the_scanner_reads_what_the_reference_parser_reads(rows: list[tuple[str, dict[str, str], float, str]]) -> None:
    text = "".join(written(*row) for row in rows)
    theirs = [
        (s.name, dict(s.labels), repr(float(s.value)))
        for family in text_string_to_metric_families(text)
        for s in family.samples
    ]
    ours = [(s.name, dict(s.labels), repr(s.value)) for s in samples(text)]
    assert sorted(ours, key=repr) == sorted(theirs, key=repr)


def test_the_recorded_scrapes_read_like_the_reference_parser() -> None:
    lists = ("csv", "all_fields")  # names of fields, not a scrape
    files = [f for f in (recorded.folder() / "dcgm/prom").iterdir() if not any(word in f.name for word in lists)]
    assert len(files) >= 4
    for file in files:
        text = "\n".join(line for line in file.read_text().splitlines() if not line.startswith("#")) + "\n"
        theirs = sum(len(family.samples) for family in text_string_to_metric_families(text))
        assert len(list(samples(text))) == theirs > 0, file.name


@pytest.mark.parametrize(
    "value", ["9223372036854775792", "9223372036854775794", "2147483632", "140737488355330", "NaN"]
)
def test_a_blank_is_not_a_number(value: str) -> None:
    text = f'DCGM_FI_DEV_ROW_REMAP_FAILURE{{gpu="0"}} {value}\nDCGM_FI_DEV_XID_ERRORS{{gpu="0"}} {value}\n'
    assert dcgm_metrics.signs(text) == []


def test_the_xid_gauge_is_the_last_code_and_says_that_it_may_be_old() -> None:
    (sign,) = dcgm_metrics.signs('DCGM_FI_DEV_XID_ERRORS{gpu="1",pci_bus_id="00000000:3B:00.0"} 79\n')
    assert (sign.code, sign.device, sign.traits["sticky"]) == ("xid.79", "0000:3b:00", "yes")


def test_a_failed_row_remap_is_found_once_per_gpu_also_under_mig() -> None:
    line = 'DCGM_FI_DEV_ROW_REMAP_FAILURE{{gpu="0",UUID="GPU-a",GPU_I_ID="{}"}} 1\n'
    (sign,) = dcgm_metrics.signs(line.format(1) + line.format(2))
    assert sign.code == "metrics.row-remap-failure"


def test_text_without_metrics_is_unknown() -> None:
    assert [sign.status for sign in dcgm_metrics.signs("go_threads 7\n")] == [Status.UNKNOWN]


@pytest.mark.parametrize("line", ["{", "}{ 1", 'x{a="b} 1', "x{a=b} 1", "x", "x y", 'x{a="b"}', "1x 2", "x 1_000"])
def test_broken_lines_are_passed_over(line: str) -> None:
    assert list(samples(line)) == []


def test_special_numbers_are_read() -> None:
    got = list(samples("a +Inf\nb -Inf\nc NaN\n"))
    assert got[:2] == [Sample("a", {}, math.inf), Sample("b", {}, -math.inf)]
    assert math.isnan(got[2].value)
