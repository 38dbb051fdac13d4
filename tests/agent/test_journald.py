"""Following journald through a child: a script that prints what a test wants stands in for journalctl."""

from __future__ import annotations

import json
import select
import sys
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.agent.journald import JournalSource, _message
from sickbay.agent.kmsg import Batch
from tests.agent.builders import BOOT
from tests.fuzzing import EXAMPLES


def an_entry(usec: int, message: Any = "NVRM: Xid (PCI:0000:3b:00): 79, lost", **changed: Any) -> str:
    given = {
        "__CURSOR": f"s=1;i={usec}", "__MONOTONIC_TIMESTAMP": str(usec), "_TRANSPORT": "kernel", "PRIORITY": "3",
        "SYSLOG_FACILITY": "0", "MESSAGE": message,
    }  # fmt: skip
    return json.dumps({**given, **changed})


def a_journal(folder: Path, entries: list[str], code: int = 0) -> tuple[str, ...]:
    """Prints the entries, keeps its arguments in a file, and ends."""
    (folder / "entries").write_text("".join(entry + "\n" for entry in entries))
    script = (
        "import sys, pathlib; f = pathlib.Path(sys.argv[1]); (f / 'argv').write_text(' '.join(sys.argv[3:])); "
        "sys.stdout.write((f / 'entries').read_text()); sys.stdout.flush(); sys.exit(int(sys.argv[2]))"
    )
    return (sys.executable, "-c", script, str(folder), str(code))


def read_all(source: JournalSource) -> Batch:
    """All batches as one."""
    whole = Batch()
    while not whole.ended:
        select.select([source.fileno()], [], [], 10.0)
        batch = source.read()
        whole.lines += batch.lines
        whole.cursor, whole.ended = batch.cursor, batch.ended
    source.close()
    return whole


def test_kernel_messages_become_lines_and_the_cursor_is_journalds(tmp_path: Path) -> None:
    whole = read_all(JournalSource(BOOT, "", first=10, argv=a_journal(tmp_path, [an_entry(5)])))
    assert whole.lines == [b"3,0,5,-;NVRM: Xid (PCI:0000:3b:00): 79, lost"]
    assert whole.cursor == f"{BOOT}:5:s=1;i=5"
    assert (tmp_path / "argv").read_text() == "-n 10"


def test_it_goes_on_after_the_cursor(tmp_path: Path) -> None:
    read_all(JournalSource(BOOT, f"{BOOT}:5:s=1;i=5", first=10, argv=a_journal(tmp_path, [])))
    assert (tmp_path / "argv").read_text() == "--after-cursor=s=1;i=5 -n all"


def test_a_cursor_that_was_rotated_away_costs_no_line_and_doubles_none(tmp_path: Path) -> None:
    """journalctl refuses the cursor; the next one reads the boot, and what was read before is known by its time."""
    refused = read_all(JournalSource(BOOT, f"{BOOT}:5:s=gone", first=10, argv=a_journal(tmp_path, [], code=1)))
    assert refused.cursor == f"{BOOT}:5:"
    entries = [an_entry(n) for n in (3, 5, 6, 6, 7)]
    whole = read_all(JournalSource(BOOT, refused.cursor, first=1, argv=a_journal(tmp_path, entries)))
    assert [line.split(b",")[2] for line in whole.lines] == [b"6", b"6", b"7"]
    assert (tmp_path / "argv").read_text() == "-n all"


def test_only_the_kernels_own_words_count(tmp_path: Path) -> None:
    entries = [an_entry(1, _TRANSPORT="syslog"), an_entry(2, SYSLOG_FACILITY="1"), an_entry(3, _TRANSPORT="stdout")]
    assert read_all(JournalSource(BOOT, "", first=10, argv=a_journal(tmp_path, entries))).lines == []


def test_a_message_that_is_not_text_comes_as_bytes(tmp_path: Path) -> None:
    entry = an_entry(1, list(b"NVRM: \xff\nXid"))
    (line,) = read_all(JournalSource(BOOT, "", first=10, argv=a_journal(tmp_path, [entry]))).lines
    assert b"\n" not in line
    assert line.endswith("NVRM: \ufffd Xid".encode())


def test_garbage_between_entries_is_passed_over(tmp_path: Path) -> None:
    entries = ["-- Boot 1 --", "{", "[]", an_entry(1)]
    assert len(read_all(JournalSource(BOOT, "", first=10, argv=a_journal(tmp_path, entries))).lines) == 1


JSON = st.one_of(
    st.none(), st.booleans(), st.floats(), st.text(max_size=30), st.lists(st.integers(-300, 300), max_size=12),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2), st.lists(st.text(max_size=3), max_size=3),
)  # fmt: skip


@settings(max_examples=EXAMPLES)
@given(JSON)
def test_fuzz_no_message_raises_or_becomes_two_lines(message: object) -> None:
    assert "\n" not in _message(message)
