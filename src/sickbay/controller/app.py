"""The controller process, put together: settings -> store, platform, crew, leader, outbox; then pass after pass.

`run` is called by `sickbay controller run` and returns when it is told to stop. It stands by while another process
leads, takes over when that one dies, and gives the lead back cleanly. Composition only: it holds no decision.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from sickbay.catalog import load
from sickbay.controller.crew import PoolCrew
from sickbay.controller.leader import FileLeader
from sickbay.controller.loop import Controller
from sickbay.controller.outbox import Outbox
from sickbay.errors import NotLeader, StoreError, UserError
from sickbay.log import set_up_log
from sickbay.model import Notice, Report
from sickbay.notifiers.log import LogNotifier
from sickbay.ports import Clock, Notifier, Platform, Store
from sickbay.settings import Settings

log = logging.getLogger(__name__)

STANDBY_S = 1.0  # between two tries to take the lead: takeover within seconds
HEARING_S = 1.0  # a person's command or a signal is noticed at least this often, whatever the loop sleeps for
RESYNC_S = 600.0  # everything is read again: a watch may have missed something
PRUNE_S = 86_400.0
ARCHIVE_S = 400 * 86_400.0  # how long ended cases are kept
MISHAP_S = 5.0  # after a pass that broke, before the next try


@dataclass(frozen=True, slots=True)
class Trial:
    """The fleet of platform "simulated": for trying, and for tests of this process."""

    nodes: int = 64
    seed: int = 0
    speed: float = 1.0  # virtual seconds a second
    preset: str = "noisy"
    scale: float = 20.0  # at 1x a fault every few minutes, or nobody would see anything
    jobs: str = "mix"


@dataclass(frozen=True, slots=True)
class Site:
    """Where the nodes live: the door, the clock that fits it, and how to leave."""

    platform: Platform
    clock: Clock
    speed: float = 1.0
    close: Callable[[], None] = lambda: None


def _simulated(settings: Settings, trial: Trial) -> Site:
    from sickbay.platforms.simulated.paced import PacedClock, PacedFleet
    from sickbay.sim.workload import Scene, build

    scene = Scene(trial.seed, trial.nodes, preset=trial.preset, scale=trial.scale, jobs=trial.jobs)
    if not 0 < trial.speed <= 10_000:
        raise UserError(f"a speed of {trial.speed:g}: more than 0 and at most 10,000")
    world, _ = build(scene, start=time.time())
    clock = PacedClock(trial.speed)
    fleet = PacedFleet(world, clock, data_dir(settings) / "evidence")
    return Site(fleet, clock, trial.speed, fleet.close)


# settings.platform -> its composition. A further platform is one function and one line here.
PLATFORMS: Mapping[str, Callable[[Settings, Trial], Site]] = {
    "simulated": _simulated,
}


def run(settings: Settings, stop: threading.Event, trial: Trial | None = None) -> None:
    """Serve until `stop` is set. Raises only for what a person must mend: settings, an unreadable store."""
    set_up_log(settings.log_level)
    if settings.platform not in PLATFORMS:
        raise UserError(f"platform = {settings.platform!r}: there is no such platform; known: {', '.join(PLATFORMS)}")
    store = open_store(settings)
    try:
        site = PLATFORMS[settings.platform](settings, trial or Trial())
        try:
            _serve(settings, store, site, stop)
        finally:
            site.close()
    finally:
        store.close()
    log.info("stopped")


def _serve(settings: Settings, store: Store, site: Site, stop: threading.Event) -> None:
    """The process on its platform; with `ingest.listen` set, also on what agents report by themselves."""
    if not settings.ingest.listen:
        _Process(settings, store, site, stop).serve()
        return
    from sickbay.platforms.reported import ReportedFleet

    fleet = ReportedFleet(site.platform, RealClock())
    process = _Process(settings, store, replace(site, platform=fleet), stop)
    ingest = open_ingest(settings, fleet.report, lambda: process.leads)
    try:
        process.serve()
    finally:
        ingest.close()


class RealClock:
    """Agents live in real time, however fast a simulated fleet runs."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class Served(Protocol):
    """As web.serve.Served, which is imported only where it is used."""

    port: int

    def close(self) -> None: ...


def open_ingest(settings: Settings, take: Callable[[Report], str], leads: Callable[[], bool]) -> Served:
    """Listen for agents. UserError when the settings, the secrets or the port do not let us."""
    try:
        from sickbay.web.ingest import Desk, Ingest
        from sickbay.web.serve import Served as Server
    except ImportError as missing:
        raise UserError(
            f"ingest.listen is set, but {missing.name} is not installed: pip install 'sickbay[web]'"
        ) from missing
    from sickbay.web.tokens import Secrets

    desk = Desk(take, leads, Secrets(settings.ingest.secret_file), settings.cluster, RealClock())
    return Server(Ingest(desk).app(), settings.ingest)


