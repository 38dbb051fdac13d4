"""The composition in this process: what it refuses at start, and what it survives while it runs."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from sickbay.controller import app, pruning, sites, store_trouble
from sickbay.controller.loop import Controller
from sickbay.controller.postman import Postman
from sickbay.controller.store_trouble import StoreTrouble
from sickbay.errors import ApiError, NotLeader, StoreError, UserError
from sickbay.log import PlainLines
from sickbay.model import Done, Notice, Outcome
from sickbay.platforms.simulated.paced import PacedClock
from sickbay.settings import Policy, Settings
from sickbay.stores.memory import MemoryStore

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


class Reading:
    """A notifier that keeps what it gets."""

    name = "reading"

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    def send(self, notice: Notice) -> Outcome:
        self.notices.append(notice)
        return Done()


class Hours:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> float:
        return 1_800_000_000.0 + self.passed

    def monotonic(self) -> float:
        return self.passed


def fails(trouble: StoreTrouble, hours: Hours, for_s: float) -> None:
    for _ in range(int(for_s / 5.0)):
        trouble.met("/data/sickbay.db: the disk is full: free some space; nothing was half written")
        hours.passed += 5.0


def test_a_full_disk_is_told_once_for_each_time_that_it_fills() -> None:
    reading, hours = Reading(), Hours()
    trouble = StoreTrouble([reading], hours)
    fails(trouble, hours, 100.0)
    assert reading.notices == []
    fails(trouble, hours, 36_000.0)
    (told,) = reading.notices
    assert told.level == "urgent"
    assert "the disk is full: free some space" in told.body
    assert told.body.startswith("Since 2027-01-15 08:00:00Z ")
    hours.passed += 3_600.0
    fails(trouble, hours, 300.0)
    assert len(reading.notices) == 2


def test_a_store_that_stumbles_now_and_then_is_no_notice() -> None:
    reading, hours = Reading(), Hours()
    trouble = StoreTrouble([reading], hours)
    for _ in range(20):
        fails(trouble, hours, 10.0)
        hours.passed += 900.0
    assert reading.notices == []


def test_a_store_that_fails_for_long_is_told_by_the_process_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, reading, turns = threading.Event(), Reading(), list[int]()

    def turn(controller: Controller) -> float:
        turns.append(1)
        if reading.notices or len(turns) > 50:
            stop.set()
        raise StoreError("the disk is full")

    monkeypatch.setattr(Controller, "turn", turn)
    monkeypatch.setattr(app, "MISHAP_S", 0.01)
    monkeypatch.setattr(app, "open_notifiers", lambda *_: [reading])
    monkeypatch.setattr(store_trouble, "LASTS_S", 0.0)
    app.run(settings(tmp_path), stop, CALM)
    assert [notice.title for notice in reading.notices] == ["Sickbay cannot write its records"]


# --- beside other repairers -------------------------------------------------------------------------------------------

UNSEEN = ApiError(503, "ServiceUnavailable", "the API server is starting")
THEIRS = sites.Rivalry(frozenset({"p"}))


class Stage:
    """A process whose surroundings, lead and passes are scripted; `may` says what each pass may do in pool p."""

    def __init__(self, patch: pytest.MonkeyPatch, *rivals: sites.Rivalry | Exception, passes: int) -> None:
        self.stop, self.may, self.acquired = threading.Event(), list[str](), 0
        self.rivals, self._passes = list(rivals), passes
        self.leads_at = 1  # the try that gets the lead
        patch.setattr(app, "open_site", lambda *given: replace(sites.open_site(*given), rivals=self.look))
        patch.setattr(app, "open_leader", lambda _: self)
        patch.setattr(Controller, "turn", lambda controller: self.turn(controller))
        for name in ("MISHAP_S", "STANDBY_S", "HEARING_S"):
            patch.setattr(app, name, 0.01)

    def look(self) -> sites.Rivalry:
        seen = self.rivals.pop(0) if len(self.rivals) > 1 else self.rivals[0]
        if isinstance(seen, Exception):
            raise seen
        return seen

    def turn(self, controller: Controller) -> float:
        self.may.append(controller._settings.policy_for("p").max_verb)
        if len(self.may) == self._passes:
            self.stop.set()
        raise NotLeader("taken away")

    def acquire(self) -> bool:
        self.acquired += 1
        return self.acquired >= self.leads_at

    def release(self) -> None:
        return None

    def holder(self) -> str:
        return "somebody else"


MINE = "REPLACE"


def run(stage: Stage, folder: Path) -> None:
    app.run(replace(settings(folder), policy=Policy(max_verb=MINE)), stage.stop, CALM)


def test_a_rival_that_was_seen_is_respected_while_it_cannot_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(monkeypatch, THEIRS, UNSEEN, passes=3)
    run(stage, tmp_path)
    assert stage.may == ["OBSERVE"] * 3


def test_nobody_leads_before_it_was_seen_once_who_else_repairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, UNSEEN, UNSEEN, THEIRS, passes=1)
    run(stage, tmp_path)
    assert stage.may == ["OBSERVE"]
    assert stage.rivals == [THEIRS]


def test_a_rival_that_came_while_we_stood_by_is_respected_from_the_first_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(monkeypatch, sites.Rivalry(), passes=1)
    stage.leads_at = 3
    look = stage.look

    def later() -> sites.Rivalry:
        return THEIRS if stage.acquired >= stage.leads_at else look()

    stage.look = later  # type: ignore[method-assign]
    run(stage, tmp_path)
    assert stage.may == ["OBSERVE"]


def test_where_nobody_else_repairs_we_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, sites.Rivalry(), passes=1)
    run(stage, tmp_path)
    assert stage.may == [MINE]


# --- while it sleeps --------------------------------------------------------------------------------------------------


def asleep(stage: Stage, patch: pytest.MonkeyPatch, folder: Path) -> list[int]:
    """Run passes that ask for an hour of sleep, until the stage says stop; the number of passes that began."""
    turns: list[int] = []

    def turn(controller: Controller) -> float:
        if not stage.acquire():
            stage.stop.set()
            raise NotLeader("taken away")
        turns.append(1)
        return 3_600.0

    patch.setattr(Controller, "turn", turn)
    run(stage, folder)
    return turns


def test_a_lead_is_attended_while_the_loop_sleeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, sites.Rivalry(), passes=1)
    acquire = stage.acquire

    def attended() -> bool:
        if stage.acquired > 10:
            stage.stop.set()
        return acquire()

    stage.acquire = attended  # type: ignore[method-assign]
    assert len(asleep(stage, monkeypatch, tmp_path)) == 1


def test_a_lead_that_is_lost_ends_the_sleep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, sites.Rivalry(), passes=1)
    acquire = stage.acquire
    stage.acquire = lambda: acquire() and stage.acquired < 6  # type: ignore[method-assign]
    assert len(asleep(stage, monkeypatch, tmp_path)) == 1


def test_an_archive_that_takes_long_to_look_through_holds_up_no_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, begun, let_go, turns = threading.Event(), threading.Event(), threading.Event(), list[int]()

    def prune(store: MemoryStore, older_than: float) -> int:
        begun.set()
        let_go.wait(20)
        return 0

    def turn(controller: Controller) -> float:
        turns.append(1)
        if len(turns) > 1 and begun.wait(20):  # a whole pass before the first look, and another one beside it
            stop.set()
        return 0.01

    monkeypatch.setattr(MemoryStore, "prune", prune)
    monkeypatch.setattr(Controller, "turn", turn)
    monkeypatch.setattr(pruning, "FIRST_S", 0.0)
    app.run(settings(tmp_path), stop, CALM)
    assert not let_go.is_set()
    let_go.set()


def test_old_cases_are_removed_by_the_age_that_is_set_and_a_store_that_fails_ends_no_lead() -> None:
    asked, tried = list[float](), threading.Event()

    class Store(MemoryStore):
        def prune(self, older_than: float) -> int:
            asked.append(older_than)
            tried.set()
            raise StoreError("not now")

    daily = pruning.Pruning(Store(), lambda: 100 * 86_400.0, 30.0)
    daily.look()
    assert not asked, "not before its first passes are over"
    daily._due = 0.0
    daily.look()
    assert tried.wait(20)
    daily.look()
    assert asked == [70 * 86_400.0]


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
