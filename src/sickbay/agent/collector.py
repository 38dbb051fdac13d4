"""Runs the checks when they are due, each under guard, and hands their findings to agent/station.

One thread that only waits and decides; the checks themselves run in a thread that can be given up (agent/guard). It
must never let one check that hangs keep the others from running, nor run a level-2 diagnostic on a busy node.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sickbay.agent.guard import Guard, Stuck, TooManyStuck
from sickbay.agent.knowledge import Knowledge
from sickbay.agent.memory import Memory
from sickbay.agent.pulse import Pulse
from sickbay.agent.reload import Config
from sickbay.agent.schedule import L2, Rota, l2_due
from sickbay.agent.station import Station
from sickbay.checks import BY_NAME
from sickbay.checks.run import run, uptime
from sickbay.checks.signs import Ask, Sign, Stamp, finding
from sickbay.model import Finding, Status
from sickbay.settings import AgentSettings
from sickbay.suite.asking import ask_for
from sickbay.suite.exclusive import busy
from sickbay.treatments import leftover
from sickbay.treatments.reset import put_right

log = logging.getLogger(__name__)

SPARE_S = 30.0  # beyond a check's own limit, before its thread is given up
IDENTITY_S = 120.0
RESET_S = 2.0  # between two looks whether a reset has ended
LOOK_AGAIN_CYCLES = 12  # cycles between looks at versions: they change with a driver, not by the minute


@dataclass(slots=True)
class Collector:
    station: Station
    knowledge: Knowledge
    memory: Memory
    config: Config
    pulse: Pulse
    guard: Guard = field(default_factory=Guard)
    wall: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    cycles: int = 0
    seconds: dict[str, float] = field(default_factory=dict)  # how long each check took last
    on_config: Callable[[], None] = lambda: None  # the settings in use have changed
    _told: str = ""  # the trouble with the settings that was logged

    @property
    def settings(self) -> AgentSettings:
        return self.config.settings.agent

    # -- the thread ---------------------------------------------------------------------------------------------------

    def serve(self, stop: threading.Event) -> None:
        """Until stopped. TooManyStuck comes out of here and ends the process."""
        rota = Rota(self.station.who.node, self.clock())
        due = rota.started
        while not stop.is_set():
            wait = due - self.clock()
            self.pulse.beat("collector", max(wait, 0.0) + SPARE_S * 2)
            if wait > 0 and stop.wait(wait):
                break
            self._guarded_cycle(stop)
            due = rota.next_cycle(self.clock(), self.settings.check_interval_s)
        self.pulse.rest("collector")

    def _guarded_cycle(self, stop: threading.Event) -> None:
        """A cycle that breaks has seen nothing, and the next one is due all the same."""
        try:
            self._wait_for_reset(stop)
            self.cycle(stop)
        except TooManyStuck:
            raise
        except Exception as error:
            log.exception("a cycle broke")
            said = f"a cycle of the checks broke: {type(error).__name__}, so we cannot tell"
            self.station.say("agent", [Sign("tool.failed", said, status=Status.UNKNOWN)])

    def _wait_for_reset(self, stop: threading.Event) -> None:
        """While a GPU is reset we ask nothing, or we would be the client that is in its way; what a reset that was
        killed has stopped is started again."""
        folder = self.knowledge.folder
        while (by := leftover.paused(folder, self.wall())) and not stop.wait(RESET_S):
            log.info("waiting for the reset of %s", by)
            self.pulse.beat("collector", RESET_S + SPARE_S * 2)
        for trouble in put_right(self.knowledge.host, folder):
            log.error("after a reset that was killed: %s", trouble)

    def cycle(self, stop: threading.Event | None = None) -> None:
        """One round of the light checks, and level 2 if its time has come."""
        self._refresh()
        if self.cycles % LOOK_AGAIN_CYCLES == 0 or self.knowledge.stale:
            self._who_am_i()
        found: list[Finding] = []
        names = list(self.settings.light_checks)
        if self._l2_wanted():
            names.append(L2)
        for name in names:
            if stop is not None and stop.is_set():
                return  # a cycle that was cut short says nothing
            found += self._one(name)
        found += self._settings_findings()  # last: what is found after a check passed is not what it passed over
        self.cycles += 1
        self.knowledge.learn(found, self.station.chart.boot_id, self.wall())
        self.station.known(self.knowledge.who(self.station.who))
        self.station.cycle(found, self._uptime())
        self.memory.save()

    # -- one check ----------------------------------------------------------------------------------------------------

    def _one(self, name: str) -> list[Finding]:
        limit = self._limit(name)
        self.pulse.beat("collector", limit + SPARE_S * 2)
        begun = self.clock()
        try:
            answer = self.guard.run(name, lambda: self._checked(name), limit + SPARE_S)
        except TooManyStuck:
            raise
        except Exception as error:  # checks/run never raises; the agent does not stop if it does
            return self._cannot(name, "tool.failed", f"{name} broke: {type(error).__name__}")
        self.seconds[name] = self.clock() - begun
        if isinstance(answer, Stuck):
            said = f"{name} has hung for {answer.seconds:.0f} s and was left behind, so we cannot tell"
            return self._cannot(name, "tool.timeout", said)
        if name == L2:
            self.station.diagnosed()
        self.station.glimpse(answer)
        return answer

    def _checked(self, name: str) -> list[Finding]:
        return run(
            self.knowledge.host, [name], self.station.catalog, at=self.wall(), sequence=self.station.numbers(),
            gpus=self.knowledge.map.gpus, ask=self._ask(name),
        )  # fmt: skip

    def _ask(self, name: str) -> Ask:
        known = ask_for(self.settings, {}, suite="lightweight", at=self.wall(), profile=self.knowledge.profile)
        return replace(known, series=self.memory.of(name))

    def _limit(self, name: str) -> float:
        check = BY_NAME.get(name)
        own = check.own_limit_s if check is not None else 0.0
        return max(own, self.settings.dcgm_timeout_s if name == L2 else self.settings.check_timeout_s)

    def _cannot(self, check: str, code: str, said: str) -> list[Finding]:
        stamp = Stamp(check, self.station.who.node, self.station.chart.boot_id, self.wall())
        sign = Sign(code, said, status=Status.UNKNOWN)
        return [finding(sign, self.station.catalog, stamp, next(self.station.numbers()))]

    # -- what belongs to a cycle --------------------------------------------------------------------------------------

    def _l2_wanted(self) -> bool:
        """Standalone only (else the controller reserves the node first), idle only, and not on the first cycle."""
        settings, chart = self.settings, self.station.chart
        if settings.mode != "standalone" or self.cycles == 0 or L2 in settings.light_checks:
            return False
        due = l2_due(
            self.station.who.node, born=chart.born, last=chart.l2_at, interval_s=settings.dcgm_l2_interval_s,
            wall=self.wall(),
        )  # fmt: skip
        return due and self._idle()

    def _idle(self) -> bool:
        """Nothing computes here. If that cannot be read, somebody may."""
        return not busy(self.knowledge.host)

    def _who_am_i(self) -> None:
        try:
            answer = self.guard.run("identity", lambda: self.knowledge.look(self.settings), IDENTITY_S)
        except TooManyStuck:
            raise
        except Exception:  # a node that cannot say who it is must still be watched
            log.exception("the machine could not be asked who it is")
            return
        if isinstance(answer, Stuck):
            log.error("the machine does not say who it is: gave up after %.0f s", answer.seconds)
        elif not self.knowledge.type and self.cycles == 0:
            log.warning("the type of this node is not known (%s): counts will be UNKNOWN", self.knowledge.why)

    def _refresh(self) -> None:
        """The settings as they are now (originals 002.12 #15)."""
        if self.config.refresh():
            log.info("settings were read again")
            self.on_config()
        if self.config.trouble and self.config.trouble != self._told:
            log.error("the settings were edited and are wrong; the last good ones stay in use: %s", self.config.trouble)
        self._told = self.config.trouble

    def _settings_findings(self) -> list[Finding]:
        trouble = self.config.trouble or self.knowledge.trouble
        reason = "the newest edit of the settings is wrong; the last good ones are in use"
        lines = tuple(trouble.splitlines()[:4])
        sign = Sign("agent.bad-settings", reason, evidence=lines) if trouble else _FINE
        stamp = Stamp("settings", self.station.who.node, self.station.chart.boot_id, self.wall())
        return [finding(sign, self.station.catalog, stamp, next(self.station.numbers()))]

    def _uptime(self) -> float:
        known = uptime(self.knowledge.host)
        return self.wall() - self.station.chart.born if known is None else known


_FINE = Sign("", "settings: as on disk", status=Status.OK)
