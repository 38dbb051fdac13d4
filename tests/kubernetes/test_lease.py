"""One brain at a time, on a real Lease: races, kills, outages and clocks that disagree."""

from __future__ import annotations

import math
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

import pytest

from sickbay.kube import names
from sickbay.kube.api import Api, open_api
from sickbay.kube.lease import HOLD, PATIENCE, LeaseLeader
from sickbay.kube.objects import LeaseObject
from testbed.cluster import Cluster
from testbed.waiting import until

LEASE_S = 2.5  # short, and long enough for a machine that is busy with four such tests at once


class Candidate(Protocol):
    def __call__(self, identity: str, through: Api | None = None, /, **more: object) -> LeaseLeader: ...


@pytest.fixture
def candidate(api: Api, namespace: str) -> Iterator[Candidate]:
    made: list[LeaseLeader] = []

    def candidate(identity: str, through: Api | None = None, /, **more: object) -> LeaseLeader:
        made.append(LeaseLeader(through or api, namespace, "sickbay", identity, LEASE_S, **more))  # type: ignore[arg-type]
        return made[-1]

    yield candidate
    for leader in made:
        leader.release()


@pytest.fixture
def lease(api: Api, namespace: str) -> Callable[[], LeaseObject]:
    return lambda: api.get(names.lease(namespace, "sickbay"), LeaseObject)


def _leads_for(leader: LeaseLeader, seconds: float) -> bool:
    """Asked on every pass, as the controller does: does it lead all that time?"""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not leader.acquire():
            return False
        time.sleep(0.02)
    return True


def test_of_two_candidates_one_leads_and_stays(candidate: Candidate, lease: Callable[[], LeaseObject]) -> None:
    ours, theirs = candidate("ours"), candidate("theirs")
    assert ours.acquire()
    assert not theirs.acquire()
    assert _leads_for(ours, LEASE_S * 1.2)
    assert not theirs.acquire()
    spec = lease().spec
    assert spec.holder_identity == ours.identity == theirs.holder()
    assert (spec.lease_duration_seconds, spec.lease_transitions) == (math.ceil(LEASE_S), 1)


def test_of_many_who_try_in_the_same_moment_one_leads(candidate: Candidate) -> None:
    rivals = [candidate(f"rival-{number}") for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(LeaseLeader.acquire, rivals)) == 1


def test_a_lead_that_is_let_go_is_taken_at_once(candidate: Candidate, lease: Callable[[], LeaseObject]) -> None:
    ours, theirs = candidate("ours"), candidate("theirs")
    assert ours.acquire()
    assert not theirs.acquire()
    ours.release()
    began = time.monotonic()
    until(theirs.acquire, "the other one leads", every_s=0.02)
    assert time.monotonic() - began < LEASE_S * HOLD
    assert not ours.acquire()
    assert lease().spec.lease_transitions == 2


def test_releasing_twice_or_without_a_lead_hurts_nobody(candidate: Candidate) -> None:
    ours, theirs = candidate("ours"), candidate("theirs")
    assert ours.acquire()
    theirs.release()
    assert ours.acquire()
    ours.release()
    ours.release()
    assert theirs.acquire()


def test_asking_costs_no_request_while_the_lease_is_young(
    candidate: Candidate, cluster: Cluster, namespace: str
) -> None:
    ours = candidate("ours")
    assert ours.acquire()
    mark = cluster.audit_mark()
    assert _leads_for(ours, LEASE_S)
    asked = cluster.audit(mark, resource="leases", namespace=namespace)
    assert 1 <= len(asked) <= 4  # one in every third of the lease, for about fifty asks


HOLDER = """
import sys, time
from sickbay.kube.api import open_api
from sickbay.kube.lease import LeaseLeader
leader = LeaseLeader(open_api(sys.argv[1]), sys.argv[2], "sickbay", "another", float(sys.argv[3]))
while True:
    print(leader.acquire(), flush=True)
    time.sleep(0.05)
"""


def test_a_leader_killed_in_the_middle_is_replaced_within_the_lease(
    candidate: Candidate, cluster: Cluster, namespace: str
) -> None:
    """The bar: takeover within lease_s of a kill -9."""
    argv = [sys.executable, "-c", HOLDER, str(cluster.kubeconfig), namespace, str(LEASE_S)]
    holder = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    standby = candidate("standby")
    assert not standby.acquire()
    holder.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    holder.communicate()
    until(standby.acquire, "the standby leads", every_s=0.02)
    assert time.monotonic() - killed <= LEASE_S * 1.5  # the machine that tests may be busy


@pytest.mark.parametrize("skew_s", [-86_400.0, 86_400.0], ids=["a day behind", "a day ahead"])
def test_clocks_that_disagree_change_nothing(candidate: Candidate, skew_s: float) -> None:
    """Only times of one clock are compared: a rival a day off neither steals the lead nor waits a day."""
    ours, theirs = candidate("ours", unattended_s=0.1), candidate("theirs", wall=lambda: time.time() + skew_s)
    assert ours.acquire()
    end = time.monotonic() + LEASE_S * 1.2
    while time.monotonic() < end:
        assert ours.acquire()
        assert not theirs.acquire()
        time.sleep(0.02)
    stopped = time.monotonic()  # ours does not ask any more
    until(theirs.acquire, "the other one leads", every_s=0.02)
    assert time.monotonic() - stopped >= LEASE_S * (PATIENCE - HOLD)  # its last renewal may be as old as that


