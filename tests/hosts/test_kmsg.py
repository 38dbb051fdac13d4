"""Records of /dev/kmsg, whatever is in them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.checks.kernel_log import signs
from sickbay.checks.kernel_scan import scan_lines
from sickbay.hosts.kmsg import parse
from tests.fuzzing import EXAMPLES

XID = rb"NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."


def test_a_record_says_who_wrote_it_and_when() -> None:
    record = parse(b"6,1201,5140900,-;" + XID + b"\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n")
    assert record is not None
    assert (record.priority, record.facility, record.sequence, record.usec) == (6, 0, 1201, 5140900)
    assert record.text.startswith("NVRM: Xid")
    assert record.fields == (("SUBSYSTEM", "pci"), ("DEVICE", "+pci:0000:3b:00.0"))
    assert record.kernel
    assert not record.continuation


def test_a_program_that_writes_to_the_kernel_log_is_not_the_kernel() -> None:
    record = parse(b"12,7,99,-;" + XID + b"\n")
    assert record is not None
    assert (record.facility, record.priority, record.kernel) == (1, 4, False)
    assert record.line.startswith("12,7,99,-;")


def test_newer_kernels_say_more_before_the_semicolon() -> None:
    record = parse(b"4,8,77,c,caller=T1203;piece of a line\n")
    assert record is not None
    assert record.continuation
    assert record.text == "piece of a line"


def test_escapes_are_undone() -> None:
    record = parse(rb"4,8,77,-;caf\xc3\xa9 C:\x5cx" + b"\n")
    assert record is not None
    assert record.text == "café C:\\x"


def test_a_line_break_in_a_process_name_does_not_forge_a_second_line() -> None:
    record = parse(rb"4,8,77,-;comm: evil\x0a" + XID + b"\n")
    assert record is not None
    assert "\n" not in record.line
    assert not any(sign.code for sign in signs(scan_lines([record.line])))


def test_what_is_no_record_is_none() -> None:
    assert parse(b"") is None
    assert parse(b"plain text\n") is None
    assert parse(b"6,a,b,-;x") is None


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 2**40))
def test_fuzz_no_bytes_make_a_record_of_two_lines(text: bytes, number: int) -> None:
    parse(text)
    record = parse(b"%d,%d,%d,-;" % (number, number, number) + text)
    assert record is None or len(record.line.splitlines()) == 1