def data_dir(settings: Settings) -> Path:
    return Path(settings.data_dir).expanduser()


def open_store(settings: Settings) -> Store:
    if settings.store == "memory":
        from sickbay.stores.memory import MemoryStore

        return MemoryStore(settings.cluster)
    if settings.store != "sqlite":
        raise UserError(f"store = {settings.store!r}: there is no such store; known: sqlite, memory")
    from sickbay.stores.sqlite import SqliteStore

    file = settings.sqlite
    path = data_dir(settings) / "sickbay.db"
    return SqliteStore(path, settings.cluster, synchronous=file.synchronous, busy_s=file.busy_s)


class Postman:
    """The outbox in a thread of its own: a slow notifier never holds up a pass."""

    def __init__(
        self, notifiers: Iterable[Notifier], clock: Clock, delivered: Callable[[], None], gather_s: float = 0.0
    ) -> None:
        self._box, self._clock = Outbox([*notifiers], gather_s=gather_s), clock
        self._told: deque[str] = deque()
        self._delivered, self._stop = delivered, threading.Event()
        self._thread = threading.Thread(target=self._serve, name="outbox", daemon=True)
        self._thread.start()

    def put(self, notices: Iterable[Notice]) -> int:
        return self._box.put(notices)

    def pump(self, now: float) -> list[str]:
        """What the thread has delivered since the last pass."""
        return [self._told.popleft() for _ in range(len(self._told))]

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=2.0)  # what is not out yet is still on its record

    def _serve(self) -> None:
        self._box.serve(self._clock, self._stop, self._hear)

    def _hear(self, keys: list[str]) -> None:
        self._told.extend(keys)
        self._delivered()


class _Process:
    """Stand by, lead, lose the lead, stand by again."""

    def __init__(self, settings: Settings, store: Store, site: Site, stop: threading.Event) -> None:
        self._settings, self._store, self._site, self._stop = settings, store, site, stop
        self._catalog = load().with_overrides(settings.severity_overrides)
        self._leader = FileLeader(data_dir(settings) / "leader.lock")
        self._standing_by = False
        self.leads = False  # read by the ingest's thread: a standby takes no reports

    def serve(self) -> None:
        while not self._stop.is_set():
            try:
                self._lead()
            except NotLeader as lost:
                log.warning("the lead is lost: %s", lost)
            except StoreError as broken:
                log.error("the store failed, trying again in %.0f s: %s", MISHAP_S, broken)
                self._stop.wait(MISHAP_S)
            except Exception:  # the next pass starts from the records, as after a crash; dying would heal nobody
                log.exception("a pass broke, starting again from the store in %.0f s", MISHAP_S)
                self._stop.wait(MISHAP_S)

    def _lead(self) -> None:
        """One life as leader, or one look whether there is a lead to take."""
        crew = PoolCrew(self._settings.controller.workers)
        woken = threading.Event()
        post = Postman([LogNotifier()], self._site.clock, woken.set, self._settings.controller.notice_s)
        controller = Controller(
            self._site.platform, self._store, self._catalog, self._settings, self._site.clock, self._leader, post, crew
        )
        controller.woken = woken
        try:
            if not self._wait_for_the_lead(controller):
                return
            self.leads = True
            self._passes(controller)
        except BaseException:
            controller.abandon()
            raise
        finally:
            self.leads = False
            controller.stop()
            self._leader.release()
            post.close()

    def _wait_for_the_lead(self, controller: Controller) -> bool:
        while not self._stop.is_set():
            if controller.start():
                return True
            if not self._standing_by:
                log.info("standing by: %s leads", self._leader.holder() or "another controller")
                self._standing_by = True
            self._stop.wait(STANDBY_S)
        return False

    def _passes(self, controller: Controller) -> None:
        self._standing_by = False
        resync_at, prune_at = time.monotonic() + RESYNC_S, time.monotonic()
        while not self._stop.is_set():
            if time.monotonic() >= resync_at:
                controller.resync()
                resync_at = time.monotonic() + RESYNC_S
            if time.monotonic() >= prune_at:
                self._store.prune(self._site.clock.now() - ARCHIVE_S)
                prune_at = time.monotonic() + PRUNE_S
            self._sleep(controller, controller.turn() / self._site.speed)

    def _sleep(self, controller: Controller, seconds: float) -> None:
        """Until something happened, somebody wrote to the store, or the time is up."""
        token, until = self._store.token(), time.monotonic() + seconds
        while not self._stop.is_set() and (left := until - time.monotonic()) > 0:
            if controller.woken.wait(min(left, HEARING_S)) or self._store.token() != token:
                return