def test_a_leader_that_cannot_reach_the_server_stops_before_another_begins(
    candidate: Candidate, cluster: Cluster
) -> None:
    """Nobody tells it: the connection is open and silent. It goes by its own clock."""
    with cluster.proxy() as proxy:
        ours, theirs = candidate("ours", open_api(str(proxy.kubeconfig))), candidate("theirs")
        assert ours.acquire()
        assert not theirs.acquire()
        proxy.freeze()
        with ThreadPoolExecutor(2) as pool:
            led = pool.submit(_last_moment, ours)
            began = pool.submit(_first_moment, theirs)
        assert led.result() < began.result()
        proxy.thaw()
        assert not ours.acquire()


def _last_moment(leader: LeaseLeader) -> float:
    """When it last said that it leads."""
    said = 0.0
    while leader.acquire():
        said = time.monotonic()
        time.sleep(0.01)
    return said


def _first_moment(leader: LeaseLeader) -> float:
    until(leader.acquire, "it leads", every_s=0.01)
    return time.monotonic()


def test_a_long_pass_loses_no_lead(candidate: Candidate) -> None:
    """A takeover of thousands of records takes longer than the lease, and asks nobody meanwhile."""
    ours, theirs = candidate("ours"), candidate("theirs")
    assert ours.acquire()
    end = time.monotonic() + LEASE_S * 1.5
    while time.monotonic() < end:
        assert not theirs.acquire()
        time.sleep(0.05)
    assert ours.acquire()


def test_a_controller_that_hangs_loses_the_lead(candidate: Candidate) -> None:
    ours, theirs = candidate("ours", unattended_s=0.1), candidate("theirs")
    assert ours.acquire()
    until(theirs.acquire, "the other one leads", every_s=0.05)
    assert not ours.acquire()


def test_a_holder_whose_lease_is_longer_is_given_its_time(candidate: Candidate, api: Api, namespace: str) -> None:
    """Two replicas may run with different settings while a new one is rolled out."""
    slow = LeaseLeader(api, namespace, "sickbay", "slow", 4 * LEASE_S, unattended_s=0.0)
    ours = candidate("ours")
    assert slow.acquire()
    end = time.monotonic() + LEASE_S * 1.5
    while time.monotonic() < end:
        assert not ours.acquire()
        time.sleep(0.05)
    slow.release()
    until(ours.acquire, "it leads once the lease is free")


def test_any_cluster_name_makes_a_lease(api: Api, namespace: str) -> None:
    leader = LeaseLeader(api, namespace, "sickbay-East_1", "ours", LEASE_S)
    assert leader.acquire()
    leader.release()


def test_asking_never_takes_more_than_a_second_even_if_the_server_is_silent(
    candidate: Candidate, cluster: Cluster
) -> None:
    with cluster.proxy() as proxy:
        ours = candidate("ours", open_api(str(proxy.kubeconfig)))
        proxy.freeze()
        for _ in range(2):
            began = time.monotonic()
            assert not ours.acquire()
            assert time.monotonic() - began < 2.0  # one for us, one for the machine that tests
        proxy.thaw()
        until(ours.acquire, "it leads once the server answers")


def test_a_short_outage_costs_no_lead(candidate: Candidate, cluster: Cluster) -> None:
    """Also when a renewal arrived and its answer was lost: the lease then carries our name and another version."""
    with cluster.proxy() as proxy:
        ours = candidate("ours", open_api(str(proxy.kubeconfig)))
        assert ours.acquire()
        for _ in range(6):
            proxy.cut()
            assert _leads_for(ours, LEASE_S / 4)


def test_a_renewal_whose_answer_was_lost_is_recognised(
    candidate: Candidate, api: Api, namespace: str, lease: Callable[[], LeaseObject]
) -> None:
    ours = candidate("ours")
    assert ours.acquire()
    arrived = lease()
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": arrived.metadata, "spec": arrived.spec}
    arrived.spec.renew_time = "2026-01-01T00:00:00.000000Z"
    api.replace(names.lease(namespace, "sickbay"), body, LeaseObject)
    assert _leads_for(ours, LEASE_S)
    assert lease().metadata.version > arrived.metadata.version + 1


def test_a_lease_that_was_deleted_is_made_again_by_its_holder(
    candidate: Candidate, api: Api, namespace: str, lease: Callable[[], LeaseObject]
) -> None:
    ours, theirs = candidate("ours"), candidate("theirs")
    assert ours.acquire()
    api.delete(names.lease(namespace, "sickbay"))
    end = time.monotonic() + LEASE_S
    while time.monotonic() < end:
        ours.acquire()
        time.sleep(0.02)
    assert ours.acquire() != theirs.acquire()
    assert lease().spec.holder_identity


def test_a_candidate_without_rights_says_so_and_does_not_lead(
    candidate: Candidate, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    tls = ssl.create_default_context()  # without the client certificate that makes the tests an administrator
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    nobody = Api(replace(api.access, tls=lambda: tls, token=lambda: "not-a-token"))
    assert not candidate("nobody", nobody).acquire()
    until(lambda: "the lease sickbay could not be read" in caplog.text, "it was logged")
    assert "401 Unauthorized" in caplog.text
