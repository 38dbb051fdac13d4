"""The live view: it fits a small terminal, names every state, and leaves as it came."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from sickbay.cli import live, main
from sickbay.core.machine import LIVE
from sickbay.sim.tour.show import Show
from sickbay.sim.trainer import Nursery


@pytest.fixture(scope="module")
def show(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Show]:
    """A show an hour in: something has broken, something has healed."""
    with Nursery() as nursery:
        made = Show(7, tmp_path_factory.mktemp("show"), nursery)
        made.advance(3600.0)
        yield made
        made.close()


def drawn(show: Show, width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(live.View(show, 240.0))
    return capture.get().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60), (40, 10)])
def test_a_frame_is_never_larger_than_its_terminal(show: Show, width: int, height: int) -> None:
    lines = drawn(show, width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_a_small_terminal_shows_fleet_jobs_cases_and_journal(show: Show) -> None:
    lines = drawn(show, 80, 24)
    text = "\n".join(lines)
    assert "ETTR 0." in lines[0]
    assert all(len(line.split("  ")[0].split()) == live.COLUMNS for line in lines[1:5])
    assert all(name in text for name in ("pretrain", "real-a", "Open cases", "Journal", "Ctrl-C"))
    assert "…" not in "".join(lines[:5])


def test_something_has_happened_within_the_first_ten_seconds(show: Show) -> None:
    ten_seconds = [line for line in show.store.lines if line.at - show.world.clock.start <= 240.0 * 10]
    assert any("Xid" in line.text for line in ten_seconds)


def test_every_live_phase_has_a_cell_of_its_own_words() -> None:
    assert set(live.STATES) == set(LIVE)


def test_journal_lines_are_told_once_and_in_order(show: Show) -> None:
    lines = list(show.store.lines)
    assert [line.at for line in lines] == sorted(line.at for line in lines)
    assert show.store.told == len(lines)
    assert len(set(lines)) == len(lines)


def test_without_a_terminal_the_journal_is_printed_line_by_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "FRAME_S", 0.01)
    live.watch(7, tmp_path, speed=100_000.0, seconds=0.05)
    said = capsys.readouterr().out
    assert "GPU fell off the bus" in said
    assert "\x1b" not in said
    assert "cases ended" in said


def test_ctrl_c_ends_with_a_summary_and_code_0(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> Iterator[None]:
        yield None
        raise KeyboardInterrupt

    monkeypatch.setattr(live, "frames", interrupted)
    with pytest.raises(SystemExit) as stop:
        main(["demo"])
    assert stop.value.code == 0
    assert "of a fleet's life" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--json"], "--headless --json"),
        (["--duration", "soon"], "not a length of time"),
        (["--headless", "--keep", str(Path(__file__).parent)], "is not empty"),
    ],
)
def test_a_wrong_option_is_answered_in_a_sentence(
    args: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["demo", *args])
    assert stop.value.code == 2
    assert says in capsys.readouterr().err
