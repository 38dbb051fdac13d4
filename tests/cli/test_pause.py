"""`sickbay pause` and `sickbay resume`."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from sickbay.cli.pause import unknown
from sickbay.cli.sitting import Known, Sitting
from sickbay.errors import UserError
from sickbay.model import Pause
from sickbay.stores.memory import MemoryStore

from .builders import Bay, a_case, a_ledger, run_command


def test_pausing_the_fleet_works_with_no_controller(bay: Bay) -> None:
    said = bay.run("pause", "--all", "--why", "power work")
    assert said.code == 0
    assert "No controller" in said.out
    (pause,) = bay.all(Pause)
    assert (pause.scope, pause.by, pause.why, pause.until) == ("fleet", "ann", "power work", None)


def test_a_pause_ends_by_itself_when_given_a_length(bay: Bay) -> None:
    said = bay.run("pause", "--pool", "train", "--for", "1h30m")
    assert "1 h 30 min from now" in said.out
    (pause,) = bay.all(Pause)
    assert pause.scope == "pool:train"
    assert pause.until == pytest.approx(time.time() + 5400, abs=60)


def test_a_second_pause_of_the_same_scope_replaces_the_first(bay: Bay) -> None:
    bay.run("pause", "--node", "gpu-17", "--for", "2h")
    bay.run("pause", "--node", "gpu-17", "--why", "longer than I thought")
    (pause,) = bay.all(Pause)
    assert (pause.until, pause.why) == (None, "longer than I thought")


def test_resuming_says_what_is_still_paused(bay: Bay) -> None:
    bay.run("pause", "--all")
    bay.run("pause", "--node", "gpu-17")
    said = bay.run("resume", "--node", "gpu-17")
    assert "Resumed: node gpu-17." in said.out
    assert "Still paused: the whole fleet" in said.out
    assert [pause.scope for pause in bay.all(Pause)] == ["fleet"]


def test_resuming_what_is_not_paused_changes_nothing_and_says_so(bay: Bay) -> None:
    said = bay.run("resume", "--all")
    assert said.code == 0
    assert "There was no pause" in said.out


def test_the_pause_carries_the_cluster_of_the_store(bay: Bay) -> None:
    bay.put(a_ledger(time.time()))
    bay.run("pause", "--all")
    assert bay.all(Pause)[0].cluster == "west"


@pytest.mark.parametrize("which", [(), ("--all", "--node", "n"), ("--pool", "a", "--node", "n")])
def test_exactly_one_scope_must_be_named(bay: Bay, which: tuple[str, ...]) -> None:
    said = bay.run("pause", *which)
    assert said.code == 2
    assert "exactly one of --all" in said.err
    assert bay.all(Pause) == []


@pytest.mark.parametrize("length", ["2", "h", "2y", "-2h", "0s", "1e3s", "9999999d", "2h\x1b[2J", "٣h"])
def test_a_length_that_is_none_is_refused(bay: Bay, length: str) -> None:
    said = bay.run("pause", "--all", f"--for={length}")
    assert said.code == 2
    assert "not a length of time" in said.err
    assert "\x1b" not in said.err
    assert bay.all(Pause) == []


def test_no_store_is_said_with_what_to_do(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    said = run_command(capsys, "pause", "--all", "--store", str(tmp_path / "none.db"))
    assert said.code == 2
    assert "There is no store at" in said.err
    assert "sickbay controller" in said.err
    assert not (tmp_path / "none.db").exists()


def test_the_store_is_found_through_the_settings(bay: Bay, capsys: pytest.CaptureFixture[str]) -> None:
    settings = bay.path.with_name("settings.toml")
    settings.write_text(f'data_dir = "{bay.path.parent}"\n')
    assert run_command(capsys, "pause", "--all", "--config", str(settings)).code == 0
    assert [pause.scope for pause in bay.all(Pause)] == ["fleet"]


def test_settings_in_disorder_do_not_keep_anybody_from_pausing(bay: Bay, capsys: pytest.CaptureFixture[str]) -> None:
    settings = bay.path.with_name("settings.toml")
    settings.write_text("policy = [[[")
    said = run_command(capsys, "pause", "--all", "--config", str(settings))
    assert said.code == 2
    assert "--store PATH" in said.err
    assert bay.run("pause", "--all", "--config", str(settings)).code == 0


def test_a_file_that_is_not_a_store_is_no_traceback(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, only notes\n" * 100)
    said = run_command(capsys, "nodes", "--store", str(path))
    assert said.code == 2
    assert str(path) in said.err


def test_a_name_that_the_store_never_heard_of_is_paused_and_said(bay: Bay) -> None:
    bay.put(a_case("gpu-17.3"))
    said = bay.run("pause", "--node", "gpu-71")
    assert said.code == 0
    assert "No node gpu-71 is known" in said.out
    assert "Did you mean gpu-17?" in said.out
    assert [pause.scope for pause in bay.all(Pause)] == ["node:gpu-71"]


@pytest.mark.parametrize("which", [("--node", "gpu-17"), ("--pool", "train"), ("--all",)])
def test_a_name_that_is_known_is_paused_without_a_doubt(bay: Bay, which: tuple[str, ...]) -> None:
    bay.put(a_case("gpu-17.3"))
    assert "is known" not in bay.run("pause", *which).out


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        ("node:gpu-71", "No node gpu-71 is known; nothing was paused. Did you mean"),
        ("pool:trian", "mean train"),
    ],
)
def test_where_every_node_can_be_seen_a_wrong_name_is_refused_unless_it_is_meant(scope: str, words: str) -> None:
    known = Known(frozenset({"gpu-17", "gpu-18"}), frozenset({"train"}), all=True)
    sitting = Sitting(MemoryStore(), lambda: "ann", 0.0, roll=lambda: known)
    with pytest.raises(UserError, match=re.escape(words)):
        unknown(sitting, scope, yes=False)
    assert unknown(sitting, scope, yes=True)
    assert unknown(sitting, "node:gpu-17", yes=False) == []


def test_a_pause_that_cannot_be_read_and_names_no_scope_is_ended_with_the_fleets(bay: Bay) -> None:
    """It holds the whole fleet, and nobody could say which one to resume."""
    bay.spoil(Pause("", "ann", "", 0.0))
    said = bay.run("resume", "--node", "gpu-17").out
    assert "Still paused: the whole fleet, by a pause in" in said
    assert "`sickbay resume --all` removes it" in said
    said = bay.run("resume", "--all").out
    assert "Resumed: the whole fleet." in said
    assert "that cannot be read and names no scope" in said
    assert "There was no pause of the whole fleet" in bay.run("resume", "--all").out
