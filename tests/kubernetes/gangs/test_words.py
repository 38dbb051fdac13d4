"""What a stop leaves behind and what users write, as text that others can change: bounded, never believed blindly."""

from __future__ import annotations

import json

import pytest

from sickbay.kube.objects import ContainerState, ContainerStatus, PodObject, PodStatus, Terminated
from sickbay.model import Checkpoint
from sickbay.platforms.kubernetes.gangs import advice, kinds, ranks, steer, words


def test_what_a_stop_leaves_behind_fits_on_an_object_and_can_be_read_again() -> None:
    nodes = [f"ip-10-{i // 250}-{i % 250}-7.us-west-2.compute.internal" for i in range(2_000)]
    loud = [words.Exit(rank, nodes[rank], 1, ["x" * 400] * 60) for rank in range(64)]
    text = words.stop_text(words.Stop("j#1.7", 1, 5.0, 140, nodes, loud))
    assert len(text) <= words.MOST_RECORD
    stop = words.read_stop(text)
    assert stop is not None
    assert (stop.key, stop.step, stop.nodes, len(stop.exits)) == ("j#1.7", 140, nodes, 64)
    assert sum(len(line) for one in stop.exits for line in one.tail) <= words.MOST_TAILS


def test_every_rank_that_died_has_a_share_of_the_kept_lines_and_the_first_the_largest() -> None:
    loud = [words.Exit(rank, f"n{rank}", 1, ["x" * 100] * 60) for rank in range(6)]
    stop = words.read_stop(words.stop_text(words.Stop("j#1.7", 1, 5.0, 140, [], loud)))
    assert stop is not None
    shares = [len(one.tail) for one in stop.exits]
    assert (max(shares), shares[0], min(shares) >= 9, sum(shares) <= 80) == (20, 20, True, True)
    alone = words.read_stop(words.stop_text(words.Stop("j#1.7", 1, 5.0, 140, [], loud[:1])))
    assert alone is not None
    assert len(alone.exits[0].tail) == 60


def test_the_rank_that_died_first_is_the_first_one_shown() -> None:
    def dead(at: str) -> PodObject:
        over = ContainerState(terminated=Terminated(exit_code=1, finished_at=at))
        return PodObject(
            status=PodStatus(phase="Failed", container_statuses=[ContainerStatus(name="train", state=over)])
        )

    pods = {0: dead("2026-01-01T00:00:09Z"), 1: dead(""), 2: dead("2026-01-01T00:00:03Z"), 3: PodObject()}
    assert [rank for rank, _ in ranks.by_death(pods)] == [2, 0, 1, 3]


@pytest.mark.parametrize("text", ["", "{}", "nonsense", '{"key": 3}', "[" * 10_000, '{"key":"a","attempt":"b"}'])
def test_a_stop_that_somebody_has_written_over_is_none(text: str) -> None:
    assert words.read_stop(text) is None


@pytest.mark.parametrize(
    "text", ["", "5", "{", '["a"]', "[[1e999,0,0]]", "[[-1]]", "[[1,2,3,4]]", "[[null]]", '[["1"]]']
)
def test_checkpoints_that_cannot_be_read_are_none(text: str) -> None:
    assert words.read_checkpoints(text) == ()


def test_only_the_newest_checkpoints_are_kept_oldest_first() -> None:
    many = [[step, float(step), 1] for step in range(100, 0, -1)]
    known = words.read_checkpoints(json.dumps(many))
    assert [c.step for c in known] == list(range(85, 101))
    assert words.read_checkpoints(words.checkpoints_text(known)) == known
    assert known[-1] == Checkpoint(100, 100.0, 1)


@pytest.mark.parametrize(
    ("text", "count"), [("7", 7), (" 12 ", 12), ("-1", 0), ("1e3", 0), ("٧", 0), ("9" * 20, 0), ("", 0)]
)
def test_a_count_that_somebody_wrote_is_plain_digits_or_nothing(text: str, count: int) -> None:
    assert words.number(text) == count


def test_a_job_id_names_its_kind_namespace_and_name() -> None:
    known = kinds.parse("train/pytorchjob/llama")
    assert known is not None
    assert (known[0].kind, known[1], known[2]) == ("PyTorchJob", "train", "llama")
    for strange in ("train", "train/pod/x", "train/job/", "/job/x", "train/job/a/b"):
        assert kinds.parse(strange) is None


def test_a_suspect_is_added_to_every_alternative_of_the_users_own_affinity_and_taken_off_again() -> None:
    mine = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    other = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    affinity = {"nodeAffinity": {steer.REQUIRED: {"nodeSelectorTerms": [dict(mine), dict(other)]}}}
    template = {"spec": {"affinity": affinity}}
    steer.keep_off(template, ["node-1", "node-2"])
    terms = template["spec"]["affinity"]["nodeAffinity"][steer.REQUIRED]["nodeSelectorTerms"]
    assert [[f["values"] for f in term["matchFields"]] for term in terms] == [[["node-1"], ["node-2"]]] * 2
    steer.keep_off(template, ["node-3"])
    terms = template["spec"]["affinity"]["nodeAffinity"][steer.REQUIRED]["nodeSelectorTerms"]
    assert [[f["values"] for f in term["matchFields"]] for term in terms] == [[["node-3"]]] * 2
    steer.keep_off(template, [])
    assert template["spec"]["affinity"]["nodeAffinity"][steer.REQUIRED]["nodeSelectorTerms"] == [mine, other]
    bare: dict[str, dict[str, object]] = {"spec": {}}
    steer.keep_off(bare, ["node-1"])
    steer.keep_off(bare, [])
    assert bare == {"spec": {}}


def test_an_owner_is_told_where_a_sick_node_costs_him_his_own_budget() -> None:
    told = {"sickbay.dev/progress": "annotation"}
    spec = {"backoffLimit": 3, "completionMode": "Indexed", "template": {"spec": {"restartPolicy": "Never"}}}
    plain = {"kind": "Job", "metadata": {"annotations": told}, "spec": spec}
    assert advice.advice(plain) == [
        "a pod that is evicted from a sick node counts against backoffLimit (3): add a podFailurePolicy rule that "
        "ignores DisruptionTarget"
    ]
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    guarded = {**plain, "spec": {**spec, "podFailurePolicy": {"rules": [rule]}}}
    assert not any("backoffLimit" in said for said in advice.advice(guarded))
    jobset = {"kind": "JobSet", "metadata": {"annotations": told}, "spec": {"failurePolicy": {"maxRestarts": 2}}}
    assert "RestartJobSetAndIgnoreMaxRestarts" in advice.advice(jobset)[0]
    assert "is not noticed" in advice.advice({**plain, "metadata": {}})[-1]
