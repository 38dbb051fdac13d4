"""Where the agent's words go. A Publisher knows one destination; `lane` gives each its own thread and queue.

One contract suite (tests/agent/test_publishers.py) runs over all. A publisher may wait, fail or hang: that is its own
lane's matter. It must never change what it is given.
"""

from __future__ import annotations

from typing import Protocol

from sickbay.agent.measures import Measures
from sickbay.agent.verdicts import NodeVerdict
from sickbay.model import Report


class Told:
    """A Report with the node's verdict, as the station tells it."""

    __slots__ = ("report", "verdict")

    def __init__(self, report: Report, verdict: NodeVerdict) -> None:
        self.report, self.verdict = report, verdict


Item = Told | Measures


class Publisher(Protocol):
    name: str
    takes: type[Told] | type[Measures]

    def publish(self, item: Item) -> None:
        """Deliver, or keep for later. OSError says that this one could not be delivered."""

    def work(self) -> float | None:
        """What is left from before. Seconds until it wants to be asked again; None: nothing is left."""
        return None

    def figures(self) -> dict[str, float]:
        """What to show in /metrics: sent, failed, dropped ..."""

    def close(self) -> None:
        """Let go of what it holds."""
        return
