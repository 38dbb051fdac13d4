"""The claim on a node that is closed for a sweep: whose maintenance taint it is, until when, and how both come off.

sweep.py puts claim and taint in one write and takes them off again. A sweep that was killed, or that never got its API
server back, cannot: `Expiry`, fed by the controller's watch, frees what is past its end, and so does the next sweep.
Ends are told in the API server's time. It must never touch a claim that has time left, nor a taint without one.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

import msgspec

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.conflicts import settle
from sickbay.kube.objects import NodeObject
from sickbay.platforms.kubernetes import marks
from sickbay.platforms.kubernetes.clerk import Clerk
from sickbay.platforms.kubernetes.site import Site

log = logging.getLogger(__name__)

AGAIN_S = 15.0


@dataclass(frozen=True, slots=True)
class Claim:
    """Whose maintenance taint it is, and until when (the API server's wall time)."""

    owner: str
    until: float


def claim_on(site: Site, node: NodeObject) -> Claim | None:
    """Who sweeps this node; one that cannot be read has ended long ago."""
    text = node.metadata.annotation(site.keys.sweep)
    try:
        return msgspec.json.decode(text.encode(), type=Claim) if text else None
    except (msgspec.MsgspecError, UnicodeError):
        return Claim("somebody", 0.0)


def left_s(site: Site, node: NodeObject) -> float | None:
    """Seconds until the claim on this node ends, none left: 0; None when there is no claim."""
    claim = claim_on(site, node)
    return max(0.0, claim.until - site.server_now()) if claim is not None else None


def freeing(site: Site, node: NodeObject) -> list[marks.Op]:
    ops = marks.annotate(node, site.keys.sweep, None)
    return ops + marks.untaint_ops(node, [(site.keys.maintenance, marks.NO_SCHEDULE)])


def free(site: Site, name: str) -> str:
    """Take off a claim that is past its end, and its taint. Whose it was; "" when there was nothing to take off."""
    return settle(partial(_free, site, name))


def _free(site: Site, name: str) -> str:
    node = site.api.find(names.node(name), NodeObject)
    claim = claim_on(site, node) if node is not None else None
    if node is None or claim is None or claim.until > site.server_now():
        return ""
    body = [marks.same("/metadata/uid", node.metadata.uid), *freeing(site, node)]
    site.api.patch(names.node(name), body, NodeObject, how="json")
    return claim.owner


class Expiry:
    """Frees what dead sweeps left. `meet` is given each node that the watch shows; without a claim it costs nothing."""

    def __init__(self, site: Site, clerk: Clerk) -> None:
        self._site, self._clerk = site, clerk

    def meet(self, node: NodeObject) -> None:
        if (left := left_s(self._site, node)) is not None:
            self._look_in(left, node.metadata.name)

    def _look_in(self, after_s: float, name: str) -> None:
        self._clerk.at(after_s, ("claim", name), partial(self._look, name))

    def _look(self, name: str) -> None:
        """A claim that was renewed meanwhile has its new end; an API server that is away is asked again."""
        try:
            if owner := free(self._site, name):
                log.warning("node=%s freed from the sweep of %s, which ended without taking its taint off", name, owner)
                return
            node = self._site.api.find(names.node(name), NodeObject)
        except ApiError as error:
            log.warning("node=%s: what a sweep may have left could not be taken off yet: %s", name, error)
            self._look_in(AGAIN_S, name)
            return
        if node is not None:
            self.meet(node)
