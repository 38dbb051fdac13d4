"""Follows the kernel log in a thread of its own: woken by poll(), judged at once, told within milliseconds.

It reads /dev/kmsg, or journald where that cannot be read, and hands what is new to agent/station. It must never be
delayed by a check or a publisher, never end because of a line, and never look in a loop without sleeping.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable
from typing import Protocol

from sickbay.agent.ear import Ear
from sickbay.agent.kmsg import Batch
from sickbay.agent.pulse import Pulse
from sickbay.agent.station import Station
from sickbay.checks import rehearsal
from sickbay.checks.signs import Sign
from sickbay.model import Status

log = logging.getLogger(__name__)

BEAT_S = 30.0
LATE_S = 120.0
AGAIN_S = (1.0, 5.0, 30.0)  # before the log is opened anew


class Source(Protocol):
    """An open kernel log: /dev/kmsg or journald."""

    def fileno(self) -> int: ...

    def read(self) -> Batch:
        """What is there now; never waits."""

    def close(self) -> None: ...


Open = Callable[[str], Source]  # cursor -> source; OSError if there is none


class Follower(threading.Thread):
    def __init__(self, open_source: Open, station: Station, pulse: Pulse) -> None:
        super().__init__(name="follower", daemon=True)
        self._open, self._station, self._pulse = open_source, station, pulse
        self._wake_r, self._wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._stopping = False
        self._ear = Ear()
        self._blind = False
        self.lines = 0
        self.lost = 0

    def stop(self) -> None:
        self._stopping = True
        os.write(self._wake_w, b"x")

    def run(self) -> None:
        failures = 0
        while not self._stopping:
            began = time.monotonic()
            try:
                source = self._open(self._station.chart.cursor)
            except OSError as error:
                self._cannot_see(error)
            else:
                self._follow_guarded(source)
                failures = 0 if time.monotonic() - began > AGAIN_S[-1] else failures
            self._wait(AGAIN_S[min(failures, len(AGAIN_S) - 1)])
            failures += 1
        self._pulse.rest("follower")

    def _follow_guarded(self, source: Source) -> None:
        try:
            self._follow(source)
        except Exception:  # our mistake: said, and the log is opened anew after the last line that was judged
            log.exception("following the kernel log broke; it is opened anew")

    def _follow(self, source: Source) -> None:
        self._can_see()
        try:
            poll = select.poll()
            poll.register(source.fileno(), select.POLLIN | select.POLLPRI)
            poll.register(self._wake_r, select.POLLIN)
            while not self._stopping and self._take(source):
                due = self._station.due_s()
                poll.poll(1000.0 * (BEAT_S if due is None else min(due + 0.001, BEAT_S)))
                self._station.flush()
        finally:
            source.close()

    def _take(self, source: Source) -> bool:
        """Everything that is there; False when the source has ended."""
        self._pulse.beat("follower", LATE_S)
        more = True
        while more and not self._stopping:
            batch = source.read()
            self._judge(batch)
            more = batch.more
            if batch.ended:
                return False
        return True

    def _judge(self, batch: Batch) -> None:
        self.lines += len(batch.lines)
        signs = self._ear.hear(batch.lines, time.monotonic())
        if batch.rehearsed:
            signs += self._rehearsed(batch.rehearsed)
        if batch.lost:
            self.lost += batch.lost
            signs.append(_overrun(batch.lost))
        self._station.kernel(signs, batch.cursor)

    def _rehearsed(self, lines: list[bytes]) -> list[Sign]:
        """Heard apart from the kernel's own, so that no real line is ever called a rehearsal, nor the other way."""
        plain = [rehearsal.strip(line.decode("utf-8", "replace")).encode() for line in lines]
        return [rehearsal.said(sign) for sign in Ear().hear(plain, time.monotonic())]

    def _cannot_see(self, error: OSError) -> None:
        self._pulse.beat("follower", LATE_S)
        if not self._blind:
            self._blind = True
            said = f"the kernel log cannot be followed ({error.strerror or error}), so XIDs would not be seen"
            log.error("%s", said)
            self._station.say("kernel-log", [Sign("tool.denied", said, status=Status.UNKNOWN)])

    def _can_see(self) -> None:
        if self._blind:
            self._blind = False
            self._station.say("kernel-log", [Sign("", "the kernel log is followed again", status=Status.OK)])

    def _wait(self, seconds: float) -> None:
        if not self._stopping:
            select.select([self._wake_r], [], [], seconds)


def _overrun(lost: int) -> Sign:
    said = f"the kernel log ran over: {lost} record(s) were gone before they could be read, an XID may be among them"
    return Sign("kernel.log-overrun", said, count=lost)
