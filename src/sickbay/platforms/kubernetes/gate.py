"""The newcomer gate: a GPU node that joins gets no work before it has passed its checks.

`Gatekeeper.meet` is given each node that the watch sees for the first time. The gate is the taint
`newcomer`; set by the kubelet itself (--register-with-taints, the only way without a race) or by us at first sight,
when kubernetes.gate is on, and always for the successor of a replaced machine. Core opens a newcomer case for a node
behind it; RELEASE takes it off when the checks have passed. A node's gate is closed once in its life, and never over
work that is already there.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.conflicts import settle
from sickbay.kube.objects import NodeObject, Taint
from sickbay.platforms.kubernetes import marks, successors
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.sweep import room
from sickbay.platforms.kubernetes.verify import stamp

log = logging.getLogger(__name__)

AGAIN_S = 5.0
NEW_S = 900.0  # an older object was there before we looked, not new
VALUE = "unexamined"


class Gatekeeper:
    """Closes gates off the watch threads. What successors are due is read once for as many nodes as wait."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._waiting: queue.SimpleQueue[NodeObject | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.closed = 0

    def meet(self, node: NodeObject, *, busy: bool = False) -> None:
        """Costs nothing for a node that is no newcomer."""
        if not may_need(self._site, node, busy=busy):
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="gatekeeper", daemon=True)
                self._thread.start()
        self._waiting.put(node)

    def stop(self) -> None:
        self._waiting.put(None)

    def _serve(self) -> None:
        while (node := self._waiting.get()) is not None:
            crowd = [node, *self._others()]
            try:
                if not self._site.settings.gate and not successors.due(self._site):
                    continue
                for one in crowd:
                    if why := mind(self._site, one):
                        self.closed += 1
                        log.info("gate closed node=%s: %s", one.metadata.name, why)
            except ApiError as error:  # tried again: a newcomer must not slip in while the server is away
                log.warning("a gate could not be closed yet: %s", error)
                later = threading.Timer(AGAIN_S, self._meet_again, (crowd,))
                later.daemon = True
                later.start()

    def _meet_again(self, crowd: Sequence[NodeObject]) -> None:
        for node in crowd:
            self.meet(node)

    def _others(self) -> Iterator[NodeObject]:
        while not self._waiting.empty():
            node = self._waiting.get()
            if node is None:
                self._waiting.put(None)
                return
            yield node


def mind(site: Site, node: NodeObject, *, busy: bool = False) -> str:
    """Close the gate if this node needs one; why it was closed, or ""."""
    why = needs_gate(site, node, busy=busy)
    return why if why and close_gate(site, node.metadata.name) else ""


def may_need(site: Site, node: NodeObject, *, busy: bool = False) -> bool:
    """Young, ours, free of work and marks, and not gated before. Pure."""
    meta = node.metadata
    if busy or meta.annotation(site.keys.newcomer) == meta.uid or meta.annotation(site.keys.case):
        return False
    if is_gated(site, node) or meta.label(site.keys.opt_out) == "true" or not _is_ours(site, meta.labels or {}):
        return False
    return site.clock.now() + site.api.ahead_s - stamp(meta.creation_timestamp) <= NEW_S


def needs_gate(site: Site, node: NodeObject, *, busy: bool = False) -> str:
    """Why this node must be examined before its first work; "" when it need not be. Reads only for a young node."""
    if not may_need(site, node, busy=busy):
        return ""
    if (due := successors.due_for(site, node)) is not None:
        return f"it takes the place of {due.instance}, which {due.key} replaced"
    return "kubernetes.gate is on" if site.settings.gate else ""


def is_gated(site: Site, node: NodeObject) -> bool:
    return any(taint.key == site.keys.newcomer for taint in node.spec.taints or ())


def close_gate(site: Site, name: str) -> bool:
    """Taint it, and note on the node that this was its gate. False if it is gone or has been gated before."""
    closed = settle(partial(_close, site, name))
    if closed is not None and (due := successors.due_for(site, closed)) is not None:
        successors.met(site, due)
    return closed is not None


def _close(site: Site, name: str) -> NodeObject | None:
    """The node as it was before."""
    node = site.api.find(names.node(name), NodeObject)
    if node is None or node.metadata.annotation(site.keys.newcomer) == node.metadata.uid:
        return None
    site.api.patch(names.node(name), _closing(site, node), NodeObject, how="json")
    return node


def _closing(site: Site, node: NodeObject) -> list[marks.Op]:
    taint = Taint(site.keys.newcomer, marks.NO_SCHEDULE, VALUE)
    noted = marks.annotate(node, site.keys.newcomer, node.metadata.uid)
    return [marks.same("/metadata/uid", node.metadata.uid), *room(node), *noted, *marks.taint_ops(node, taint)]


def _is_ours(site: Site, labels: Mapping[str, str]) -> bool:
    """Of the plain selectors "a=b", "a" and lists of them; anything else was applied by whoever listed the node."""
    terms = [term for term in site.settings.gpu_selector.split(",") if term]
    if any(mark in site.settings.gpu_selector for mark in ("(", "!")):
        return True
    return all(
        labels.get(t.partition("=")[0]) == t.partition("=")[2].lstrip("=") if "=" in t else t in labels for t in terms
    )
