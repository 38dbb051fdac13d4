"""What a checker is: fed every new Fact, looked at after each turn, asked once at the end. See `Judge`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sickbay.sim.world import Fact

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge


class Checker:
    def __init__(self, judge: Judge) -> None:
        self.judge, self.run, self.world = judge, judge.run, judge.run.world

    def fact(self, fact: Fact) -> None:
        """One thing that truly happened."""

    def moment(self) -> None:
        """After each turn of a brain."""

    def end(self) -> None:
        """After the calm."""
