"""Anything may come out of a GPU tool: no parser raises, and no rubbish condemns a part. `-k fuzz` selects these."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.catalog import load
from sickbay.checks import gpu_processes, gpu_slowdown, nvidia_smi, nvlink_errors, nvml, pcie, topology
from sickbay.checks.signs import Ask, Check, Reading, Stamp, finding
from sickbay.checks.smi_text import NVML_HEAD
from sickbay.model import Severity
from sickbay.ports import Completed
from tests.checks.test_gpu_processes import TWO
from tests.checks.test_gpu_slowdown import said
from tests.checks.test_nvidia_smi import old_text, text
from tests.checks.test_nvlink_errors import output
from tests.checks.test_nvml import FakeNvml
from tests.checks.test_pcie import csv
from tests.checks.test_topology import P5, fabric, links, printed_matrix
from tests.fuzzing import EXAMPLES

CATALOG = load()
ASK = Ask(profile=P5, expected_gpus=2, uptime_s=90_000.0, suite="prolog")

HEALTHY = {
    "text": (nvidia_smi.CHECK, text({}, {})),
    "old text": (nvidia_smi.CHECK, old_text()),
    "nvml": (nvidia_smi.CHECK, nvml.read(FakeNvml([{}, {}]))),
    "topo -m": (topology.CHECK, printed_matrix(2)),
    "nvlink -e": (nvlink_errors.CHECK, output({}, {})),
    "performance": (gpu_slowdown.CHECK, said()),
    "compute apps": (gpu_processes.CHECK, TWO),
    "query-gpu": (pcie.CHECK, csv({}, {})),
}
# What real outputs are made of, apart from the flags that do condemn a part ("Yes" behind one of four names).
PIECES = st.sampled_from(
    [
        "GPU 00000000:10:00.0\n", "    ", "\n", " : ", "GPU0\t", "NV18\t", "NV4\t", "SYS\t", " X ", "\x1b[4m",
        "\x1b[0m",
        "Link 0: ", "<inactive>", "26.562 GB/s", "Replay Errors: ", "CRC Errors: ", "65535", "99999999999999999999",
        "[N/A]", "[Unknown Error]", "Unknown Error", "No", "Active", "Not Active", ", ", "pci.bus_id", "index",
        "00000000:10:00.0", "Fabric", "State", "In Progress", "ECC Errors", "Volatile", "DRAM Uncorrectable",
        "Retired Pages", "Single Bit ECC", "Unable to determine the device handle for GPU", "No devices were found",
        "<nvidia_smi_log>", "</nvidia_smi_log>", "<gpu id='", "'>", "</gpu>", NVML_HEAD, '"gpus": [', "]}", "\x00",
        "GPU 0: NVIDIA H100 (UUID: GPU-1)", "all links are inActive", "MIG mode",
    ]
)  # fmt: skip
SOUP = st.lists(st.one_of(PIECES, st.text(max_size=5)), max_size=40).map("".join)

SPOON = st.lists(PIECES, max_size=8).map("".join)


def worst(check: Check, printed: str) -> Severity:
    """The worst finding of a check to which every command prints the same."""
    done = Completed(0, printed, "")
    outputs = {"nvlink": Completed(0, printed, ""), "q": Completed(0, printed, "")}
    reading = Reading(done, outputs=outputs)
    figures = check.samples(reading) if check.samples else {}
    ASK.series.forget(list(ASK.series.points))
    ASK.series.add(0.0, dict.fromkeys(figures, 0.0))
    ASK.series.add(300.0, figures)
    if check.keeps:
        check.keeps(reading)
    signs = check.judge(reading, ASK)
    found = [finding(sign, CATALOG, Stamp(check.name, "n"), n) for n, sign in enumerate(signs)]
    assert all(len(line) <= 240 for f in found for line in f.evidence)
    assert all(len(f.reason) < 400 for f in found)
    return max((f.severity for f in found), default=Severity.NONE)


@pytest.mark.parametrize("kind", sorted(HEALTHY))
def test_fuzz_rubbish_raises_nothing_and_condemns_nothing(kind: str) -> None:
    check, _ = HEALTHY[kind]

    @settings(max_examples=EXAMPLES // 2, deadline=None)
    @given(SOUP)
    def holds(printed: str) -> None:
        assert worst(check, printed) < Severity.REPLACE

    holds()


@pytest.mark.parametrize("kind", sorted(HEALTHY))
def test_fuzz_a_damaged_healthy_output_condemns_nothing(kind: str) -> None:
    """Cut, overwritten or with a piece put in: however it is damaged, it says nothing that ends a part's life."""
    check, whole = HEALTHY[kind]

    @settings(max_examples=EXAMPLES // 2, deadline=None)
    @given(st.integers(0, len(whole)), st.integers(0, 40), SOUP.map(lambda soup: soup[:60]))
    def holds(at: int, gone: int, put: str) -> None:
        assert worst(check, whole[:at] + put + whole[at + gone :]) < Severity.REPLACE

    holds()


@settings(max_examples=EXAMPLES, deadline=None)
@given(SPOON, SPOON, SPOON)
def test_fuzz_whatever_the_tools_of_the_fabric_print_condemns_nothing(shown: str, service: str, states: str) -> None:
    outputs = {
        "nvlink": Completed(0, links(2) + states, ""), "q": Completed(0, fabric("Completed") + states, ""),
        "service": Completed(3, service, ""), "process": Completed(1, shown, ""),
    }  # fmt: skip
    signs = topology.judge(Reading(Completed(0, printed_matrix(2) + shown, ""), outputs=outputs), ASK)
    found = [finding(sign, CATALOG, Stamp("topology", "n"), n) for n, sign in enumerate(signs)]
    assert max((f.severity for f in found), default=Severity.NONE) < Severity.REPLACE
