"""A rehearsed kernel line: known by its marker alone, read as the driver's own, and called a rehearsal."""

from __future__ import annotations

import pytest

from sickbay.checks import kernel_log, kernel_scan, rehearsal
from sickbay.errors import InputError


def record(body: str, priority: int = 11) -> str:
    return f"{priority},1234,98765,-;{body}"


@pytest.mark.parametrize("xid", [13, 48, 63, 74, 79, 94, 95, 119, 154, 31])
def test_a_stripped_rehearsal_reads_as_the_drivers_own_line(xid: int) -> None:
    line = rehearsal.strip(record(rehearsal.xid_line(xid, "0000:3B:00.0")))
    (sign,) = [s for s in kernel_log.signs(kernel_scan.scan([line.encode() + b"\n"])) if s.code]
    assert (sign.code, sign.device) == (f"xid.{xid}", "0000:3b:00")


def test_an_unstripped_rehearsal_is_no_kernel_line() -> None:
    line = record(rehearsal.xid_line(79, "0000:3b:00"))
    assert not [s for s in kernel_log.signs(kernel_scan.scan([line.encode()])) if s.code.startswith("xid")]


@pytest.mark.parametrize(
    "line",
    [
        record("sickbay-rehearsal: NVRM: Xid", priority=3),  # of kernel origin: nobody can have written that with us
        record("sickbay-rehearsal: NVRM: Xid", priority=30),  # a daemon's
        record("user quotes sickbay-rehearsal: NVRM: Xid"),
        record("sickbay-rehearsal:"),
        record("NVRM: Xid (PCI:0000:3b:00): 79, lost"),
        "",
    ],
)
def test_what_does_not_begin_with_the_marker_is_no_rehearsal(line: str) -> None:
    assert not rehearsal.is_rehearsal(line)
    assert rehearsal.strip(line) == line


def test_journalds_message_is_known_too() -> None:
    body = rehearsal.xid_line(79, "0000:3b:00")
    assert rehearsal.is_rehearsal(body)
    assert rehearsal.strip(body).startswith("NVRM: Xid (PCI:0000:3b:00): 79,")


def test_a_finding_of_a_rehearsal_says_so_first() -> None:
    (sign,) = kernel_log.signs(kernel_scan.scan([b"3,1,2,-;NVRM: Xid (PCI:0000:3b:00): 79, lost\n"]))
    told = rehearsal.said(sign)
    assert told.reason.startswith("REHEARSAL")
    assert told.traits["rehearsal"] == "yes"


@pytest.mark.parametrize(
    ("xid", "device"), [(79, "gpu0"), (79, "0000:3b:00; reboot"), (0, "0000:3b:00"), (5000, "0000:3b:00")]
)
def test_what_no_driver_prints_is_refused(xid: int, device: str) -> None:
    with pytest.raises(InputError):
        rehearsal.xid_line(xid, device)


@pytest.mark.parametrize("body", ["", "two\nlines", "a\x1b[31mcolour"])
def test_a_rehearsed_line_is_one_plain_line(body: str) -> None:
    with pytest.raises(InputError):
        rehearsal.marked(body)
