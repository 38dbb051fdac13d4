"""Publisher kubernetes: the newest Report as one PATCH of nodes/status; in standalone mode a taint by a second one.

What changes the node's verdict goes at once, other news a moment later, repeats of the same now and then, and of what
could not be sent only the newest is kept: it says everything. A taint is put when the node fails and lifted when it is
well again, by the agent that put it and never because it stops (originals 002.12 #5 #6 #7). It must never write what is
not ours, nor `unschedulable`: the controller cordons, so that limits hold. RBAC and an admission policy
(deploy/kubernetes) see to that besides.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sickbay.agent.measures import Measures
from sickbay.agent.publishers import Item, Told, node_status
from sickbay.agent.publishers.node_taint import OwnTaint
from sickbay.errors import ApiError, SickbayError, Unreachable
from sickbay.kube import events, names
from sickbay.kube.api import Api
from sickbay.kube.names import Keys
from sickbay.kube.objects import Condition, NodeObject
from sickbay.settings import AgentSettings

log = logging.getLogger(__name__)

FIRST_S, LONGEST_S = 0.5, 30.0
FRESH_S = 1.0  # something new may shorten the wait to this
REPEATS_S = 10.0  # reports that say the same again are sent at most this often
BURST, STEADY_S = 8, 1.0  # news in a row, then one each so many seconds: a node that raves must not flood the server
SAY_AGAIN_S = 300.0
DENIED = (401, 403)
COMPONENT = "sickbay-agent"


@dataclass(frozen=True, slots=True)
class Where:
    """What a publisher is for: one node on one API server."""

    api: Api
    node: str
    keys: Keys
    folder: Path  # the agent's state folder: whose the taint is


class KubernetesPublisher:
    name = "kubernetes"
    takes: type[Told] | type[Measures] = Told

    def __init__(
        self, where: Where, settings: Callable[[], AgentSettings], *,
        on_node: Callable[[NodeObject], None] = lambda node: None, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._where, self._settings, self._on_node, self._clock = where, settings, on_node, clock
        self._path = names.node(where.node)
        self._taint = OwnTaint(where.api, where.node, where.keys.unhealthy, where.folder)
        self._greeted = False
        self._node: NodeObject | None = None  # as we last saw it
        self._newest: Told | None = None  # not sent yet
        self._sent: Told | None = None
        self._tell_event: tuple[str, str, str] | None = None  # type, reason, message: not written yet
        self._tainted: bool | None = None  # what the node's taint should be and is not yet; None: leave it
        self._failures = 0
        self._tried_at = self._next_at = self._sent_at = float("-inf")
        self._spent = 0.0
        self._said_at: dict[str, float] = {}
        self._doubt = False  # the last PATCH was not answered
        self._closed = False
        self.sent = self.failed = self.refused = self.events = 0

    # -- the Publisher ------------------------------------------------------------------------------------------------

    def publish(self, item: Item) -> None:
        if isinstance(item, Told):
            self._newest = item
            if self._is_news(item):
                self._next_at = min(self._next_at, self._tried_at + FRESH_S)

    def work(self) -> float | None:
        for step in (self._greet, self._send, self._settle_taint, self._write_event):
            if (wait := self._next_at - self._clock()) > 0:
                return wait
            try:
                step()
            except SickbayError as error:
                return self._later(error)
        return max(0.0, self._due() - self._clock()) if self._newest is not None else None

    def figures(self) -> dict[str, float]:
        return {
            "sent": float(self.sent), "failed": float(self.failed), "refused": float(self.refused),
            "spooled": float(self._newest is not None), "events": float(self.events),
        }  # fmt: skip

    def close(self) -> None:
        """A last word that nobody looks any more, if it can be said at once. Taint and condition stay."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(SickbayError):
            body = self._body(self._newest) if self._newest is not None else {}
            if self._settings().label:
                last: dict[str, Any] = node_status.stopped(self._where.keys)
                body.setdefault("metadata", {}).setdefault("labels", {}).update(last["metadata"]["labels"])
            if body and self._failures == 0:
                self._where.api.patch(f"{self._path}/status", body, NodeObject, "strategic")
        self._where.api.close()

    # -- one step each; each is taken up again until it is done -------------------------------------------------------

    def _greet(self) -> None:
        """Once: the node as it is, for its type, its machine, and since when its condition is what it is."""
        if self._greeted:
            return
        try:
            self._met(self._where.api.get(self._path, NodeObject))
        except ApiError as error:
            if not error.refused:
                raise
            self._say("greet", self._advice(error))  # its answer to the first PATCH shows the node as well
        self._greeted = True

    def _send(self) -> None:
        told = self._newest
        if told is None or self._due() > self._clock():
            return
        self._tried_at = self._clock()
        before = self._condition()
        try:
            self._met(self._where.api.patch(f"{self._path}/status", self._body(told), NodeObject, "strategic"))
        except Unreachable:
            self._doubt = True
            raise
        self._spend()
        # A request that we gave up on may still arrive, after this one: then this is said once more.
        self._newest = told if self._doubt else None
        self._sent, self._sent_at, self._doubt = told, self._clock(), False
        self._failures = 0
        self.sent += 1
        self._tainted = _wanted(told)
        self._tell_event = self._news_for_people(told, before)

    def _settle_taint(self) -> None:
        node, want, settings = self._node, self._tainted, self._settings()
        if node is None or want is None:
            return
        if settings.mode != "standalone" or not settings.taint:
            self._leave_taint(node, want)
        else:
            self._node = self._change_taint(node, want)
        self._tainted = None

    def _change_taint(self, node: NodeObject, want: bool) -> NodeObject:
        try:
            if want:
                return self._taint.put(node)
            node, why = self._taint.lift(node)
            self._say("taint", why)
        except ApiError as error:
            if error.status not in DENIED:
                raise
            self.refused += 1  # the next report asks again; nothing else waits for it
            self._say(
                "taint", f"the API server does not let this agent taint node {self._where.node} ({error}). In "
                "standalone mode apply deploy/kubernetes/standalone/agent-rbac.yaml as well, or switch agent.taint off",
            )  # fmt: skip
        return node

    def _leave_taint(self, node: NodeObject, want: bool) -> None:
        if self._taint.is_on(node) and not want:
            key, command = self._taint.key, self._taint.command
            self._say(
                "taint", f"node {self._where.node} is well and carries the taint {key}, which this agent may not touch "
                f"(agent.mode, agent.taint). To lift it: {command}",
            )  # fmt: skip

    def _write_event(self) -> None:
        """Best effort: the condition has said it already."""
        if self._tell_event is None:
            return
        (type, reason, message), self._tell_event = self._tell_event, None
        about = events.about_node(self._where.node, self._node.metadata.uid if self._node is not None else "")
        try:
            self.events += events.event(self._where.api, "default", about, type, reason, message, COMPONENT)
        except ApiError as error:
            self._say("event", f"an Event could not be written: {error}")

    # -- what they need -----------------------------------------------------------------------------------------------

    def _body(self, told: Told) -> dict[str, Any]:
        settings = self._settings()
        ours = settings.condition_owner == "agent"
        return node_status.patch(told, self._where.keys, self._condition(), label=settings.label, condition=ours)

    def _condition(self) -> Condition | None:
        return node_status.our_condition(self._node)

    def _met(self, node: NodeObject) -> None:
        before, self._node = self._node, node
        if before is None or before.metadata.uid != node.metadata.uid:
            self._on_node(node)

    def _news_for_people(self, told: Told, before: Condition | None) -> tuple[str, str, str] | None:
        if self._settings().condition_owner != "agent":
            return None  # node-problem-detector writes its own
        return node_status.event_of(node_status.condition_of(told, before), before)

    # -- when ---------------------------------------------------------------------------------------------------------

    def _is_news(self, told: Told) -> bool:
        return self._sent is None or node_status.mark(told) != node_status.mark(self._sent)

    def _due(self) -> float:
        if self._newest is None:
            return float("inf")
        if self._is_news(self._newest):
            over = max(0.0, self._spent - BURST + 1.0)
            return max(self._next_at, self._sent_at + max(over * STEADY_S, node_status.wait(self._newest, self._sent)))
        return max(self._next_at, self._sent_at + min(REPEATS_S, self._settings().check_interval_s))

    def _spend(self) -> None:
        quiet = self._clock() - self._sent_at
        self._spent = max(0.0, self._spent - quiet / STEADY_S) + 1.0

    def _later(self, error: SickbayError) -> float:
        self._tried_at = self._clock()
        self.failed += 1
        wait = min(LONGEST_S, FIRST_S * 2.0 ** min(self._failures, 16)) * random.uniform(0.5, 1.0)
        self._failures += 1
        if isinstance(error, ApiError):
            self.refused += error.refused
            wait = max(wait, min(error.retry_after, 300.0))
        self._next_at = self._clock() + wait
        self._say("later", self._advice(error))
        return wait

    def _advice(self, error: SickbayError) -> str:
        node = self._where.node
        if isinstance(error, ApiError) and error.status in DENIED:
            return (
                f"the API server does not let this agent speak for node {node} ({error}). Apply "
                "deploy/kubernetes/agent-rbac.yaml and agent-policy.yaml, run the agent as the service account named "
                "there, and give it the name of the node its pod is on (NODE_NAME). The newest report is kept"
            )
        if isinstance(error, ApiError) and error.not_found:
            return f"there is no node {node!r} on the API server: is agent.node_name (NODE_NAME) right? Report kept"
        return f"node {node} could not be written: {error}. The newest report is kept"

    def _say(self, kind: str, text: str) -> None:
        """Loudly, and not each time."""
        if text and self._clock() - self._said_at.get(kind, float("-inf")) >= SAY_AGAIN_S:
            self._said_at[kind] = self._clock()
            log.error("publisher kubernetes: %s", text)


def _wanted(told: Told) -> bool | None:
    """Is the node to carry the taint? What could not be looked at neither puts nor lifts one."""
    return {"fail": True, "pass": False, "warn": False}.get(told.verdict.status)
