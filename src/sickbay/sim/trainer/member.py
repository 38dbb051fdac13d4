"""One rank as its Gang sees it: its process, its line, its heartbeat, what it waits for.

Used by gang.py only. It must never decide anything: it remembers what was heard.
"""

from __future__ import annotations

from sickbay.sim.trainer.lines import Lines


class Member:
    def __init__(self, rank: int, pid: int, lines: Lines, step: int) -> None:
        self.rank, self.pid, self.lines, self.step = rank, pid, lines, step
        self.up = False
        self.stopped = False  # by us, with SIGSTOP
        self.gone = False
        self.code: int | None = None
        self.saved = -1  # step it was asked to save, when that is on disk
        self.waits: list[int] = []  # the peer it named in the newest probes, no step in between
        self.expired_at = -1  # step at which the watchdog last spoke

    def hear(self) -> bool:
        """Take in what the rank says; False when its line has closed."""
        heard = self.lines.receive()
        for line in heard or ():
            self._note(line.split())
        return heard is not None

    def _note(self, words: list[str]) -> None:
        match words:
            case ["up"]:
                self.up = True
            case ["step", step]:
                self.step = int(step)
                self.waits.clear()
            case ["waiting", peer]:
                self.waits = [*self.waits[-1:], int(peer)]
            case ["saved", step]:
                self.saved = int(step)
            case ["expired"]:
                self.expired_at = self.step

    def waits_for(self) -> int | None:
        """The peer that it named twice in a row: once may be a moment's delay."""
        return self.waits[0] if len(self.waits) == 2 and self.waits[0] == self.waits[1] else None

    def has_expired(self) -> bool:
        """The watchdog has spoken since the last step."""
        return self.expired_at == self.step

    def end(self, code: int | None) -> None:
        self.gone, self.code, self.stopped = True, code, False
        self.lines.close()
