"""Reading /dev/kmsg: in order, once, the kernel's own records only, whatever the ring does."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.agent.kmsg import BATCH, KmsgSource
from sickbay.checks import rehearsal
from tests.agent.builders import BOOT
from tests.fuzzing import EXAMPLES

DEVICE = "/dev/null"  # any character device will do where the test does the reading


def a_record(sequence: int, text: str = "usb 1-1: new device", prefix: int = 6) -> bytes:
    return f"{prefix},{sequence},{sequence * 10},-;{text}\n".encode()


class Ring:
    """What os.read on the device would do: one record a call, EPIPE after an overrun, EAGAIN at the end."""

    def __init__(self, *script: bytes | int) -> None:
        self.script = list(script)

    def __call__(self, handle: int, most: int) -> bytes:
        if not self.script:
            raise BlockingIOError
        step = self.script.pop(0)
        if isinstance(step, int):
            raise OSError(step, os.strerror(step))
        return step


def a_source(ring: Ring, cursor: str = "", *, first: int = 4_000, inject: bool = False) -> KmsgSource:
    accept = rehearsal.is_rehearsal if inject else None
    return KmsgSource(DEVICE, BOOT, cursor, first=first, accept=accept, read=ring)


def sequences(lines: list[bytes]) -> list[int]:
    return [int(line.split(b",")[1]) for line in lines]


def test_records_come_in_order_and_the_cursor_follows() -> None:
    source = a_source(Ring(a_record(7), a_record(8)))
    batch = source.read()
    assert sequences(batch.lines) == [7, 8]
    assert batch.cursor == f"{BOOT}:8"
    source.close()


def test_after_a_restart_no_line_comes_twice() -> None:
    source = a_source(Ring(*(a_record(n) for n in range(1, 11))), f"{BOOT}:8")
    assert sequences(source.read().lines) == [9, 10]


def test_a_cursor_of_another_boot_starts_at_the_rings_beginning() -> None:
    source = a_source(Ring(a_record(1), a_record(2)), "boot-before:900")
    assert sequences(source.read().lines) == [1, 2]


def test_an_overrun_is_survived_and_the_lost_are_counted() -> None:
    source = a_source(Ring(a_record(5), errno.EPIPE, a_record(105), a_record(106)), f"{BOOT}:4")
    batch = source.read()
    assert sequences(batch.lines) == [5, 105, 106]
    assert batch.lost == 99
    assert not batch.ended


def test_what_the_ring_forgot_while_we_were_down_is_counted_too() -> None:
    assert a_source(Ring(a_record(50)), f"{BOOT}:9").read().lost == 40


def test_a_first_start_reads_only_so_many_lines_back() -> None:
    ring = Ring(*(a_record(n) for n in range(1, 101)), a_record(101))
    source = a_source(ring, first=10)
    batch = source.read()
    assert sequences(batch.lines) == list(range(92, 102))
    assert batch.lost == 0


def test_none_back_means_none_and_new_lines_still_come() -> None:
    ring = Ring(a_record(1), a_record(2))
    source = a_source(ring, first=0)
    assert source.read().lines == []
    ring.script.append(a_record(3))
    assert sequences(source.read().lines) == [3]


def test_a_programs_record_is_not_the_kernels_word() -> None:
    """Anybody who may write to /dev/kmsg could have a node drained otherwise."""
    forged = a_record(2, "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", prefix=8 + 3)
    batch = a_source(Ring(a_record(1), forged, a_record(3))).read()
    assert sequences(batch.lines) == [1, 3]
    assert batch.lost == 0
    assert batch.rehearsed == []


def test_a_rehearsal_passes_only_where_it_is_allowed() -> None:
    line = a_record(2, rehearsal.xid_line(79, "0000:3b:00"), prefix=12)
    assert a_source(Ring(line)).read().rehearsed == []
    assert len(a_source(Ring(line), inject=True).read().rehearsed) == 1


def test_one_record_is_one_line_whatever_it_holds() -> None:
    """A process may be named so that its name ends one line and begins a forged one."""
    body = "evil\\x0a3,9,9,-;NVRM: Xid (PCI:0000:3b:00): 79"
    lines = a_source(Ring(a_record(1, body) + b" SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n")).read().lines
    assert len(lines) == 1
    assert b"\n" not in lines[0]


def test_a_flood_is_taken_in_bounded_pieces() -> None:
    ring = Ring(*(a_record(n) for n in range(1, 2 * BATCH + 2)))
    source = a_source(ring, f"{BOOT}:0")
    sizes = []
    while (batch := source.read()).lines:
        sizes.append(len(batch.lines))
    assert sizes == [BATCH, BATCH, 1]


def test_a_device_that_only_fails_is_given_up_and_not_spun_on() -> None:
    assert a_source(Ring(*([errno.EINVAL] * 1_000))).read().ended
    assert a_source(Ring(errno.EBADF)).read().ended


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[tuple[KmsgSource, int]]:
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    source = KmsgSource(str(path), BOOT, "", first=100)
    writer = os.open(path, os.O_WRONLY)
    yield source, writer
    os.close(writer)
    source.close()


def test_a_pipe_in_the_devices_place_is_put_together_from_pieces(fifo: tuple[KmsgSource, int]) -> None:
    source, writer = fifo
    os.write(writer, b"6,1,10,-;first\n KEY=value\n6,2,2")
    assert source.read().lines == [b"6,1,10,-;first"]
    os.write(writer, b"0,-;second\n")
    assert source.read().lines == [b"6,2,20,-;second"]


def test_a_pipe_whose_writer_leaves_does_not_end(fifo: tuple[KmsgSource, int]) -> None:
    source, _ = fifo
    assert not source.read().ended


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="/dev/kmsg cannot be read here")
def test_the_real_device_is_read_to_its_end_without_waiting() -> None:
    source = KmsgSource("/dev/kmsg", BOOT, "", first=50)
    batch = source.read()
    source.close()
    assert not batch.ended
    assert len(batch.lines) <= 50


NASTY = (
    b"3,1,1,-;x\\x0ay\n",
    b"99999999999,1,1,-;z",
    b"11,2,1,-;sickbay-rehearsal: x\n y=1",
    b"3,,",
    b"3,9999999999999999999999,1,-;",
)


@settings(max_examples=EXAMPLES)
@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(NASTY)), max_size=6))
def test_fuzz_no_bytes_of_a_ring_raise_or_break_a_line(script: list[bytes]) -> None:
    source = KmsgSource(DEVICE, BOOT, "", first=100, accept=rehearsal.is_rehearsal, read=Ring(*script))
    batch = source.read()
    source.close()
    assert all(b"\n" not in line for line in batch.lines)
