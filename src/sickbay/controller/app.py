"""The controller process, put together: settings -> store, platform, crew, leader, outbox; then pass after pass.

`run` is called by `sickbay controller run` and returns when it is told to stop. It stands by while another process
leads, takes over when that one dies, and gives the lead back cleanly. Composition only: it holds no decision.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Protocol

from sickbay.catalog import load
from sickbay.controller.accounts import Accounts
from sickbay.controller.crew import PoolCrew
from sickbay.controller.evidence_room import EvidenceRoom, handed_out
from sickbay.controller.loop import Controller
from sickbay.controller.metered import MeteredNotifier, MeteredPlatform, MeteredStore
from sickbay.controller.postman import Postman
from sickbay.controller.pruning import Pruning
from sickbay.controller.sites import (
    RealClock,
    Rivalry,
    Site,
    Trial,
    open_leader,
    open_notifiers,
    open_site,
    open_store,
)
from sickbay.controller.store_trouble import StoreTrouble
from sickbay.controller.vitals import Vitals
from sickbay.errors import ApiError, NotLeader, StoreError, UserError
from sickbay.log import set_up_log
from sickbay.model import Finding, Report
from sickbay.ports import Store
from sickbay.settings import LEVELS, Settings
from sickbay.settings_load import hasty, unkept

log = logging.getLogger(__name__)

STANDBY_S = 1.0  # between two tries to take the lead: takeover within seconds
HEARING_S = 1.0  # a person's command or a signal is noticed at least this often, whatever the loop sleeps for
RESYNC_S = 600.0  # everything is read again: a watch may have missed something
MISHAP_S = 5.0  # after a pass that broke, before the next try


def run(settings: Settings, stop: threading.Event, trial: Trial | None = None) -> None:
    """Serve until `stop` is set. Raises only for what a person must mend: settings, an unreadable store."""
    set_up_log(settings.log_level)
    for words in (*hasty(settings), *unkept(settings)):
        log.warning("settings: %s", words)
    store = open_store(settings)
    try:
        site = open_site(settings, trial or Trial())
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
        _seen(_Process(settings, store, site, stop))
        return
    from sickbay.platforms.reported import ReportedFleet

    fleet = ReportedFleet(site.platform, RealClock())
    process = _Process(settings, store, replace(site, platform=fleet), stop)
    ingest = open_ingest(settings, fleet, lambda: process.leads)
    try:
        _seen(process)
    finally:
        ingest.close()


def _seen(process: _Process) -> None:
    """Serve; with `controller.listen` or `controller.probe_listen` set, to be looked at from outside meanwhile."""
    limits = process.settings.controller
    with ExitStack() as doors:
        if limits.probe_listen:
            doors.callback(open_probes(process).close)
        if limits.listen:
            doors.callback(open_pages(process).close)
        process.serve()


def open_probes(process: _Process) -> Served:
    """The probes alone, for the kubelet: whatever happens at the other doors, they are answered."""
    from sickbay.pages import Pages

    listen = process.settings.controller.probe_listen
    pages = Pages(listen, process.vitals.pages(), "controller.probe_listen")
    log.info("probes listen=%s port=%d", listen, pages.port)
    return pages


def open_pages(process: _Process) -> Served:
    """/metrics and the probes. UserError when the library is not there or the address cannot be had."""
    try:
        from sickbay.controller import metrics
    except ImportError as missing:
        raise UserError(
            f"controller.listen is set, but {missing.name} is not installed: pip install 'sickbay[agent]'"
        ) from missing
    figures = metrics.Figures(
        process.settings, process.accounts, process.vitals, process.site.clock.now, lambda: process.controller
    )
    shelf = partial(handed_out, process.site.evidence)
    pages = metrics.open_pages(figures, process.vitals, process.settings.controller.listen, shelf)
    log.info("metrics listen=%s port=%d", process.settings.controller.listen, pages.port)
    return pages


class Served(Protocol):
    """As web.serve.Served, which is imported only where it is used."""

    port: int

    def close(self) -> None: ...


class Fleet(Protocol):
    """As platforms.reported.ReportedFleet: who takes what agents report and what outsiders say."""

    def report(self, report: Report) -> str: ...

    def knows(self, node: str) -> bool: ...

    def tell(self, node: str, source: str, findings: Sequence[Finding]) -> str: ...


def open_ingest(settings: Settings, fleet: Fleet, leads: Callable[[], bool]) -> Served:
    """Listen for agents, Alertmanager and webhooks. UserError when settings, secrets or the port do not let us."""
    try:
        from sickbay.web.ingest import Desk, Ingest
        from sickbay.web.serve import Served as Server
    except ImportError as missing:
        raise UserError(
            f"ingest.listen is set, but {missing.name} is not installed: pip install 'sickbay[web]'"
        ) from missing
    from sickbay.web.outside import outside_routes
    from sickbay.web.tokens import Secrets

    desk = Desk(fleet.report, leads, Secrets(settings.ingest.secret_file), settings.cluster, RealClock())
    return Server(Ingest(desk, more=outside_routes(desk, fleet)).app(), settings.ingest)


def beside(settings: Settings, pools: Iterable[str]) -> Settings:
    """Hands off where somebody else repairs: two repairers on one node undo each other's work."""
    watched = {pool: replace(settings.policy_for(pool), max_verb=LEVELS[0]) for pool in pools}
    return replace(settings, pools={**settings.pools, **watched})


