"""XID 144-150: the words of the line decide, both driver generations are known, and doubt takes the milder reading."""

from __future__ import annotations

from dataclasses import replace

from sickbay.catalog import NvlinkSub, load
from sickbay.catalog.nvlink5 import Decoded, decode
from sickbay.model import Severity

ROWS = load().nvlink5
LINK_DOWN_OLD = 0x004501C6  # 000100 in bits 25:20, sub-code 01110 in 9:5
LINK_DOWN_NEW = 0x00000011


def decoded(xid: int, intr: int, status: int, unit: str = "", driver: str = "") -> Decoded:
    found = decode(ROWS, xid, intr, status, unit=unit, driver=driver)
    assert found is not None
    return found


def test_a_link_that_went_down_needs_a_reset() -> None:
    found = decoded(149, LINK_DOWN_OLD, 0, unit="NETIR_LINK_EVT", driver="570.124.06")
    assert (found.sub.severity, found.sub.fatal, found.sure) == (Severity.RESET, True, True)


def test_the_driver_generation_decides_which_bits_are_read() -> None:
    assert decode(ROWS, 149, LINK_DOWN_NEW, 0, driver="570.124.06") is None
    assert decoded(149, LINK_DOWN_NEW, 0, driver="580.65.06").sub.severity is Severity.RESET


def test_an_unknown_driver_takes_the_milder_reading_and_says_so() -> None:
    mild = NvlinkSub(145, "U", "-" * 32, "1" * 32, 1, Severity.MONITOR, False, "mild")
    hard = replace(mild, pattern_v1="1" * 32, pattern_v2="-" * 32, severity=Severity.RESET, fatal=True)
    found = decode([hard, mild], 145, 0, 1)
    assert found is not None
    assert (found.sub.severity, found.sure) == (Severity.MONITOR, False)


def test_readings_that_agree_are_sure_without_a_driver() -> None:
    assert decoded(149, LINK_DOWN_OLD, 0).sure


def test_of_several_flags_the_worst_counts() -> None:
    found = decoded(144, 0x21, 0x00000004 | 0x00000010, driver="570.1")  # one harmless, one fatal
    assert (found.sub.severity, found.sub.fatal) == (Severity.RESET, True)


def test_a_number_is_not_read_as_flags() -> None:
    assert decode(ROWS, 149, 0b1001000110, 0x00000006, driver="570.1") is None  # MFDE knows 1, 3, 4, 5 and 7


def test_words_the_table_does_not_hold_have_no_answer() -> None:
    assert decode(ROWS, 145, 0x7FFF, 0x40) is None
    assert decode(ROWS, 79, 0, 0) is None
