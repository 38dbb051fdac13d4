"""One forker for the whole folder: numpy is imported once, a gang is up in a moment."""

from __future__ import annotations

import shutil
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


@pytest.fixture(scope="session")
def job_at_25(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Path:
    """What a gang of 3 left on disk when it was stopped at step 25: complete checkpoints at 10 and 20."""
    gang = Gang(tmp_path_factory.mktemp("left"), "job", 3, seed=7, total_steps=30, checkpoint_every=10, nursery=nursery)
    gang.start(1, None)
    gang.grant(25)
    gang.stop()
    return gang.jobdir


@pytest.fixture
def left_at_25(job_at_25: Path, make_gang: MakeGang) -> Gang:
    gang = make_gang()
    shutil.copytree(job_at_25, gang.jobdir)
    return gang


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
