"""Asking a drain, and asking whether a pod is still there: what the tests of DRAIN share."""

from __future__ import annotations

from sickbay.model import Done, Outcome, Started, Verb
from sickbay.platforms.kubernetes.drain import drain
from sickbay.platforms.kubernetes.site import Site
from testbed.waiting import until
from tests.kubernetes.stage import act, pod

STUCK = {"sim.test/stuck": "true"}  # the testbed's kubelet cannot kill such a pod


def empty(site: Site, node: str, **args: str) -> Outcome:
    return drain(site, act(Verb.DRAIN, node, 2, 1, **{"evict": "1", **args}))


def drained(site: Site, node: str, within_s: float = 20.0, **args: str) -> Done:
    """Asked until it is done."""

    def ask() -> Done | None:
        outcome = empty(site, node, **args)
        assert isinstance(outcome, Done | Started), outcome
        return outcome if isinstance(outcome, Done) else None

    found = until(ask, f"{node} is drained", within_s, 0.2)
    assert found is not None
    return found


def under_way(site: Site, node: str, **args: str) -> Started:
    outcome = empty(site, node, **args)
    assert isinstance(outcome, Started), outcome
    return outcome


def is_there(site: Site, namespace: str, name: str) -> bool:
    """And nobody has asked it to go."""
    found = pod(site.api, namespace, name)
    return found is not None and not found.metadata.deletion_timestamp
