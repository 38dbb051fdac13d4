"""What `kubectl describe` says first of our objects, and that their definitions let it through. No cluster is asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from sickbay.model import Action, Blame, Entry, Phase, Place, Recovery, RecoveryPhase, Verb
from sickbay.stores.kubernetes_objects import LONGEST_SHOWN, about, body
from tests.builders import a_recovery
from tests.stores.builders import a_case

WALL = 1_800_000_000.0
CRDS = Path(__file__).parents[2] / "deploy/kubernetes/crds"


def waiting(**changed: Any) -> Recovery:
    journal = (
        Entry(1, "ADOPTED", WALL, "sickbay", "llama runs on 2 nodes", "RUNNING"),
        Entry(2, "DIED", WALL + 60.0, "sickbay", "rank 3 exited with code 1", "STOPPING"),
        Entry(3, "DONE", WALL + 120.0, "sickbay", "stopped on 2 nodes", "WAITING_FOR_CAPACITY"),
    )
    given = {
        "attempt": 3, "restarts": 2, "refusal": "2 good nodes are wanted, and 1 is free", "suspects": ("n2",),
        "blame": Blame.HARDWARE, "journal": journal, "job_step": 1_200, "checkpoint_step": 1_100,
    }  # fmt: skip
    return a_recovery(RecoveryPhase.WAITING_FOR_CAPACITY, **{**given, **changed})


def test_describe_of_a_recovery_says_first_what_its_owner_wants_to_know() -> None:
    assert about(waiting()) == (
        "llama is waiting for nodes that are known to be good since 2027-01-15T08:02:00Z",
        "waits for 2 good nodes are wanted, and 1 is free",
        "attempt 3 (2 restarts); last step seen 1200, begun from checkpoint 1100",
        "2 nodes: n1, n2",
        "not used again for it (blame: hardware): n2",
        "2027-01-15T08:00:00Z RUNNING: llama runs on 2 nodes",
        "2027-01-15T08:01:00Z STOPPING: rank 3 exited with code 1",
        "2027-01-15T08:02:00Z WAITING_FOR_CAPACITY: stopped on 2 nodes",
        "the whole story: sickbay why llama",
    )


def test_a_case_that_a_common_cause_freezes_does_not_say_that_it_waits_for_the_end_of_a_pause() -> None:
    why = "a common cause explains it (driver.1): it is not treated while that case is open"
    frozen = replace(a_case(), phase=Phase.COLLECTING, paused=True)
    assert body(replace(frozen, refusal=why), 1).shown["waiting"] == why
    assert body(frozen, 1).shown["waiting"] == "the end of a pause"


def test_a_case_that_is_over_waits_for_nothing() -> None:
    ended = replace(a_case("gpu-7.3"), paused=True, phase=Phase.DISMISSED)
    assert "waiting" not in body(ended, 1).shown


def test_a_recovery_that_waits_for_an_answer_says_for_which() -> None:
    asked = Action("llama/4", Verb.STOP_JOB, Place(""), nodes=("n1", "n2"))
    assert "waits for STOP_JOB to answer" in about(waiting(refusal="", pending=asked))


def test_a_job_that_tells_no_steps_is_not_said_to_stand_at_step_one() -> None:
    said = about(waiting(job_step=1, checkpoint_step=-1, restarts=1, suspects=(), blame=None))
    assert "attempt 3 (1 restart); it tells no steps" in said
    assert not any("not used again" in line for line in said)


@pytest.mark.parametrize("phase", list(RecoveryPhase))
def test_every_phase_of_a_recovery_is_told_in_words(phase: RecoveryPhase) -> None:
    first = about(replace(waiting(), phase=phase))[0]
    assert first.startswith("llama is ")
    assert phase.value not in first


def test_a_recovery_of_a_thousand_nodes_and_many_lives_is_still_a_few_short_lines() -> None:
    long = Entry(1, "DIED", WALL, "sickbay", "x" * 5_000, "STOPPING")
    names = tuple(f"node-{n:04}" for n in range(1_000))
    said = about(waiting(nodes=names, suspects=names, journal=(long,) * 100, refusal="y" * 5_000))
    assert len(said) <= 16
    assert all(len(line) <= LONGEST_SHOWN for line in said)
    assert said[3].startswith("1000 nodes: node-0000, ")


@pytest.mark.parametrize(("value", "file"), [(a_case("gpu-7.3"), "nodecases"), (waiting(), "jobrecoveries")])
def test_what_is_told_first_is_written_and_the_definition_lets_it_through(value: Any, file: str) -> None:
    """A field that the definition does not name is dropped by the API server without a word."""
    written = body(value, 1).about
    assert written
    definition = yaml.safe_load((CRDS / f"{file}.yaml").read_text())
    field = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["about"]
    assert field["maxItems"] >= len(written)
    assert field["items"]["maxLength"] >= LONGEST_SHOWN