class _Process:
    """Stand by, lead, lose the lead, stand by again."""

    def __init__(self, settings: Settings, store: Store, site: Site, stop: threading.Event) -> None:
        self.accounts = accounts = Accounts(site.clock.now)
        self.settings = self._settings = settings
        self._store, self._stop = MeteredStore(store, accounts), stop
        self.site = self._site = replace(site, platform=MeteredPlatform(site.platform, accounts))
        self.vitals = Vitals(settings.controller.period_s, site.watch_age)
        self._catalog = load().with_overrides(settings.severity_overrides)
        self._leader = open_leader(settings)
        self._notifiers = [MeteredNotifier(notifier, accounts) for notifier in open_notifiers(settings, site)]
        self._trouble = StoreTrouble(self._notifiers, site.clock)
        self._rivals: Rivalry | None = None  # as last seen
        self._standing_by = False
        self.leads = False  # read by the ingest's thread: a standby takes no reports
        self.controller: Controller | None = None  # while it leads; read by a scrape

    def serve(self) -> None:
        while not self._stop.is_set():
            try:
                self._lead()
            except NotLeader as lost:
                log.warning("the lead is lost: %s", lost)
                self._note("lead lost", lost)
            except StoreError as broken:
                log.error("the store failed, trying again in %.0f s: %s", MISHAP_S, broken)
                self._note("store", broken)
                self._trouble.met(str(broken))
                self._stop.wait(MISHAP_S)
            except ApiError as silent:
                log.error("the cluster could not be asked, trying again in %.0f s: %s", MISHAP_S, silent)
                self._note("cluster", silent)
                self._stop.wait(MISHAP_S)
            except Exception as bug:  # the next pass starts from the records, as after a crash; dying would heal nobody
                log.exception("a pass broke, starting again from the store in %.0f s", MISHAP_S)
                self._note("pass", bug)
                self._stop.wait(MISHAP_S)

    def _note(self, what: str, why: Exception) -> None:
        self.accounts.mishaps.add(what)
        self.vitals.failed(f"{type(why).__name__}: {why}", MISHAP_S)

    def _lead(self) -> None:
        """One life as leader. Who else repairs here is asked once the lead is ours: a standby may have waited days."""
        if not self._wait_for_the_lead():
            return
        try:
            self._preside(self._look_around())
        finally:
            self._leader.release()

    def _look_around(self) -> Rivalry:
        """Where it cannot be seen, what was seen last counts. ApiError if nothing ever was: we do not lead blind."""
        try:
            self._rivals = self._site.rivals()
        except ApiError as unseen:
            if self._rivals is None:
                raise
            log.warning("whether other repairers are at work could not be seen; as before: %s", unseen)
        return self._rivals

    def _preside(self, rivals: Rivalry) -> None:
        crew = PoolCrew(self._settings.controller.workers)
        woken = threading.Event()
        post = Postman(self._notifiers, self._site.clock, woken.set, self._settings.controller.notice_s)
        settings = beside(self._settings, rivals.pools)
        controller = Controller(
            self._site.platform, self._store, self._catalog, settings, self._site.clock, self._leader, post, crew
        )
        controller.woken, controller.containment.counts = woken, self.accounts.contained
        try:
            if not controller.start():
                return
            self.leads, self.controller = True, controller
            self.accounts.begin_lead()
            post.put(rivals.notices)
            self._passes(controller, rivals, EvidenceRoom(self._site.evidence, post.put, self._site.clock.now))
        except BaseException:
            controller.abandon()
            raise
        finally:
            self.leads, self.controller = False, None
            controller.stop()
            self._leader.release()
            post.close()

    def _wait_for_the_lead(self) -> bool:
        while not self._stop.is_set():
            self.vitals.begins()
            if self._leader.acquire():
                return True
            self.vitals.stood_by()
            if not self._standing_by:
                log.info("standing by: %s leads", self._leader.holder() or "another controller")
                self._standing_by = True
            self._stop.wait(STANDBY_S)
        return False

    def _passes(self, controller: Controller, rivals: Rivalry, room: EvidenceRoom) -> None:
        self._standing_by = False
        pruning = Pruning(self._store, self._site.clock.now, self._settings.controller.archive_days)
        resync_at = time.monotonic() + RESYNC_S
        while not self._stop.is_set():
            if time.monotonic() >= resync_at:
                if (found := self._look_around()).pools != rivals.pools:
                    log.warning("other repairers are at work in other pools than before: %s", ", ".join(found.pools))
                    return  # and lead anew, with hands off there
                controller.resync()
                resync_at = time.monotonic() + RESYNC_S
            seconds = self._pass(controller)
            pruning.look()
            room.look()
            self._sleep(controller, seconds)

    def _pass(self, controller: Controller) -> float:
        """One pass, timed; returns how many seconds to sleep at most."""
        begun = time.monotonic()
        seconds = controller.turn() / self._site.speed
        self.accounts.passes.observe(time.monotonic() - begun)
        controller.follow("the figures", partial(self.accounts.look, controller.view, begun))
        self.vitals.passed(seconds)
        return seconds

    def _sleep(self, controller: Controller, seconds: float) -> None:
        """Until something happened, somebody wrote to the store, the lead was lost, or the time is up. The lead is
        attended all the while: one that nobody asks for is given up, and a sleep may be longer than that takes."""
        token, until = self._store.token(), time.monotonic() + seconds
        while not self._stop.is_set() and (left := until - time.monotonic()) > 0:
            if controller.woken.wait(min(left, HEARING_S)) or self._store.token() != token:
                return
            if not self._leader.acquire():
                return  # the next pass says so before it writes or asks anything
