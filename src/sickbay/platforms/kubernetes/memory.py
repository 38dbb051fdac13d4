"""What we time by our own clock because no two machines' clocks may be compared: heartbeats, conditions, leaving pods.

Kept by `Eyes` for the life of the process, handed to views and conditions. Lost at a restart without harm: everything
is then timed from the moment we look again, so nothing becomes due too early. Bounded by what is there: `forget` a node
or pod and it is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sickbay.kube import results
from sickbay.kube.objects import Condition, Meta
from sickbay.model import Report
from sickbay.ports import Clock


@dataclass(frozen=True, slots=True)
class Testimony:
    """What a node's agent wrote on it. Without a report: `readable` tells nothing there from nothing to be believed."""

    report: Report | None = None
    readable: bool = True
    factors: Mapping[str, str] = field(default_factory=dict)  # the report's, which is kept without them
    text: tuple[int, int] = (0, 0)  # length and hash of the annotation it was read from: the text itself is not kept


SILENT = Testimony()


class Memory:
    """Not locked: one owner (`Eyes`) calls it under its own lock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._beats: dict[str, tuple[str, str, float]] = {}  # node -> (uid, label's value, our wall time)
        self._held: dict[str, dict[str, tuple[str, float]]] = {}  # node -> condition -> (which transition, since)
        self._leaving: dict[str, float] = {}  # pod uid -> since
        self._said: dict[str, Testimony] = {}  # node -> what its agent said last
        self._machines: dict[str, tuple[str, str]] = {}  # node that is away -> (its machine, what its provider says)

    def heard(self, node: str, uid: str, value: str) -> float:
        """Our own wall time at which this value of the heartbeat label was first seen; 0.0 when there is none."""
        if not value:
            return 0.0
        known = self._beats.get(node)
        if known is None or known[:2] != (uid, value):
            known = self._beats[node] = (uid, value, self.clock.now())
        return known[2]

    def said(self, node: Meta, key: str) -> Testimony:
        """Read once per change: an agent's heartbeat changes a label, its annotation only when there is news."""
        text = node.annotation(key)
        if not text:
            self._said.pop(node.name, None)
            return SILENT
        mark, known = (len(text), hash(text)), self._said.get(node.name)
        if known is None or known.text != mark:
            report = results.decode(text, node.name, self.clock.now())
            # Without our part it is the original suite's annotation, which is none of our agent's words.
            known = Testimony(text=mark, readable='"report"' not in text)
            if report is not None:
                known = Testimony(replace(report, factors={}), True, report.factors, mark)
            self._said[node.name] = known
        return known

    def held_s(self, node: str, uid: str, condition: Condition) -> float:
        """How long we have watched this condition stand as it does. A transition, or another object, starts anew."""
        which = f"{uid} {condition.status} {condition.last_transition_time}"
        held, now = self._held.setdefault(node, {}), self.clock.monotonic()
        known = held.get(condition.type)
        if known is None or known[0] != which:
            known = held[condition.type] = (which, now)
        return now - known[1]

    def hear_provider(self, node: str, instance: str, word: str) -> None:
        self._machines[node] = (instance, word)

    def machine(self, node: str, instance: str, *, ready: bool) -> str:
        """What its provider said of this machine since it went away; "" of one that answers: it is asked no more."""
        if ready:
            self._machines.pop(node, None)
        known, word = self._machines.get(node, ("", ""))
        return word if known == instance else ""

    def leaving_s(self, pod: str) -> float:
        """How long we have watched this pod leave."""
        now = self.clock.monotonic()
        return now - self._leaving.setdefault(pod, now)

    def forget(self, node: str) -> None:
        self._beats.pop(node, None)
        self._held.pop(node, None)
        self._said.pop(node, None)
        self._machines.pop(node, None)

    def forget_pod(self, pod: str) -> None:
        self._leaving.pop(pod, None)
