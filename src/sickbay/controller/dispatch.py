"""The door to the platform, as the controller uses it: what to ask when, and how a call is never made twice.

For SENT_ONCE verbs: read `before` directly, commit that we are about to call, call within seconds or not at all. Every
later ask only observes; the call is made once more only after the platform knows that the first never arrived.
Called by controller/loop.py. It moves no case.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from sickbay.controller.crew import Crew
from sickbay.errors import SickbayError
from sickbay.model import (
    SENT_ONCE,
    TREATMENTS,
    Action,
    Before,
    Done,
    Lost,
    Node,
    Outcome,
    Refuted,
    Retry,
    Started,
    Unguarded,
    Verb,
)
from sickbay.ports import Clock, Platform

log = logging.getLogger(__name__)

CALL_WITHIN_S = 5.0  # a call is made within seconds of its commit or not at all
SENDS_MAX = 2
UNREAD_S = 5.0  # watch time until a node that could not be read is looked at again
RESEND_S = 30.0  # watch time from a treatment that is known lost to its second call: a short outage is over by then


@dataclass(frozen=True, slots=True)
class Answer:
    """What a door said to an action, with a fresh look at the node where the answer depends on it."""

    owner: str  # case node, or job
    kind: str  # "node" | "job"
    key: str
    outcome: Outcome
    node: Node | None = None
    called: bool = False  # by us, just now: the door was not merely asked how an earlier call fared


class Dispatcher:
    def __init__(
        self, platform: Platform, crew: Crew, clock: Clock, deliver: Callable[[Answer], None],
        wake: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._platform, self._crew, self._clock, self._deliver, self._wake = platform, crew, clock, deliver, wake
        self._flying: set[str] = set()  # lanes with a call under way
        self._ask_at: dict[tuple[str, bool], float] = {}  # by what is asked -> watch time

    def is_due(self, action: Action, watch: float) -> bool:
        if lane(action) in self._flying:
            return False
        return watch >= max(action.ask_at, self._ask_at.get(_asked(action), 0.0))

    def due_at(self, action: Action) -> float | None:
        """Watch time of the next ask; None while one is under way."""
        if lane(action) in self._flying:
            return None
        return max(action.ask_at, self._ask_at.get(_asked(action), 0.0))

    def look_later(self, action: Action, watch: float) -> None:
        """Its node could not be read. It is not asked for in a circle until that can be done."""
        self._ask_at[_asked(action)] = watch + UNREAD_S

    def resend_later(self, action: Action, watch: float) -> None:
        """What ate our call a moment ago may eat the next. A job's restart is made in steps and goes on at once."""
        if action.verb in TREATMENTS:
            self._ask_at[_asked(action)] = watch + RESEND_S

    def forget(self, key: str) -> None:
        for withdrawn in (False, True):
            self._ask_at.pop((key, withdrawn), None)

    def before(self, action: Action) -> Before | None:
        """What is true of the node right now; None if it cannot be read."""
        try:
            node = self._platform.look(action.place.node) if action.place.node else None
        except SickbayError as error:
            log.warning("node=%s could not be read before %s: %s", action.place.node, action.verb, error)
            return None
        if node is None:
            return Before() if action.verb is Verb.RESTART_JOB else None
        return Before(node.boot_id, node.instance, node.uid, tuple(g.uuid for g in node.gpus))

    def perform(self, action: Action, owner: str, kind: str, watch: float) -> None:
        """Ask the platform. `action.call` says whether a SENT_ONCE verb may act."""
        self._flying.add(lane(action))
        committed = self._clock.monotonic()

        def work() -> Outcome:
            if action.verb in SENT_ONCE and action.call and self._clock.monotonic() - committed > CALL_WITHIN_S:
                return Retry(1.0, "the call was not made in time; it is observed first")
            return self._platform.perform(action)

        try:
            self._crew.submit(work, lambda outcome: self._answer(action, owner, kind, outcome, watch))
        except BaseException:  # done on this very thread, and the platform raised: nothing is under way
            self._flying.discard(lane(action))
            raise

    def _answer(self, action: Action, owner: str, kind: str, outcome: Outcome, watch: float) -> None:
        log.debug("key=%s verb=%s outcome=%r", action.key, action.verb, outcome)
        try:
            if isinstance(outcome, Started | Retry):
                self._ask_at[_asked(action)] = watch + max(1.0, outcome.after_s)
                self._deliver(Answer(owner, kind, action.key, outcome))
            else:
                self._tell(action, owner, kind, outcome, watch)
        except Exception:  # a bug in a platform: a node whose lane stayed taken would never be asked again
            log.exception("key=%s the answer to %s was not heard, it is asked for again", action.key, action.verb)
            self._ask_at[_asked(action)] = watch + UNREAD_S
        finally:
            self._flying.discard(lane(action))  # only now: until it is heard, nobody may ask the same again
            self._wake()  # the pass that asked went to sleep without knowing when to ask again

    def _tell(self, action: Action, owner: str, kind: str, outcome: Outcome, watch: float) -> None:
        """With a fresh look at the node where the answer depends on it; without one it is asked again."""
        node = None
        if kind == "node" and isinstance(outcome, Done | Unguarded | Refuted) and action.verb is not Verb.VERIFY:
            try:
                node = self._platform.look(owner)
            except SickbayError as error:
                log.warning("node=%s could not be read after %s: %s", owner, action.verb, error)
                self._ask_at[_asked(action)] = watch + 1.0
                return
        self._deliver(Answer(owner, kind, action.key, outcome, node, action.call))


def lane(action: Action) -> str:
    """One call at a time for a node or a job: a cordon still under way must not land after the release that follows."""
    return f"node {action.place.node}" if action.place.node else f"job {action.args.get('job', action.key)}"


def _asked(action: Action) -> tuple[str, bool]:
    """To take a treatment back is asked at once, not when it is time to hear again how it fares: half a minute after a
    person's abort the machine was rebooted, for until then nobody had told its platform."""
    return action.key, action.args.get("withdraw") == "1"


def may_resend(action: Action, outcome: Outcome) -> bool:
    """Known lost, called only once so far, and still wanted: a cancelled case only watches what it had sent."""
    return isinstance(outcome, Lost) and action.verb in SENT_ONCE and action.call and action.sends < SENDS_MAX


def sent(action: Action, before: Before, wall: float) -> Action:
    """The action as it is committed before the call."""
    return replace(action, before=before, sends=action.sends + 1, sent_at=wall, call=True)
