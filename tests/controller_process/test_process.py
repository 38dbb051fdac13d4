"""The controller as operators meet it: it leads, stands by, takes over, obeys a pause and leaves cleanly."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from sickbay.model import Case
from sickbay.stores.sqlite import SqliteStore
from tests.controller_process.conftest import PATIENCE_S, Start, sickbay

QUIET = ("--sim-nodes", "8", "--sim-faults", "0")
SICK = ("--sim-nodes", "64", "--sim-faults", "100", "--sim-speed", "200")


def test_it_leads_and_sigterm_ends_it_with_code_0_within_seconds(start: Start) -> None:
    one = start(*QUIET)
    one.says("leading epoch=1")
    code, seconds = one.end()
    assert code == 0
    assert seconds < 10
    assert one.said("stopped")
    assert not one.said("Traceback")


def test_a_time_in_which_nothing_can_be_done_is_said_when_it_starts(start: Start, folder: Path) -> None:
    with (folder / "sickbay.toml").open("a") as file:
        file.write("[jobs]\nrestarting_s = 1\n")
    one = start(*QUIET)
    line = one.says("jobs.restarting_s (1) is shorter than 60 seconds")
    assert "WARNING" in line
    one.says("leading")
    assert one.end()[0] == 0


def test_ctrl_c_is_as_clean_as_sigterm(start: Start) -> None:
    one = start(*QUIET)
    one.says("leading")
    assert one.end(signal.SIGINT)[0] == 0


def test_a_second_one_stands_by_and_takes_over_when_the_first_is_killed(start: Start) -> None:
    first = start(*QUIET)
    first.says("leading epoch=1")
    second = start(*QUIET)
    line = second.says("standing by")
    assert f"pid {first.process.pid} on" in line  # a person sees who leads
    assert not second.said("leading epoch")
    begun = time.monotonic()
    first.kill()
    second.says("leading epoch=2")
    assert time.monotonic() - begun < 15


def test_a_clean_stop_hands_the_lead_over(start: Start) -> None:
    first = start(*QUIET)
    first.says("leading epoch=1")
    second = start(*QUIET)
    second.says("standing by")
    first.end()
    second.says("leading epoch=2")


def test_sick_nodes_become_cases_and_each_step_is_a_line(start: Start, folder: Path) -> None:
    one = start(*SICK)
    assert "why=" in one.says("phase=CORDONING")
    one.says("phase=REPAIRING")
    one.end()
    store = SqliteStore(folder / "sickbay.db")
    cases = [s.value for s in store.list(Case)] + list(store.history(Case))
    store.close()
    assert any(case.rungs_tried for case in cases)


def test_a_pause_written_while_it_is_down_is_obeyed_from_the_first_pass(start: Start, folder: Path) -> None:
    first = start(*QUIET)
    first.says("leading epoch=1")
    first.end()
    assert "Paused" in sickbay(folder, "pause", "--all", "--why", "moving racks").stdout
    second = start(*SICK)
    second.counts("event=OPENED", 4)
    assert not second.said("event=ADMITTED")  # seen and named, but nobody is touched


def test_a_pause_while_it_runs_stops_everything_new_until_resume(start: Start, folder: Path) -> None:
    one = start(*SICK)
    one.says("event=ADMITTED")
    assert "Paused" in sickbay(folder, "pause", "--all").stdout
    wait_until(folder, lambda cases: bool(cases) and all(case.paused for case in cases))
    heard = one.count("event=ADMITTED")
    one.counts("event=OPENED", one.count("event=OPENED") + 3)
    assert one.count("event=ADMITTED") == heard
    assert "Resumed" in sickbay(folder, "resume", "--all").stdout
    one.counts("event=ADMITTED", heard + 1)


def wait_until(folder: Path, holds: Callable[[list[Case]], bool]) -> None:
    """Look at the open cases in the store until this is true of them."""
    store, until = SqliteStore(folder / "sickbay.db"), time.monotonic() + PATIENCE_S
    try:
        while not holds([stored.value for stored in store.list(Case)]):
            assert time.monotonic() < until, "it never came true"
            threading.Event().wait(0.05)
    finally:
        store.close()


def test_an_unreadable_store_gets_a_sentence_and_code_2(folder: Path, start: Start) -> None:
    (folder / "sickbay.db").write_bytes(b"this is no database, it is a letter to my mother\n" * 100)
    one = start(*QUIET)
    assert one.process.wait(30) == 2
    one._reader.join(5)
    said = "\n".join(one.lines)
    assert str(folder / "sickbay.db") in said
    assert "Traceback" not in said
