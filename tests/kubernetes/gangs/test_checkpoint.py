"""CHECKPOINT_JOB: a job is asked to save, and is known to have saved."""

from __future__ import annotations

import json

import pytest

from sickbay.kube import names
from sickbay.kube.objects import JobObject
from sickbay.model import Action, Done, Failed, Outcome, Place, Started, Verb
from sickbay.platforms.kubernetes.gangs import checkpoint
from sickbay.platforms.kubernetes.gangs.checkpoint import Request, checkpoint_job
from sickbay.platforms.kubernetes.gangs.read import Found
from sickbay.platforms.kubernetes.site import Site
from tests.kubernetes.gangs.ground import Ground
from tests.kubernetes.gangs.test_progress import Trainer, at_loopback, trainer

__all__ = ["trainer"]


def ask(ground: Ground, node: str, **args: str) -> Outcome:
    action = Action(f"{node}.1/4", Verb.CHECKPOINT_JOB, Place(node), args)
    return checkpoint_job(ground.site, action)


def test_a_job_is_asked_by_annotation_and_done_when_a_newer_checkpoint_is_complete(ground: Ground) -> None:
    ground.nodes(2)
    job = ground.running(ground.job(annotations={"sickbay.dev/checkpoint-saved": "50"}))
    node = job.nodes[0]
    assert isinstance(ask(ground, node, jobs=job.id), Started)
    wish = json.loads(ground.object(job.id)["metadata"]["annotations"]["sickbay.dev/checkpoint-requested"])
    assert (wish["key"], wish["newest"]) == (f"{node}.1/4", 50)
    assert isinstance(ask(ground, node), Started)  # by its node, and not twice
    again = json.loads(ground.object(job.id)["metadata"]["annotations"]["sickbay.dev/checkpoint-requested"])
    assert again == wish
    ground.patch(job.id, {"metadata": {"annotations": {"sickbay.dev/checkpoint-saved": "63"}}})
    outcome = ask(ground, node)
    assert outcome == Done(f"{job.id} has saved step 63")
    saved = ground.show(job.id).checkpoint
    assert saved is not None
    assert saved.step == 63


def test_two_cases_on_one_gang_wait_for_the_same_save(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each writing its own request in turns, neither would ever see a save that is newer than its own."""
    ground.nodes(2)
    job = ground.running(ground.job(annotations={"sickbay.dev/checkpoint-saved": "50"}))
    written, write = list[str](), checkpoint._write

    def counted(site: Site, found: Found, wish: Request) -> None:
        written.append(wish.key)
        write(site, found, wish)

    monkeypatch.setattr(checkpoint, "_write", counted)
    for _ in range(3):
        for node in job.nodes[:2]:
            assert isinstance(ask(ground, node, jobs=job.id), Started)
    ground.patch(job.id, {"metadata": {"annotations": {"sickbay.dev/checkpoint-saved": "63"}}})
    for node in job.nodes[:2]:
        assert ask(ground, node, jobs=job.id) == Done(f"{job.id} has saved step 63")
    assert len(written) == 2
    later = Action("n9.4/4", Verb.CHECKPOINT_JOB, Place("n9"), {"jobs": job.id})
    assert isinstance(checkpoint_job(ground.site, later), Started)  # what is answered is asked anew


def test_a_job_is_asked_at_its_own_address(ground: Ground, trainer: Trainer) -> None:
    ground.nodes(1)
    job = ground.running(ground.job(ranks=1, annotations={"sickbay.dev/checkpoint": f"hook:{trainer.port}/save"}))
    at_loopback(ground)
    assert isinstance(ask(ground, job.nodes[0]), Started)
    assert trainer.posted == 1


def test_a_job_is_signalled_by_a_job_on_its_node(ground: Ground) -> None:
    ground.nodes(1)
    job = ground.running(ground.job(ranks=1, annotations={"sickbay.dev/checkpoint": "signal"}))
    uid = ground.pod_on(job.nodes[0]).metadata.uid
    assert isinstance(ask(ground, job.nodes[0]), Started)
    sent = [j for j in ground.api.list(names.jobs(ground.namespace), JobObject) if "signal" in j.metadata.name]
    (command,) = [j.spec["template"]["spec"]["containers"][0]["command"] for j in sent]
    assert command[:3] == ["sickbay", "node", "signal"]
    assert command[-2:] == ["--pod", uid]
    assert [shown.id for shown in ground.gangs().all() if shown.id.startswith(ground.namespace)] == [job.id]


def test_a_job_that_does_not_want_to_be_asked_or_has_not_opted_in_is_not(ground: Ground) -> None:
    ground.nodes(2)
    plain = ground.running(ground.job("plain", 1, labels={}))
    never = ground.running(ground.job("never", 1, annotations={"sickbay.dev/checkpoint": "none"}))
    for job in (plain, never):
        outcome = ask(ground, job.nodes[0], jobs=job.id)
        assert isinstance(outcome, Failed)
        assert "cannot be asked to save" in outcome.why
        notes = ground.object(job.id)["metadata"].get("annotations") or {}
        assert "sickbay.dev/checkpoint-requested" not in notes
    assert ask(ground, "", jobs="nobody/job/here") == Done("nobody/job/here is not there")
