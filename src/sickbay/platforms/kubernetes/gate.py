"""The newcomer gate: a GPU node that joins gets no work before it has passed its checks.

`Gatekeeper.meet` is given each node that the watch sees for the first time. The gate is the taint
`newcomer`; set by the kubelet itself (--register-with-taints, the only way without a race) or by us at first sight,
when kubernetes.gate is on, and always for the successor of a replaced machine. Core opens a newcomer case for a node
behind it; RELEASE takes it off when the checks have passed. So a gate is closed only where a case may take the node out
(`may_close`): nobody would open it else. Karpenter's nodes get none from us unless their NodePool declares the taint in
startupTaints: it would make another node for each that we taint. A node's gate is closed once in its life, which is
noted on the node whoever closed it, and never over work that is already there.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.conflicts import settle
from sickbay.kube.objects import NodeObject, Taint
from sickbay.platforms.kubernetes import marks, successors
from sickbay.platforms.kubernetes.machines import karpenter
from sickbay.platforms.kubernetes.sight import pods_on
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.successors import Successor, pool_of
from sickbay.platforms.kubernetes.sweep import room
from sickbay.platforms.kubernetes.tenants import is_work
from sickbay.platforms.kubernetes.verify import stamp

log = logging.getLogger(__name__)

AGAIN_S = 5.0
NEW_S = 900.0  # kubernetes.gate: an older object was there before we looked, not new
VALUE = "unexamined"

MayClose = Callable[[str], bool]  # of a pool


class Gatekeeper:
    """Closes gates off the watch threads. What successors are due is read once for as many nodes as wait."""

    def __init__(self, site: Site, may_close: MayClose = lambda pool: True) -> None:
        self._site, self._may_close = site, may_close
        self._waiting: queue.SimpleQueue[NodeObject | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._open_pools: set[str] = set()  # of which it was said that they have no gate
        self.closed = 0

    def meet(self, node: NodeObject, *, busy: bool = False) -> None:
        """Costs nothing for a node that is no newcomer."""
        if busy or not may_need(self._site, node):
            return
        if not self._may_close(pool := pool_of(self._site, node.metadata.labels or {})):
            self._say_open(pool)
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="gatekeeper", daemon=True)
                self._thread.start()
        self._waiting.put(node)

    def stop(self) -> None:
        self._waiting.put(None)

    def _say_open(self, pool: str) -> None:
        if self._site.settings.gate and pool not in self._open_pools:
            self._open_pools.add(pool)
            log.warning(
                "kubernetes.gate is on, but new nodes of pool %s are not kept from work: nobody may take them through "
                "the gate there (policy.max_verb is below CORDON, or another repairer looks after that pool)", pool,
            )  # fmt: skip

    def _serve(self) -> None:
        while (node := self._waiting.get()) is not None:
            crowd = [node, *self._others()]
            try:
                self._mind(crowd)
            except ApiError as error:  # tried again: a newcomer must not slip in while the server is away
                log.warning("a gate could not be closed yet: %s", error)
                later = threading.Timer(AGAIN_S, self._meet_again, (crowd,))
                later.daemon = True
                later.start()

    def _mind(self, crowd: Sequence[NodeObject]) -> None:
        """Whoever joined first is the likelier successor."""
        lines = successors.due(self._site)
        for one in sorted(crowd, key=lambda node: node.metadata.creation_timestamp):
            if why := mind(self._site, one, lines):
                self.closed += 1
                log.info("gate closed node=%s: %s", one.metadata.name, why)

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


def may_need(site: Site, node: NodeObject) -> bool:
    """Ours, free of marks, its gate not noted before, and young enough for a successor. Pure."""
    meta = node.metadata
    if meta.annotation(site.keys.newcomer) == meta.uid or meta.annotation(site.keys.case):
        return False
    if meta.label(site.keys.opt_out) == "true" or not _is_ours(site, meta.labels or {}):
        return False
    return _age(site, node) <= successors.FORGET_S


def mind(site: Site, node: NodeObject, lines: list[Successor]) -> str:
    """Close the gate if this node needs one, and strike its line out; why it is closed, or ""."""
    due = successors.answered_by(site, lines, node)
    why = needs_gate(site, node, due)
    if why and not _may_taint(site, node):
        log.warning(
            "gate left open node=%s: its NodePool does not declare %s in startupTaints, and Karpenter would make "
            "another node in its place", node.metadata.name, site.keys.newcomer,
        )  # fmt: skip
        return ""
    if not why or not close_gate(site, node.metadata.name):
        return ""
    if due is not None:
        lines.remove(due)
        successors.met(site, due)
    return why


def needs_gate(site: Site, node: NodeObject, due: Successor | None) -> str:
    """Why this node must be examined before its first work; "" when it need not be. Pure."""
    if not may_need(site, node):
        return ""
    if is_gated(site, node):
        return "its kubelet came with it"
    if due is not None:
        return f"it takes the place of {due.instance}, which {due.key} replaced"
    return "kubernetes.gate is on" if site.settings.gate and _age(site, node) <= NEW_S else ""


def _may_taint(site: Site, node: NodeObject) -> bool:
    return (
        is_gated(site, node) or not karpenter.claims_it(node) or karpenter.declares(site.api, node, site.keys.newcomer)
    )


def is_gated(site: Site, node: NodeObject) -> bool:
    return any(taint.key == site.keys.newcomer for taint in node.spec.taints or ())


def _age(site: Site, node: NodeObject) -> float:
    return site.server_now() - stamp(node.metadata.creation_timestamp)


# --- closing ----------------------------------------------------------------------------------------------------------


def close_gate(site: Site, name: str) -> bool:
    """Taint it, and note on the node that this was its gate. False if it is gone, was gated before, or has work."""
    return settle(partial(_close, site, name))


def _close(site: Site, name: str) -> bool:
    node = site.api.find(names.node(name), NodeObject)
    if node is None or node.metadata.annotation(site.keys.newcomer) == node.metadata.uid:
        return False
    if not is_gated(site, node) and any(is_work(site, pod) for pod in pods_on(site, name)):
        log.warning("gate left open node=%s: work was there before it could be closed", name)
        return False
    site.api.patch(names.node(name), _closing(site, node), NodeObject, how="json")
    return True


def _closing(site: Site, node: NodeObject) -> list[marks.Op]:
    """The note, and the taint unless the kubelet came with it: its own stays as it is."""
    taint = Taint(site.keys.newcomer, marks.NO_SCHEDULE, VALUE)
    noted = marks.annotate(node, site.keys.newcomer, node.metadata.uid)
    closing = [] if is_gated(site, node) else marks.taint_ops(node, taint)
    return [marks.same("/metadata/uid", node.metadata.uid), *room(node), *noted, *closing]


def _is_ours(site: Site, labels: Mapping[str, str]) -> bool:
    """Of the plain selectors "a=b", "a" and lists of them; anything else was applied by whoever listed the node."""
    terms = [term for term in site.settings.gpu_selector.split(",") if term]
    if any(mark in site.settings.gpu_selector for mark in ("(", "!")):
        return True
    return all(
        labels.get(t.partition("=")[0]) == t.partition("=")[2].lstrip("=") if "=" in t else t in labels for t in terms
    )
