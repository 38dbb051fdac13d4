"""A job that uses a part of its nodes needs that part of a node, not an empty one."""

from __future__ import annotations

import pytest

from sickbay.model import JobPhase, Node, Verb
from tests.builders import a_finding, a_job, a_node
from tests.controller.door import Door, Shift


def beside_a_notebook(name: str, taken: int) -> Node:
    return a_node(name, jobs=("lab/pod/notebook",), gpus_allocatable=8, gpus_taken=taken)


def is_restarted(*nodes: Node, gpus_per_rank: int = 2, rank_nodes: tuple[str, ...] = ("n1", "n2")) -> bool:
    job = a_job(JobPhase.STOPPED, stopped_by="drain:n9.1", gpus_per_rank=gpus_per_rank, rank_nodes=rank_nodes)
    return bool(Shift(Door(*nodes, jobs=(job,))).passes(120.0).door.called(Verb.RESTART_JOB))


def test_what_else_lives_on_its_nodes_does_not_keep_a_small_job_waiting() -> None:
    assert is_restarted(beside_a_notebook("n1", 6), beside_a_notebook("n2", 1))


def test_it_waits_while_others_have_the_gpus_that_it_needs() -> None:
    assert not is_restarted(beside_a_notebook("n1", 6), beside_a_notebook("n2", 7))
    assert not is_restarted(beside_a_notebook("n1", 6), beside_a_notebook("n2", 1), rank_nodes=("n1", "n1", "n2"))


def test_another_node_with_room_will_do() -> None:
    assert is_restarted(beside_a_notebook("n1", 6), beside_a_notebook("n2", 8), beside_a_notebook("n3", 4))


def test_a_job_whose_needs_nobody_knows_waits_for_nodes_of_its_own() -> None:
    assert not is_restarted(beside_a_notebook("n1", 1), beside_a_notebook("n2", 1), gpus_per_rank=0)


def test_the_jobs_of_a_node_are_attended_in_its_own_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the order of a set the same seed gave two traces (seed 50000203)."""
    jobs, touched = tuple(f"job-{n}" for n in range(8)), list[str]()
    shift = Shift(Door(a_node(jobs=jobs), jobs=tuple(a_job(id=job) for job in jobs))).passes(60.0)
    monkeypatch.setattr(shift.controller.view, "touch_job", touched.append)
    shift.door.shows("n1", findings=(a_finding(),))
    shift.passes(1.0)
    assert touched[:8] == list(jobs)
