"""One forker for the whole folder: numpy is imported once, a gang is up in a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sickbay.sim.trainer import Gang, Nursery

MakeGang = Callable[..., Gang]


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
def make_gang(tmp_path: Path, nursery: Nursery) -> Iterator[MakeGang]:
    """A gang of 3 ranks, 30 steps, a checkpoint every 10, unless told otherwise; stopped when the test ends."""
    made: list[Gang] = []

    def make(job: str = "job", ranks: int = 3, **more: Any) -> Gang:
        given = {"seed": 7, "total_steps": 30, "checkpoint_every": 10, "nursery": nursery, **more}
        made.append(Gang(tmp_path, job, ranks, **given))
        return made[-1]

    yield make
    for gang in made:
        gang.stop()
