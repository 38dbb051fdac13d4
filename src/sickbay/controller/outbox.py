"""Notices out of the door, at least once to each notifier, without ever holding up the loop.

The loop calls `put` (a dictionary insert) for what its records still carry, and removes from those records the keys
that `pump` reports as delivered. The records are the truth: nothing here survives a restart, and nothing needs to.
`pump` is single-threaded: the simulator calls it, the real shell runs `serve` in a thread. It must never raise.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol

from sickbay.core import bystander, explain
from sickbay.model import Done, Failed, Notice, Outcome, Retry, Started
from sickbay.ports import Clock, Notifier

FIRST_WAIT_S = 5.0
LONGEST_WAIT_S = 300.0
GIVE_UP_S = 86_400.0  # a notifier that has failed for a day no longer holds back a notice that others have delivered
REFUSALS = 5  # Failed answers after which a notifier is not asked again about one notice
BATCH = 64  # sends to one notifier in one pump
_LEVELS = {"urgent": 0, "warning": 1}


class Post(Protocol):
    """What the loop knows of an outbox: hand notices in, hear which have been delivered. Neither waits for anybody."""

    def put(self, notices: Iterable[Notice]) -> int: ...

    def pump(self, now: float) -> list[str]: ...


@dataclass(slots=True)
class _Letter:
    """One notice on its way: which notifiers still owe it, and since when."""

    notice: Notice
    owed: dict[str, int]  # notifier -> how often it refused this notice
    since: float | None = None
    due: dict[str, float] = field(default_factory=dict)
    sent: bool = False  # at least one notifier has it
    more: list[Notice] = field(default_factory=list)  # that were gathered into it
    ripe: float = float("-inf")  # not sent before: more about the same case, or more alike, may come


@dataclass(slots=True)
class _Line:
    """The state of one notifier: a failing one rests as a whole, so an outage costs one call per wait."""

    fails: int = 0
    due: float = float("-inf")
    last_problem: str = ""


class Outbox:
    def __init__(
        self, notifiers: Sequence[Notifier], *, capacity: int = 10_000, remember: int = 10_000, gather_s: float = 0.0
    ) -> None:
        """`gather_s`: notices about one case that come within so many seconds are told as one; urgent ones never
        wait. Those that are alike, urgent or not, wait for each other as what nobody may touch (core/bystander.py)."""
        self._notifiers = {notifier.name: notifier for notifier in notifiers}
        self._lines = {name: _Line() for name in self._notifiers}
        self._capacity, self._remember, self._gather_s = capacity, remember, gather_s
        self._open: dict[str, str] = {}  # what it is about -> key of the letter that still gathers
        self._closed: dict[str, list[float]] = {}  # what is alike -> when its messages of the last hour went out
        self._gathered: set[str] = set()  # keys that live in another one's letter
        self._waiting: dict[str, _Letter] = {}
        self._delivered: OrderedDict[str, None] = OrderedDict()
        self._again: dict[str, None] = {}  # delivered before, and put again: the caller has not heard
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._last, self._skew = float("-inf"), 0.0

    def put(self, notices: Iterable[Notice]) -> int:
        """Take notices that are not here yet; returns how many. A full box takes none: put them again later."""
        taken = 0
        with self._lock:
            for notice in notices:
                taken += self._take(notice)
        if taken or self._again:
            self._news.set()
        return taken

    def pump(self, now: float) -> list[str]:
        """Send what is due, then return the keys of notices that no longer need to be kept. Never raises."""
        now = self._steady(now)
        for name in self._notifiers:
            for letter in self._due(name, now):
                if not self._send(name, letter, now):
                    break
        return self._settled(now)

    def next_due(self) -> float | None:
        """When pump has work again; None when nothing waits. May be in the past."""
        with self._lock:
            if self._again or not self._notifiers:
                return float("-inf") if self._again or self._waiting else None
            due = [self._due_at(name, letter) for letter in self._waiting.values() for name in letter.owed]
            return min(due) - self._skew if due else None

    def waiting(self) -> int:
        return len(self._waiting)

    def problems(self) -> dict[str, str]:
        """Notifiers that do not work just now, and what they said."""
        return {name: line.last_problem for name, line in self._lines.items() if line.last_problem}

    def serve(self, clock: Clock, stop: threading.Event, delivered: Callable[[list[str]], object]) -> None:
        """The thread of the real shell: pump until stopped, asleep when there is nothing to do."""
        while not stop.is_set():
            self._news.clear()
            if keys := self.pump(clock.monotonic()):
                delivered(keys)
            due = self.next_due()
            wait = 1.0 if due is None else min(max(due - clock.monotonic(), 0.01), 1.0)
            self._news.wait(wait)

    def _steady(self, now: float) -> float:
        """A clock that was set back must not make a wait longer: for us it stands still meanwhile."""
        self._skew += max(0.0, self._last - now) if self._last > float("-inf") else 0.0
        self._last = now
        return now + self._skew

    # --- taking -------------------------------------------------------------------------------------------------------

    def _take(self, notice: Notice) -> bool:
        if notice.key in self._delivered:
            self._again[notice.key] = None
            return False
        if notice.key in self._waiting or notice.key in self._gathered or len(self._waiting) >= self._capacity:
            return False
        letter = self._waiting.get(self._open.get(_subject(notice), ""))
        if letter is not None and (notice.alike or len(letter.more) < BATCH):
            letter.notice = letter.notice if notice.alike else _one(letter.notice, notice)
            letter.more.append(notice)
            self._gathered.add(notice.key)
            return True
        now = self._last + self._skew
        wait_s = self._wait_s(notice, now)
        self._waiting[notice.key] = _Letter(notice, dict.fromkeys(self._notifiers, 0), ripe=now + wait_s)
        if wait_s:
            self._open[_subject(notice)] = notice.key
        return True

    def _wait_s(self, notice: Notice, now: float) -> float:
        if notice.alike:
            return bystander.wait_s(self._closed.get(notice.alike, ()), now)
        return self._gather_s if notice.case else 0.0

    def _is_ripe(self, letter: _Letter, now: float) -> bool:
        """With the lock held. Once it is, nothing more is put into it."""
        if _may_wait(letter.notice) and now < letter.ripe:
            return False
        if self._open.get(_subject(letter.notice)) == letter.notice.key:
            del self._open[_subject(letter.notice)]
            self._close(letter, now)
        return True

    def _close(self, letter: _Letter, now: float) -> None:
        """Those that are alike become one message when no more can come: each for itself would cost their square."""
        if kind := letter.notice.alike:
            lately = {k: [at for at in times if now - at < bystander.HOUR_S] for k, times in self._closed.items()}
            self._closed = {k: times for k, times in lately.items() if times}
            self._closed.setdefault(kind, []).append(now)
            letter.notice = explain.alike([letter.notice, *letter.more])

    # --- sending ------------------------------------------------------------------------------------------------------

    def _due_at(self, name: str, letter: _Letter) -> float:
        waits = letter.ripe if _may_wait(letter.notice) else float("-inf")
        return max(self._lines[name].due, letter.due.get(name, float("-inf")), waits)

    def _due(self, name: str, now: float) -> list[_Letter]:
        if not self._waiting or self._lines[name].due > now:
            return []
        with self._lock:
            due = [box for box in self._waiting.values() if name in box.owed and box.due.get(name, now) <= now]
            due = [box for box in due if self._is_ripe(box, now)]
        due.sort(key=lambda letter: _LEVELS.get(letter.notice.level, 2))  # stable: oldest first within a level
        return list(islice(due, BATCH))

    def _send(self, name: str, letter: _Letter, now: float) -> bool:
        """True while this notifier is worth another call in this pump."""
        letter.since = now if letter.since is None else letter.since
        answer = _ask(self._notifiers[name], letter.notice)
        line = self._lines[name]
        if isinstance(answer, Done):
            line.fails, line.last_problem = 0, ""
            letter.sent = True
            letter.owed.pop(name, None)
            return True
        if isinstance(answer, Started):
            letter.due[name] = now + _sane(answer.after_s)
            return True
        line.last_problem = getattr(answer, "why", "") or type(answer).__name__
        if isinstance(answer, Failed):  # about this notice: others may still pass
            letter.owed[name] += 1
            letter.due[name] = now + _back_off(letter.owed[name])
            return True
        line.fails += 1
        asked = _sane(answer.after_s) if isinstance(answer, Retry) else 0.0
        line.due = now + max(asked, _back_off(line.fails))
        return False

    # --- settling -----------------------------------------------------------------------------------------------------

    def _settled(self, now: float) -> list[str]:
        if not (self._waiting or self._again):
            return []
        with self._lock:
            done = [key for key, letter in self._waiting.items() if self._is_settled(letter, now)]
            done += [notice.key for first in done for notice in self._waiting.pop(first).more]
            self._gathered.difference_update(done)
            self._open = {about: key for about, key in self._open.items() if key in self._waiting}
            self._delivered.update(dict.fromkeys(done))
            again = [key for key in self._again if key not in done]
            self._again.clear()
            while len(self._delivered) > self._remember:
                self._delivered.popitem(last=False)
        return done + again

    def _is_settled(self, letter: _Letter, now: float) -> bool:
        """Everybody has it, or somebody has it and the others have been given up. Undelivered to all: never settled."""
        if not letter.owed:
            return True
        old = letter.since is not None and now - letter.since >= GIVE_UP_S
        return letter.sent and (old or all(refusals >= REFUSALS for refusals in letter.owed.values()))


def _subject(notice: Notice) -> str:
    return notice.alike or notice.case


def _may_wait(notice: Notice) -> bool:
    """What is urgent waits only for its like: a minute, for the same words about another node."""
    return notice.level != "urgent" or bool(notice.alike)


def _one(first: Notice, then: Notice) -> Notice:
    """Both under the first one's key: the newest title, the worse level, what happened in its order."""
    level = min(first.level, then.level, key=lambda level: _LEVELS.get(level, 2))
    return replace(then, key=first.key, level=level, body=f"{first.body}\n\n{then.title}\n{then.body}", at=first.at)


def _ask(notifier: Notifier, notice: Notice) -> Outcome:
    try:
        return notifier.send(notice)
    except Exception as error:  # a broken notifier must not stop the others, nor the loop
        return Retry(0.0, f"{type(error).__name__}: {error}")


def _back_off(fails: int) -> float:
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(fails - 1, 10))


def _sane(seconds: float) -> float:
    """A notifier may ask for a wait, not for ever."""
    return min(max(seconds, 0.0), 3_600.0) if seconds == seconds else 0.0
