"""Holding an Auto Scaling group off while a node is ours: scale-in protection on with the drain, off with the release.

platform.py puts `held` around DRAIN and `let_go` around RELEASE, which a cancelled case asks for too; power.py notes
that it put an instance into standby. The node remembers what we hold its group off by (keys.protection), and remembers
it first: a crash in between leaves nothing on that nobody takes off. CORDON itself does not wait for Amazon, and no
drain waits twice for an Amazon that does not answer. It must never take off what was on before us.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.objects import Anything, NodeObject
from sickbay.model import Action, Done, Outcome, Retry
from sickbay.platforms.kubernetes import machines, marks
from sickbay.platforms.kubernetes.machines.aws import words
from sickbay.platforms.kubernetes.site import Site

log = logging.getLogger(__name__)

Door = Callable[[Site, Action], Outcome]
AGAIN_S = 30.0
AWAY_S = 300.0  # after no answer, before Amazon is asked again about a drain
MOST_ASKED = 4_096


class _Asking:
    """When Amazon is worth a question: once for each action, and not for a while after it gave no answer. Until it has
    answered for the first time one asks and the others wait, so that a cluster without credentials pays once."""

    def __init__(self) -> None:
        self._keys: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()
        self._first = threading.Lock()
        self._away_until, self._answered = float("-inf"), False

    def is_worth_it(self, key: str, now: float) -> bool:
        with self._lock:
            if key in self._keys or now < self._away_until:
                return False
            self._keys[key] = None
            if len(self._keys) > MOST_ASKED:
                self._keys.popitem(last=False)
            return True

    def ask(self, site: Site, node: NodeObject) -> bool:
        if self._answered:
            return self._ask(site, node)
        with self._first:
            return site.clock.monotonic() >= self._away_until and self._ask(site, node)

    def _ask(self, site: Site, node: NodeObject) -> bool:
        found = machines.is_unprotected(site, node)
        self._answered = self._answered or found is not None
        self._away_until = site.clock.monotonic() + AWAY_S if found is None else float("-inf")
        return bool(found)


_askings: dict[str, _Asking] = {}


def _asking(site: Site) -> _Asking:
    """One for each place that is asked."""
    return _askings.setdefault(f"{site.settings.aws_region} {site.settings.aws_endpoint}", _Asking())


def held(door: Door) -> Door:
    """The door, with the node's group held off first. Best effort: a drain does not fail because Amazon is away."""

    def hold_then(site: Site, action: Action) -> Outcome:
        if machines.may_be_amazons(site) and _asking(site).is_worth_it(action.key, site.clock.monotonic()):
            _hold(site, action)
        return door(site, action)

    return hold_then


def let_go(door: Door) -> Door:
    """The door, and once it has let the node go its group has it again. What cannot be undone yet would leak: the same
    is asked again."""

    def then_let_go(site: Site, action: Action) -> Outcome:
        said = door(site, action)
        node = site.api.find(names.node(action.place.node), NodeObject) if isinstance(said, Done) else None
        held = holds_on(site, node) if node is not None else ()
        if node is None or not held or marks.mark_of(node, site.keys) not in ("", marks.case_of(action)):
            return said
        if not machines.give_up(site, node, held):
            what = " and ".join(held)
            return Retry(AGAIN_S, f"what holds off the group of {node.metadata.name} cannot be taken off yet: {what}")
        _remember(site, node, ())
        return said

    return then_let_go


# --- what the node remembers ------------------------------------------------------------------------------------------


def holds_on(site: Site, node: NodeObject) -> tuple[str, ...]:
    """By what we hold this node's group off: machines.PROTECTION, machines.STANDBY."""
    return tuple(what for what in node.metadata.annotation(site.keys.protection).split(",") if what)


def note(site: Site, node: NodeObject, what: str) -> None:
    """Before it is done."""
    _remember(site, node, tuple(dict.fromkeys((*holds_on(site, node), what))))


def unnote(site: Site, node: NodeObject, what: str) -> None:
    """After it is undone."""
    _remember(site, node, tuple(one for one in holds_on(site, node) if one != what))


def _hold(site: Site, action: Action) -> None:
    try:
        node = site.api.find(names.node(action.place.node), NodeObject)
        if node is None or machines.PROTECTION in holds_on(site, node):
            return
        if marks.mark_of(node, site.keys) != marks.case_of(action) or not _asking(site).ask(site, node):
            return
        note(site, node, machines.PROTECTION)
        machines.protect(site, node)
    except ApiError as error:
        log.warning("node=%s its group is not held off: %s", action.place.node, words(error))


def _remember(site: Site, node: NodeObject, held: tuple[str, ...]) -> None:
    body = {"metadata": {"uid": node.metadata.uid, "annotations": {site.keys.protection: ",".join(held) or None}}}
    site.api.patch(names.node(node.metadata.name), body, Anything)
