"""EC2 as the second witness about a node that does not answer: what its words mean, and when it is asked at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pytest

from sickbay.kube.objects import NodeObject
from sickbay.platforms.kubernetes import machines
from sickbay.platforms.kubernetes.machines import ec2
from sickbay.platforms.kubernetes.memory import Memory
from sickbay.platforms.kubernetes.watching import Eyes
from tests.kubernetes.ec2 import IMAGE, TYPE, ZONE, patient
from tests.kubernetes.test_views import CLOCK, node_of, shown, site
from tests.moto import Front, ec2_error

AWAY = [{"type": "Ready", "status": "Unknown"}]
MACHINE = "aws:///us-west-2a/i-0123456789abcdef0"
RETIRES = "<item><code>instance-retirement</code><description>{}</description></item>"


def instance(amazon: Front) -> str:
    """A new one's provider id."""
    made = patient(amazon.url).ec2.run_instances(ImageId=IMAGE, InstanceType=TYPE, MinCount=1, MaxCount=1)
    return f"aws:///{ZONE}/{made['Instances'][0]['InstanceId']}"


def said(amazon: Front, *ids: str, **settings: Any) -> list[str]:
    found = machines.what_is_said(site(aws_endpoint=amazon.url, **settings), ids)
    return [found[one] for one in ids]


def edited(old: bytes, new: str) -> Callable[[bytes], bytes]:
    return lambda answer: re.sub(old, new.encode(), answer)


# --- what its words mean ----------------------------------------------------------------------------------------------


def test_a_machine_is_alive_only_if_it_runs_and_passes_both_of_amazons_checks(amazon: Front) -> None:
    one = instance(amazon)
    assert said(amazon, one) == ["running"]
    amazon.edits["DescribeInstanceStatus"] = edited(rb"<status>ok</status>", "<status>impaired</status>")
    assert said(amazon, one) == [""]
    assert amazon.count("DescribeInstanceStatus") == 2


def test_what_is_stopped_is_off_and_what_is_terminated_or_unknown_is_dead(amazon: Front) -> None:
    stopped, ended, runs = instance(amazon), instance(amazon), instance(amazon)
    patient(amazon.url).ec2.stop_instances(InstanceIds=[stopped.rpartition("/")[2]])
    patient(amazon.url).ec2.terminate_instances(InstanceIds=[ended.rpartition("/")[2]])
    nobody = f"aws:///{ZONE}/i-00000000000000000"
    assert said(amazon, stopped, ended, nobody, runs) == ["off", "dead", "dead", "running"]


@pytest.mark.parametrize(
    ("description", "word"), [("its host fails", "retired"), ("[Completed] its host failed", "running")]
)
def test_a_machine_whose_retirement_is_announced_is_retired(amazon: Front, description: str, word: str) -> None:
    one = instance(amazon)
    events = f"<eventsSet>{RETIRES.format(description)}</eventsSet>"
    amazon.edits["DescribeInstanceStatus"] = edited(rb"(<instanceId>i-[0-9a-f]+</instanceId>)", rf"\1{events}")
    assert said(amazon, one) == [word]


def test_a_stopped_machine_that_is_retired_does_not_come_back() -> None:
    one = {"InstanceState": {"Name": "stopped"}, "Events": [{"Code": "instance-stop"}]}
    assert ec2._word(one) == "dead"


@pytest.mark.parametrize("state", ["pending", "stopping", "shutting-down", ""])
def test_what_is_on_its_way_is_no_witness(state: str) -> None:
    assert ec2._word({"InstanceState": {"Name": state}}) == ""


def test_who_cannot_be_asked_is_no_witness(amazon: Front, caplog: pytest.LogCaptureFixture) -> None:
    one = instance(amazon)
    amazon.replies["DescribeInstanceStatus"] = ec2_error("UnauthorizedOperation", "no", 403)
    assert said(amazon, one) == [""]
    assert "1 machines in us-west-2 cannot be asked about" in caplog.text


def test_where_machines_are_not_amazons_nobody_is_asked(amazon: Front) -> None:
    assert said(amazon, MACHINE, machines="node-job") == [""]
    assert said(amazon, "metal3://rack/1") == [""]
    assert amazon.calls == []


# --- when it is asked -------------------------------------------------------------------------------------------------


class Provider:
    """Says the same of everybody, and remembers who was asked about."""

    def __init__(self, word: str) -> None:
        self.word, self.asked = word, list[tuple[str, ...]]()

    def __call__(self, ids: Collection[str]) -> Mapping[str, str]:
        self.asked.append(tuple(ids))
        return dict.fromkeys(ids, self.word)


@pytest.fixture
def provider() -> Provider:
    return Provider("running")


@pytest.fixture
def eyes(provider: Provider) -> Iterator[Eyes]:
    eyes = Eyes(site(), ask_machines=provider)
    yield eyes
    eyes.close()


def away(name: str = "gpu-1", machine: str = MACHINE, **more: Any) -> NodeObject:
    return node_of(name, provider_id=machine, conditions=AWAY, **more)


def test_a_node_that_answers_is_never_asked_about(eyes: Eyes, provider: Provider) -> None:
    eyes._put_node(node_of(provider_id=MACHINE))
    eyes._witness()
    assert provider.asked == []


def test_a_node_that_is_away_is_shown_with_what_its_provider_says(eyes: Eyes, provider: Provider) -> None:
    eyes._put_node(away())
    assert eyes._nodes["gpu-1"].node.machine == ""
    eyes._witness()
    assert provider.asked == [(MACHINE,)]
    assert eyes._nodes["gpu-1"].node.machine == "running"
    eyes._put_node(away())  # a heartbeat of somebody's: what was said still counts
    assert eyes._nodes["gpu-1"].node.machine == "running"
    eyes._put_node(node_of(provider_id=MACHINE))
    assert eyes._nodes["gpu-1"].node.machine == ""


def test_a_word_that_is_taken_back_counts_no_more(eyes: Eyes, provider: Provider) -> None:
    eyes._put_node(away())
    eyes._witness()
    provider.word = ""
    eyes._witness()
    assert eyes._nodes["gpu-1"].node.machine == ""


def test_many_are_asked_about_in_turn_a_hundred_at_a_time(eyes: Eyes, provider: Provider) -> None:
    for n in range(150):
        eyes._put_node(away(f"gpu-{n}", f"aws:///us-west-2a/i-{n:017x}"))
    eyes._witness()
    eyes._witness()
    assert [len(ids) for ids in provider.asked] == [100, 100]
    assert len({*provider.asked[0], *provider.asked[1]}) == 150


def test_what_was_said_of_another_machine_of_that_name_does_not_count() -> None:
    memory = Memory(CLOCK)
    memory.hear_provider("gpu-1", "i-0123456789abcdef0", "running")
    assert shown(away(), memory=memory).machine == "running"
    other = away(machine="aws:///us-west-2a/i-0fedcba9876543210")
    assert shown(other, memory=memory).machine == ""
