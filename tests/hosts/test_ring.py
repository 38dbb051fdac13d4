"""The kernel log, from whichever door opens."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.errors import CheckError
from sickbay.hosts import ring
from sickbay.ports import Completed
from tests.checks.hosts import MISSING, TIMED_OUT, printed
from tests.fuzzing import EXAMPLES

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
NOWHERE = "/no/such/kmsg"


class Tools:
    """Answers by tool, and remembers what it was asked."""

    def __init__(self, **answers: Completed) -> None:
        self.answers, self.asked = answers, [""]

    def __call__(self, argv: Sequence[str], timeout_s: float) -> Completed:
        self.asked.append(" ".join(argv))
        return self.answers.get(argv[0], MISSING)


def entry(message: object, cursor: str, facility: str = "0", transport: str = "kernel") -> str:
    fields = {
        "MESSAGE": message, "__CURSOR": cursor, "SYSLOG_FACILITY": facility, "_TRANSPORT": transport,
        "PRIORITY": "3", "_SOURCE_MONOTONIC_TIMESTAMP": "5140900",
    }  # fmt: skip
    return json.dumps(fields) + "\n"


class Device:
    """A /dev/kmsg of our own: os.read gives one record, EAGAIN at the end, or an error in between."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *steps: bytes | OSError) -> None:
        self.steps = list(steps)
        monkeypatch.setattr(os, "read", self.read)

    def read(self, number: int, size: int) -> bytes:
        if not self.steps:
            raise BlockingIOError
        step = self.steps.pop(0)
        if isinstance(step, OSError):
            raise step
        return step


def test_only_what_the_kernel_wrote_after_the_cursor_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    records = (b"6,1,10,-;old\n", b"4,2,20,-;" + XID.encode() + b"\n", b"12,3,30,-;" + XID.encode() + b"\n")
    Device(monkeypatch, *records)
    lines, cursor = ring.read("/dev/null", "boot-a", "boot-a:1", Tools())
    assert lines == [f"4,2,20,-;{XID}"]
    assert cursor == "boot-a:3"


def test_a_cursor_of_another_boot_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    Device(monkeypatch, b"6,0,10,-;first line of this boot\n")
    assert ring.read("/dev/null", "boot-b", "boot-a:900", Tools())[0] == ["6,0,10,-;first line of this boot"]


def test_an_overrun_does_not_end_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """EPIPE: records were lost, those after them are still there."""
    Device(monkeypatch, b"6,1,10,-;a\n", OSError(32, "Broken pipe"), b"6,90,20,-;b\n")
    lines, cursor = ring.read("/dev/null", "boot-a", "", Tools())
    assert lines == ["6,1,10,-;a", "6,90,20,-;b"]
    assert cursor == "boot-a:90"


def test_the_journal_serves_where_the_device_may_not_be_opened() -> None:
    said = entry("plain", "s=1;i=1") + entry(XID, "s=1;i=2") + entry(XID, "s=1;i=3", facility="1")
    tools = Tools(journalctl=printed(said + entry(XID, "s=1;i=4", transport="syslog")))
    lines, cursor = ring.read(NOWHERE, "boot-a", "", tools)
    assert lines == ["3,0,5140900,-;plain", f"3,0,5140900,-;{XID}"]
    assert cursor == "boot-a:js=1;i=4"
    ring.read(NOWHERE, "boot-a", cursor, tools)
    assert "--after-cursor=s=1;i=4" in tools.asked[-1]


def test_nothing_new_in_the_journal_is_nothing_new() -> None:
    quiet = Tools(journalctl=printed(""))
    assert ring.read(NOWHERE, "boot-a", "boot-a:js=1;i=4", quiet) == ([], "boot-a:js=1;i=4")


def test_a_journal_message_may_be_bytes_or_nothing_or_two_lines() -> None:
    said = entry([78, 86, 255], "1") + entry(None, "2") + entry(f"comm\n{XID}", "3") + "garbage\n" + '{"a": '
    lines, _ = ring.read(NOWHERE, "boot-a", "", Tools(journalctl=printed(said)))
    assert lines == ["3,0,5140900,-;NV\ufffd", f"3,0,5140900,-;comm {XID}"]


def test_a_journal_that_was_cut_is_read_on_from_the_cut() -> None:
    said = entry("a", "1") + "[sickbay: output cut here, 99 bytes left out]\n" + entry("z", "9")
    lines, cursor = ring.read(NOWHERE, "boot-a", "", Tools(journalctl=printed(said)))
    assert lines == ["3,0,5140900,-;a"]
    assert cursor == "boot-a:j1"


def test_dmesg_is_the_last_resort() -> None:
    said = f"<6>[    0.000000] Linux version\n<3>[    5.140900] {XID}\n<12>[    6.000000] a program\n"
    tools = Tools(dmesg=printed(said), journalctl=printed("", code=1, stderr="No journal files were found."))
    lines, cursor = ring.read(NOWHERE, "boot-a", "", tools)
    assert lines == ["6,0,0,-;Linux version", f"3,0,5140900,-;{XID}"]
    assert ring.read(NOWHERE, "boot-a", cursor, tools)[0] == []


def test_a_log_that_cannot_be_read_is_no_empty_log() -> None:
    with pytest.raises(CheckError, match=r"kmsg: No such file.*journalctl did not answer in time; dmesg: denied"):
        ring.read(NOWHERE, "b", "", Tools(journalctl=TIMED_OUT, dmesg=printed("", code=1, stderr="denied\n")))


def test_the_real_device_is_read_to_its_end_and_then_holds_nothing_new() -> None:
    if not os.access("/dev/kmsg", os.R_OK) or not Path("/proc/sys/kernel/random/boot_id").exists():
        pytest.skip("no kernel log may be read here")
    lines, cursor = ring.read("/dev/kmsg", "boot", "", Tools())
    assert lines
    assert len(ring.read("/dev/kmsg", "boot", cursor, Tools())[0]) < len(lines)


JSON = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.lists(st.integers(-1, 300), max_size=8)
    | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)
)  # fmt: skip
FIELDS = ("MESSAGE", "_TRANSPORT", "SYSLOG_FACILITY", "PRIORITY", "__CURSOR", "_SOURCE_MONOTONIC_TIMESTAMP")


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), JSON | st.just("kernel") | st.just("0")), st.text(max_size=60))
def test_fuzz_no_journal_and_no_dmesg_makes_two_lines_of_one_or_raises(entry: dict[str, object], text: str) -> None:
    for tools in (
        Tools(journalctl=printed(json.dumps(entry) + "\n" + text)),
        Tools(dmesg=printed(f"<3>[ 1.000000] {text}")),
    ):
        try:
            lines, cursor = ring.read(NOWHERE, "boot-a", "", tools)
        except CheckError:
            continue
        assert all(len(line.splitlines()) == 1 for line in lines)
        assert cursor.startswith("boot-a:")
