"""The composition in this process: what it refuses at start, and what it survives while it runs."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from sickbay.controller import app, sites
from sickbay.controller.loop import Controller
from sickbay.controller.postman import Postman
from sickbay.errors import NotLeader, StoreError, UserError
from sickbay.log import PlainLines
from sickbay.model import Done, Notice, Outcome
from sickbay.platforms.simulated.paced import PacedClock
from sickbay.settings import Policy, Settings

CALM = sites.Trial(nodes=4, scale=0.0, jobs="none")


pytestmark = pytest.mark.usefixtures("own_log")


def settings(folder: Path, **others: str) -> Settings:
    return Settings(
        data_dir=str(folder), store=others.get("store", "memory"), platform=others.get("platform", "simulated")
    )


def test_an_unknown_platform_or_store_is_a_mistake_of_the_settings(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="known: simulated"):
        app.run(settings(tmp_path, platform="mainframe"), threading.Event())
    with pytest.raises(UserError, match="known: sqlite, kubernetes, memory"):
        app.run(settings(tmp_path, store="paper"), threading.Event())


def test_gates_are_for_pools_in_which_a_newcomers_case_may_take_its_node_out() -> None:
    asked = Settings(pools={"training": Policy(max_verb="CORDON")})
    assert sites.opens_gates(asked, "training")
    assert not sites.opens_gates(asked, "other")
    assert not sites.opens_gates(replace(asked, ceilings={"monitor": frozenset()}), "training")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="file"):
        app.run(settings(tmp_path / "file" / "below", store="sqlite"), threading.Event())


@pytest.mark.parametrize("mishap", [StoreError("disk full"), NotLeader("a newer one"), RuntimeError("a bug")])
def test_a_pass_that_breaks_is_begun_again_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mishap: Exception
) -> None:
    stop, turns = threading.Event(), list[int]()

    def turn(controller: Controller) -> float:
        turns.append(controller.records.epoch)
        if len(turns) == 1:
            raise mishap
        stop.set()
        return 60.0

    monkeypatch.setattr(Controller, "turn", turn)
    monkeypatch.setattr(app, "MISHAP_S", 0.01)
    app.run(settings(tmp_path), stop, CALM)
    assert turns == [1, 2]  # a new life, a new epoch


def test_a_stop_is_heard_while_it_sleeps(tmp_path: Path) -> None:
    stop = threading.Event()
    process = threading.Thread(target=app.run, args=(settings(tmp_path), stop, CALM))
    process.start()
    stop.set()
    process.join(20)
    assert not process.is_alive()


def test_a_slow_notifier_holds_up_no_pass() -> None:
    entered, let_go, told = threading.Event(), threading.Event(), threading.Event()

    class Slow:
        name = "slow"

        def send(self, notice: Notice) -> Outcome:
            entered.set()
            let_go.wait(20)
            return Done()

    post = Postman([Slow()], PacedClock(), told.set)
    assert post.put((Notice("k", "info", "t", "b"),)) == 1
    assert entered.wait(20)
    assert post.pump(0.0) == []  # returns though the notifier is still at it
    let_go.set()
    assert told.wait(20)
    assert post.pump(0.0) == ["k"]
    post.close()


def test_what_a_node_printed_cannot_forge_a_log_line() -> None:
    record = logging.LogRecord("sickbay.x", logging.INFO, "", 0, "why=%s", ("GPU\nat=2026 level=ERROR \x1b[2J",), None)
    line = PlainLines().format(record)
    assert "\n" not in line
    assert "\x1b" not in line
    assert line.startswith("at=20")
    assert "level=INFO from=sickbay.x why=GPU" in line
