"""The agent as one process: makes the parts, lets them run, ends them in order. The only file that knows all of them.

`sickbay agent` calls `run` with a Host; a simulated host does as well as a real one. SIGTERM ends it with code 0 and
clears nothing; a collector that hangs beyond help ends it with another code, and whoever supervises it starts it anew.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sickbay.agent import verdict_file
from sickbay.agent.chart import Shelf
from sickbay.agent.collector import Collector
from sickbay.agent.events import Event, Inbox
from sickbay.agent.follower import Follower, Source
from sickbay.agent.guard import Guard, TooManyStuck
from sickbay.agent.journald import ARGV, JournalSource
from sickbay.agent.kmsg import KmsgSource
from sickbay.agent.knowledge import Knowledge, Overheard
from sickbay.agent.measures import Measures, Meter
from sickbay.agent.memory import Memory
from sickbay.agent.publishers import Told
from sickbay.agent.publishers.chosen import publishers_of
from sickbay.agent.publishers.lane import Lane
from sickbay.agent.pulse import Pulse
from sickbay.agent.reload import Config, needs_restart
from sickbay.agent.report import Self
from sickbay.agent.station import Station
from sickbay.agent.verdicts import NodeVerdict
from sickbay.catalog import Catalog, load
from sickbay.checks import rehearsal
from sickbay.checks.signs import Sign
from sickbay.errors import UserError
from sickbay.model import Report
from sickbay.ports import Host
from sickbay.settings import Settings
from sickbay.treatments import leftover

if TYPE_CHECKING:
    from sickbay.agent.metrics import Server
    from sickbay.kube.objects import NodeObject

log = logging.getLogger(__name__)

TICK_S = 1.0  # how soon an event file is seen
PATIENCE_S = 3.0  # for the last reports, at the end
MEET_S = 2.0  # the first cycle waits this long for the node's own label; a later answer is used by the next one
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
EXPIRES = 3.0  # cycles without a new verdict until the last one is no longer believed
STUCK = 70  # exit code: sysexits' "internal software error"


@dataclass(slots=True)
class Options:
    """What a caller may put in the place of the real thing."""

    open_source: Callable[[str], Source] | None = None
    argv_prefix: tuple[str, ...] = ()  # before journalctl, where we live in a container


class Agent:
    def __init__(self, config: Config, host: Host, options: Options | None = None) -> None:
        self.config, self._options = config, options or Options()
        settings = config.settings
        self.folder = _folder(settings.agent.state_dir)
        self._lock = _alone(self.folder)
        self._host, self._boot = host, host.boot_id()
        self.pulse = Pulse()
        self._met = threading.Event()  # the platform has shown us our node
        self.lanes = [Lane(one) for one in publishers_of(config, host.name, self.folder, self._meet)]
        self.station = Station(
            Shelf(self.folder), Self(host.name, settings.cluster), self._boot, catalog_of(settings), self._tell
        )
        self.knowledge = Knowledge(self.folder, Overheard(host), self.station.catalog)
        self.knowledge.remember()
        self.station.known(self.knowledge.who(self.station.who))
        memory = Memory(self.folder)
        memory.load(self._boot)
        self.collector = Collector(
            self.station, self.knowledge, memory, config, self.pulse, Guard(), on_config=self._reconfigured
        )
        self.follower = Follower(self._options.open_source or self._source, self.station, self.pulse)
        self.measures = Measures()
        self._inbox = Inbox(self.folder)
        self._used = settings
        self._failure: TooManyStuck | None = None

    # -- life ---------------------------------------------------------------------------------------------------------

    def run(self, stop: threading.Event) -> int:
        """Until stopped; returns the exit code."""
        settings = self.config.settings.agent
        server = self._server(settings.listen) if settings.listen else None
        for lane in self.lanes:
            lane.start()
        self._begin()
        self.follower.start()
        collecting = threading.Thread(target=self._collect, args=(stop,), name="cycles", daemon=True)
        measuring = threading.Thread(target=self._measure, args=(stop,), name="host-metrics", daemon=True)
        collecting.start()
        measuring.start()
        log.info("agent started node=%s boot=%s state=%s", self._host.name, self._boot, self.folder)
        while not stop.wait(TICK_S):
            self._obey()
        self._end(server, collecting)
        return STUCK if self._failure is not None else 0

    def _server(self, listen: str) -> Server:
        try:
            from sickbay.agent.metrics import Instruments, Server
        except ImportError:
            raise UserError(
                "agent.listen is set and prometheus-client is not here: install sickbay[agent], or empty agent.listen"
            ) from None
        parts = Instruments(self.station, self.follower, self.collector, self.lanes, lambda: self.measures)
        return Server(listen, parts, self.pulse)

    def _begin(self) -> None:
        """What waited for us, and a first word: what we believed before we were stopped is believed still."""
        self._obey()
        lost = self.station.chart.unreadable
        if lost:
            self.station.say("state", [Sign("agent.state-lost", lost)])
        else:
            self.station.tell()

    def _end(self, server: Server | None, collecting: threading.Thread) -> None:
        """Nothing is cleared: a stopped agent is not a healed node (originals 002.12 #6)."""
        self.collector.guard.stop()
        self.follower.stop()
        self.follower.join(PATIENCE_S)
        collecting.join(PATIENCE_S)
        self.station.close()
        until = time.monotonic() + PATIENCE_S
        for lane in self.lanes:
            lane.stop(max(0.1, until - time.monotonic()))
        if server is not None:
            server.close()
        os.close(self._lock)
        log.info("agent stopped node=%s", self._host.name)

    def _collect(self, stop: threading.Event) -> None:
        if any(lane.publisher.name == "kubernetes" for lane in self.lanes):
            self._met.wait(MEET_S)
        try:
            self.collector.serve(stop)
        except TooManyStuck as failure:
            self._failure = failure
            log.critical("%s; ending, so that a new agent is started. Verdicts are kept", failure)
            stop.set()

    def _measure(self, stop: threading.Event) -> None:
        meter, wait = Meter(self._host), 0.0
        while not stop.wait(wait):
            wait = self.config.settings.agent.host_metrics_s
            if leftover.paused(self.folder, time.time()):
                continue  # a GPU is being reset: nobody may ask it anything
            try:
                measures = meter.measure(time.monotonic(), time.time())
                self.measures = measures
                for lane in self.lanes:
                    lane.offer(measures)
            except Exception:  # figures are worth less than the agent
                log.exception("host metrics could not be read")

    # -- what the parts ask for ---------------------------------------------------------------------------------------

    def _tell(self, report: Report, verdict: NodeVerdict) -> None:
        told = Told(report, verdict)
        for lane in self.lanes:
            lane.offer(told)
        lasts = EXPIRES * self.config.settings.agent.check_interval_s + self.config.settings.agent.check_timeout_s
        try:
            verdict_file.write(self.folder, report, verdict, gpus=self.knowledge.gpus, lasts_s=lasts)
        except OSError as error:
            log.error("the verdict file cannot be written: %s", error)

    def _meet(self, node: NodeObject) -> None:
        """From a publisher's thread: our node as the API server has it."""
        self.knowledge.told(node.metadata.label(INSTANCE_TYPE), node.spec.provider_id.rpartition("/")[2])
        self.station.known(self.knowledge.who(self.station.who))
        self._met.set()

    def _source(self, cursor: str) -> Source:
        """/dev/kmsg, or journald where it cannot be opened."""
        settings = self.config.settings.agent
        accept = rehearsal.is_rehearsal if settings.allow_inject else None
        try:
            return KmsgSource(settings.kmsg, self._boot, cursor, first=settings.kernel_log_lines, accept=accept)
        except OSError as refused:
            try:
                argv = (*self._options.argv_prefix, *ARGV)
                return JournalSource(self._boot, cursor, first=settings.kernel_log_lines, argv=argv)
            except OSError:
                raise refused from None

    def _obey(self) -> None:
        for path, event in self._inbox.new():
            self._take(event)
            path.unlink(missing_ok=True)

    def _take(self, event: Event) -> None:
        where = ", ".join(event.devices) or "the whole node"
        if event.kind == "reset":
            self.station.reset(event.devices)
            log.info("reset of %s by %s: what a reset clears is cleared", where, event.by or "unknown")
            return
        ended = sum(self.station.clear(device) for device in event.devices or ("",))
        log.warning("%s cleared %d verdict(s) on %s: %s", event.by or "somebody", ended, where, event.why)

    def _reconfigured(self) -> None:
        """At the next cycle, without a restart, but for what is open already."""
        new = self.config.settings
        waits = needs_restart(self._used.agent, new.agent)
        waits += ("kubernetes",) if new.kubernetes != self._used.kubernetes else ()
        if waits:
            log.warning("these settings take effect when the agent is started anew: %s", ", ".join(waits))
        if new.severity_overrides != self._used.severity_overrides:
            self.station.catalog = catalog_of(new)
        logging.getLogger("sickbay").setLevel(new.log_level)
        self._used = new


def run(config: Config, host: Host, stop: threading.Event, options: Options | None = None) -> int:
    return Agent(config, host, options).run(stop)


def catalog_of(settings: Settings) -> Catalog:
    return load().with_overrides(settings.severity_overrides)


def _folder(path: str) -> Path:
    folder = Path(path).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    except OSError as error:
        raise UserError(
            f"agent.state_dir {folder} cannot be made: {error.strerror}; it must survive the agent"
        ) from None
    if not os.access(folder, os.W_OK):
        raise UserError(f"agent.state_dir {folder} cannot be written; verdicts would not survive a restart")
    return folder


def _alone(folder: Path) -> int:
    """Two agents on one state folder would count twice. The lock goes with the process, however it ends."""
    handle = os.open(folder / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise UserError(
            f"another agent is running on {folder}; stop it first, or use another agent.state_dir"
        ) from None
    return handle
