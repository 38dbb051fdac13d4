"""instance-events: what EC2 announced, when, and nothing at all elsewhere."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.catalog import load
from sickbay.checks import instance_events
from sickbay.checks.run import run
from sickbay.checks.signs import Ask, Reading
from sickbay.identity.metadata import IMDS
from sickbay.model import Finding, Severity, Status
from sickbay.ports import Completed
from tests.checks.hosts import SpokenHost
from tests.fuzzing import EXAMPLES, FORMS, forms


def event(code: str, **changed: str) -> dict[str, str]:
    made = {
        "NotBefore": "21 Jan 2027 09:00:43 GMT", "NotAfter": "21 Jan 2027 09:17:23 GMT", "Code": code,
        "Description": "scheduled", "EventId": "instance-event-0d59937288b749b32", "State": "active",
    }  # fmt: skip
    return {**made, **changed}


def looked(scheduled: object = (), token: str = "t", **pages: str) -> list[Finding]:
    host = SpokenHost(files={"/sys/class/dmi/id/sys_vendor": "Amazon EC2\n"})
    if token:
        host.pages[f"PUT {IMDS}/latest/api/token"] = token
        text = scheduled if isinstance(scheduled, str) else json.dumps(scheduled)
        host.pages[f"{IMDS}/latest/meta-data/{instance_events.SCHEDULED}"] = text
        host.pages |= {f"{IMDS}/latest/meta-data/{path}": body for path, body in pages.items()}
    return run(host, ["instance-events"], load(), at=0.0)


def test_nothing_announced_is_well() -> None:
    assert [f.status for f in looked([])] == [Status.OK]


def test_a_retirement_says_what_and_when_and_waits_for_the_node_to_be_empty() -> None:
    (found,) = looked([event("instance-retirement")])
    assert (found.code, found.severity) == ("ec2.retirement-scheduled", Severity.REPLACE)
    assert found.reason == "EC2 will retire this instance: its host is failing, from 21 Jan 2027 09:00:43 GMT"
    assert load().faults["retirement-scheduled"].when.value == "idle"
    assert found.traits["not_before"] == "21 Jan 2027 09:00:43 GMT"


@pytest.mark.parametrize(
    ("code", "ours"),
    [
        ("system-reboot", "ec2.reboot-scheduled"),
        ("instance-reboot", "ec2.reboot-scheduled"),
        ("system-maintenance", "ec2.maintenance-scheduled"),
        ("something-new", "ec2.event"),
    ],
)
def test_a_reboot_and_maintenance_are_announced_and_treat_no_node(code: str, ours: str) -> None:
    (found,) = looked([event(code)])
    assert (found.code, found.severity) == (ours, Severity.MONITOR)


@pytest.mark.parametrize("over", [{"State": "completed"}, {"State": "canceled"}, {"Description": "[Completed] done"}])
def test_what_is_over_or_cancelled_is_no_finding(over: dict[str, str]) -> None:
    assert [f.status for f in looked([event("instance-stop", **over)])] == [Status.OK]


def test_a_spot_interruption_goes_before_the_advice_that_one_may_come() -> None:
    action = json.dumps({"action": "terminate", "time": "2027-01-21T09:02:00Z"})
    advice = json.dumps({"noticeTime": "2027-01-21T08:22:00Z"})
    both = {instance_events.SPOT: action, instance_events.REBALANCE: advice}
    (found,) = looked([], **both)
    assert found.reason == "EC2 takes this Spot instance back (terminate) at 2027-01-21T09:02:00Z"
    (found,) = looked([], **{instance_events.REBALANCE: advice})
    assert found.code == "ec2.spot-rebalance"


def test_off_ec2_nothing_is_asked_and_all_is_well() -> None:
    class Silent(SpokenHost):
        def fetch(self, *args: object, **named: object) -> str | None:
            raise AssertionError("asked")

    for vendor in ({}, {"/sys/class/dmi/id/sys_vendor": "Supermicro"}):
        (found,) = run(Silent(files=dict(vendor)), ["instance-events"], load(), at=0.0)
        assert found.status is Status.OK


def test_a_blocked_metadata_service_is_unknown_and_says_what_to_do() -> None:
    """originals 003.5 #3: with a hop limit of 1 the node was silently unprotected."""
    (found,) = looked(token="")
    assert (found.status, found.severity) == (Status.UNKNOWN, Severity.NONE)
    assert "HttpPutResponseHopLimit" in found.reason


def test_an_answer_nobody_can_read_is_unknown() -> None:
    assert [f.status for f in looked("<html>")] == [Status.UNKNOWN]


some_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["Code", "State", "Description", "NotBefore", "action", "time"]), inner)
    ),
    max_leaves=8,
)


@given(some_json, st.text(max_size=40))
@settings(max_examples=EXAMPLES // FORMS, deadline=None)
def test_fuzz_any_announcement_is_judged_and_only_a_retirement_replaces(data: object, text: str) -> None:
    places = ((instance_events.SCHEDULED, instance_events.SPOT), (instance_events.SPOT, instance_events.SCHEDULED))
    bodies = [{"ec2": "yes", one: said, other: text} for said in forms(json.dumps(data)) for one, other in places]
    for body in bodies:
        for sign in instance_events.judge(Reading(Completed(0, "", ""), files=body), Ask()):
            assert sign.reason
            assert sign.code != "ec2.retirement-scheduled"
