"""`sickbay explain` understands what people type, and says what we do and who says so."""

from __future__ import annotations

import pytest

from sickbay.catalog import load
from sickbay.cli.explain import explain
from sickbay.errors import UserError


@pytest.mark.parametrize("typed", ["xid.79", "XID 79", "Xid: 79", "79", " xid79 ", "xid-79", "xid 079"])
def test_an_xid_may_be_spelled_in_many_ways(typed: str) -> None:
    assert explain(typed).startswith("xid.79: ")


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ("sxid.20034", "sxid.20034"),
        ("SXid 20034", "sxid.20034"),
        ("20034", "sxid.20034"),
        ("xid 154 0x2", "xid.154.0x2"),
        ("xid.154.0x2", "xid.154.0x2"),
        ("dcgm.DCGM_FR_NVLINK_DOWN", "dcgm.DCGM_FR_NVLINK_DOWN"),
        ("DCGM.dcgm_fr_nvlink_down", "dcgm.DCGM_FR_NVLINK_DOWN"),
        ("DCGM_FR_NVLINK_DOWN", "dcgm.DCGM_FR_NVLINK_DOWN"),
        ("nvlink_down", "dcgm.DCGM_FR_NVLINK_DOWN"),
        ("smi.gpu-lost", "smi.gpu-lost"),
        ("gpu-lost", "gpu-lost"),
        ("GPU-Lost", "gpu-lost"),
    ],
)
def test_other_codes_and_faults_are_found_too(typed: str, code: str) -> None:
    assert explain(typed).startswith(f"{code}: ")


def test_the_page_says_what_we_do_what_clears_it_and_the_source() -> None:
    page = explain("xid.79")
    for words in (
        "REBOOT (up to 30 min) -> POWER_CYCLE",
        "now",
        "a boot after the finding",
        "dcgm-l2",
        "docs.nvidia.com",
    ):
        assert words in page


def test_a_code_that_depends_shows_every_reading() -> None:
    page = explain("xid.154")
    assert "xid.154.0x1 -> reset-required, RESET" in page
    assert "xid.154.0x2 -> reboot-required, REBOOT" in page


def test_a_code_that_treats_nothing_says_so() -> None:
    assert "no node is touched" in explain("xid.13")


@pytest.mark.parametrize(
    ("typed", "near"), [("xid.790", "xid.79"), ("gpu-lots", "gpu-lost"), ("smi.gpulost", "smi.gpu-lost")]
)
def test_an_unknown_code_gets_the_nearest_names(typed: str, near: str) -> None:
    with pytest.raises(UserError, match="did you mean") as caught:
        explain(typed)
    assert near in str(caught.value)


@pytest.mark.parametrize("typed", ["", "   ", "\x00\x1b[31m", "🦜", "9" * 5000, "a" * 1_000_000, "xid.", "..", "(((("])
def test_nonsense_gets_a_short_answer_and_never_a_crash(typed: str) -> None:
    with pytest.raises(UserError) as caught:
        explain(typed)
    assert len(str(caught.value)) < 400


def test_every_code_and_fault_has_a_page() -> None:
    catalog = load()
    for name in (*catalog.codes, *catalog.faults):
        assert explain(name, catalog).startswith(f"{name}: "), name
