"""The ranks of one attempt as processes: hear them, signal them, and know when nothing more will come from them.

Used by gang.py only. A rank that waits for one we stopped waits for ever, and we know it without waiting ourselves:
ranks say for whom they wait when probed. It must never call a rank stuck that could still move.
"""

from __future__ import annotations

import select
import signal
import time

from sickbay.errors import SickbayError
from sickbay.sim.trainer.member import Member
from sickbay.sim.trainer.nursery import Nursery

PROBE_S = 0.01  # how often a crew with a stopped rank is asked who waits for whom


class Crew:
    def __init__(self, nursery: Nursery, members: list[Member], granted: int, last: int) -> None:
        self.nursery, self.members = nursery, members
        self.granted, self.last = granted, last  # how far they may run now, and their last step

    def living(self) -> list[Member]:
        return [member for member in self.members if not member.gone]

    def idle(self) -> bool:
        """All there, at the same step boundary, waiting for a grant."""
        return all(member.step == self.granted < self.last and not member.stopped for member in self.living()) and (
            len(self.living()) == len(self.members) > 0
        )

    # --- hearing

    def hear(self, wait_s: float) -> None:
        poll = select.poll()
        talking = {member.lines.fileno(): member for member in self.living()}
        for descriptor in talking:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(wait_s * 1000) if talking else ():
            if not talking[descriptor].hear():
                self.reap(talking[descriptor])

    def settle(self, timeout_s: float) -> None:
        """Until every rank is done with what it was granted, dead, stopped, or stuck behind a stopped one."""
        deadline, next_probe = time.monotonic() + timeout_s, 0.0
        while running := [member for member in self.members if not self._settled(member)]:
            now = time.monotonic()
            if now >= deadline:
                return
            probing = any(member.stopped for member in self.members)
            if probing and now >= next_probe:
                for member in running:
                    member.lines.send("probe")
                next_probe = now + PROBE_S
            self.hear(min(deadline - now, PROBE_S) if probing else deadline - now)

    def _settled(self, member: Member) -> bool:
        """Nothing more will come from it. After its last step a rank saves and exits, which is worth waiting for."""
        if member.gone or member.stopped:
            return True
        return self.granted <= member.step < self.last or self.stuck(member)

    def stuck(self, member: Member) -> bool:
        """It waits for a rank that we stopped, or for one that waits for such a rank."""
        seen: set[int] = set()
        while not (member.stopped or member.gone):
            peer = member.waits_for()
            if peer is None or peer < 0 or peer in seen:
                return False
            seen.add(peer)
            member = self.members[peer]
        return member.stopped and bool(seen)

    # --- signals

    def grant(self, member: Member) -> None:
        if not (member.gone or member.stopped):
            member.lines.send(f"grant {self.granted}")

    def freeze(self, members: list[Member]) -> None:
        for member in members:
            if not (member.stopped or member.gone):
                self._signal(member, signal.SIGSTOP)
                member.stopped = not member.gone

    def thaw(self, members: list[Member]) -> None:
        for member in members:
            self._signal(member, signal.SIGCONT)
            member.stopped = False

    def end(self, members: list[Member], by: signal.Signals) -> None:
        """All of them by this signal; frozen first, so that none dies of another's closed socket before its turn."""
        self.freeze(members)
        for number in (by, signal.SIGCONT):
            for member in members:
                self._signal(member, number)
        for member in members:
            self.reap(member)

    def _signal(self, member: Member, number: signal.Signals) -> None:
        if member.gone:
            return
        try:
            code = self.nursery.signal(member.pid, number)
        except SickbayError:
            code = -signal.SIGKILL  # the forker is gone and took every rank with it
        if code is not None:
            member.end(code)

    def reap(self, member: Member) -> None:
        if member.gone:
            return
        try:
            code = self.nursery.reap(member.pid)
        except SickbayError:
            code = -signal.SIGKILL
        member.end(code)
