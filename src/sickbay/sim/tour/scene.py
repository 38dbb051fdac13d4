"""A scene of the tour: what happens, how it must end, and what was seen. Judged by the world's truth first.

Scenes are in the files beside this one; programme.py says which plays when. A scene never tells the controller anything
that an operator could not have told it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from sickbay.sim.tour.stage import Stage

Number = int | float
FactValue = Number | str


@dataclass(slots=True)
class Seen:
    """What a scene saw: its ending in the words of `Scene.expected`, and claims that must hold besides."""

    ending: str
    claims: list[tuple[str, bool]] = field(default_factory=list)
    facts: dict[str, FactValue] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)

    def claim(self, what: str, holds: bool) -> None:
        self.claims.append((what, bool(holds)))


class Scene(ABC):
    """`begin` is called at the scene's first minute, `judge` once, `lasts_min` virtual minutes later."""

    name: ClassVar[str]
    title: ClassVar[str]
    expected: ClassVar[str]
    lasts_min: ClassVar[float]

    @abstractmethod
    def begin(self, stage: Stage) -> None: ...

    @abstractmethod
    def judge(self, stage: Stage) -> Seen: ...


@dataclass(frozen=True, slots=True)
class Result:
    """One scene as the report shows it."""

    name: str
    title: str
    expected: str
    ending: str
    claims: tuple[tuple[str, bool], ...] = ()
    facts: dict[str, FactValue] = field(default_factory=dict)
    story: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.ending == self.expected and all(holds for _, holds in self.claims)

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name, "title": self.title, "expected": self.expected, "ending": self.ending, "ok": self.ok,
            "checks": [{"what": what, "ok": holds} for what, holds in self.claims],
            "facts": self.facts, "story": list(self.story),
        }  # fmt: skip


def result_of(scene: Scene, seen: Seen) -> Result:
    return Result(
        scene.name, scene.title, scene.expected, seen.ending, tuple(seen.claims), dict(seen.facts), tuple(seen.story)
    )


def and_then(parts: Iterable[str]) -> str:
    return ", then ".join(parts)
