"""One brain at a time in a cluster: a coordination.k8s.io Lease, renewed by whoever leads.

The controller asks `acquire()` before every pass; while we lead that costs nothing, and it never blocks for more than a
second. Renewals are sent by a thread, so that a long pass loses no lead; but only while somebody asks now and then, so
that a controller that hangs loses it. No two machines' clocks are ever compared: the leader counts from the moment its
last renewal was SENT and stops after HOLD of the lease; a rival counts from the moment it SAW the lease change, by its
own monotonic clock, and begins after PATIENCE of it. What it saw was sent earlier, so one has stopped before the other
begins, whatever the wall clocks say (renewTime is for people).
It must never lead on a guess: an answer that did not come is no renewal.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from sickbay.errors import ApiError, SickbayError
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import LeaseObject, LeaseSpec

log = logging.getLogger(__name__)

# Parts of lease_s, in the order in which they must pass:
LOOK = 1 / 15  # a rival looks this often
RENEW = 1 / 3  # the leader renews
HOLD = 2 / 3  # a leader that could not renew stops; the rest is for what it has under way
PATIENCE = 0.85  # a rival takes over; with LOOK on top still within lease_s after a kill -9
LONGEST = 10.0  # times our own lease_s: what another's lease may promise at most
WAIT_S = 0.8  # how long acquire() waits for an answer when it has nothing to go by
UNATTENDED_S = 60.0  # a leader that nobody asks for so long is not renewed: its controller hangs
ANSWER_S = 3.0  # how long one request may take, in its own thread


@dataclass(frozen=True, slots=True)
class _Sight:
    """The lease as we last saw it, and since when it looks like that, by our own clock."""

    version: str
    holder: str
    since: float


class LeaseLeader:
    """ports.Leader on a Lease. Every instance is a candidate of its own: two never share an identity."""

    def __init__(
        self, api: Api, namespace: str, name: str, identity: str, lease_s: float = 15.0,
        *, unattended_s: float = UNATTENDED_S, monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._access, self._answer_s = api.access, min(ANSWER_S, max(0.5, lease_s / 3))
        self._api = self._own_api()
        name = names.object_name(name)
        self._path, self._namespace, self._name = names.lease(namespace, name), namespace, name
        self.identity, self._lease_s = f"{identity}_{secrets.token_hex(4)}", lease_s
        self._monotonic, self._wall = monotonic, wall
        self._lock = threading.Lock()  # one request at a time, and what follows from its answer
        self._answered = threading.Condition()
        self._busy = False
        self._sight: _Sight | None = None
        self._renewed = -math.inf  # when the last renewal that arrived was sent
        self._asked = -math.inf
        self._version = ""  # of the lease as we wrote it; "": it is not ours, or we do not know
        self._spec = LeaseSpec()  # as we wrote it
        self._wanted, self._unattended_s = False, unattended_s
        self._called = -math.inf  # when acquire() was last asked
        self._keeper: threading.Thread | None = None

    def acquire(self) -> bool:
        """Do we lead, by our own clock? If not: is there a lead to take?"""
        now, self._wanted = self._monotonic(), True
        self._called = now
        if self._leads(now):
            return True
        if now - self._asked >= self._lease_s * LOOK:
            self._ask(now)
        self._wait()
        return self._leads(self._monotonic())

    def release(self) -> None:
        """Free the lease at once, so that a rival need not wait. Without an answer it frees itself in time."""
        self._wanted, self._renewed = False, -math.inf
        with self._lock:
            self._asked, self._renewed = -math.inf, -math.inf
            version, self._version = self._version, ""
            if version:
                self._free(version)
            self._api.close()
            self._api = self._own_api()

    def _free(self, version: str) -> None:
        try:
            self._api.replace(self._path, self._body(version, self._spec, holder=""), LeaseObject)
        except ApiError as error:
            log.warning("the lease %s was not released, it runs out by itself: %s", self._name, error)

    def _own_api(self) -> Api:
        """A client of our own: a renewal must not wait as long as other requests may."""
        return Api(self._access, timeout_s=self._answer_s, name="sickbay-lease")

    def holder(self) -> str:
        """Who leads, as last seen; "" if nobody does or we have not looked."""
        return self._sight.holder if self._sight is not None else ""

    def _leads(self, now: float) -> bool:
        return now - self._renewed < self._lease_s * HOLD

    # -- the threads that ask: one for each look at another's lease, one that renews our own

    def _ask(self, now: float) -> None:
        with self._answered:
            if self._busy:
                return
            self._busy, self._asked = True, now
        threading.Thread(target=self._asking, name="lease", daemon=True).start()

    def _asking(self) -> None:
        try:
            self._try_safely()
        finally:
            with self._answered:
                self._busy = False
                self._answered.notify_all()

    def _try_safely(self) -> None:
        try:
            with self._lock:
                self._try()
        except SickbayError as error:
            log.warning("the lease %s could not be %s: %s", self._name, "renewed" if self._version else "read", error)
        except Exception:
            log.exception("the lease %s could not be asked for", self._name)

    def _keep(self) -> None:
        """Renew as long as it is ours, wanted and attended. It ends with the lead; acquire() begins the next one."""
        while self._wanted and self._leads(self._monotonic()):
            time.sleep(self._lease_s * LOOK)
            now = self._monotonic()
            if now - self._renewed >= self._lease_s * RENEW and now - self._called <= self._unattended_s:
                self._try_safely()

    def _wait(self) -> None:
        with self._answered:
            self._answered.wait_for(lambda: not self._busy, WAIT_S)

    # -- under the lock

    def _try(self) -> None:
        if not self._wanted:  # released while this was on its way
            return
        if self._version and self._put(self._version, self._spec):
            return
        found = self._api.find(self._path, LeaseObject)
        if found is None:
            self._create()
        elif self._may_take(found):
            self._put(found.metadata.resource_version, found.spec)

    def _may_take(self, found: LeaseObject) -> bool:
        """Free, ours (an answer was lost), or not renewed for as long as we have been watching it."""
        version, holder, now = found.metadata.resource_version, found.spec.holder_identity, self._monotonic()
        if self._sight is None or self._sight.version != version:
            self._sight = _Sight(version, holder, now)
        if holder in ("", self.identity):
            return True
        self._renewed = -math.inf
        return now - self._sight.since >= PATIENCE * self._promised(found.spec.lease_duration_seconds)

    def _promised(self, seconds: int) -> float:
        """How long the holder may lead without renewing: as long as ours, unless its settings said longer."""
        if seconds <= math.ceil(self._lease_s):  # whole seconds is all that a Lease can say
            return self._lease_s
        return min(float(seconds), LONGEST * self._lease_s)

    def _put(self, version: str, before: LeaseSpec) -> bool:
        """Compare-and-set: of two who try, one gets a 409. Without an answer we hold the lead until HOLD is over."""
        sent, self._version = self._monotonic(), ""
        try:
            self._hold(self._api.replace(self._path, self._body(version, before), LeaseObject), sent)
        except ApiError as error:
            if error.conflict or error.not_found:  # taken, removed, or an earlier renewal arrived after all: look
                return False
            self._version = version
            raise
        return True

    def _create(self) -> None:
        sent = self._monotonic()
        self._renewed = -math.inf
        try:
            made = self._api.create(self._path.rpartition("/")[0], self._body("", LeaseSpec()), LeaseObject)
            self._hold(made, sent)
        except ApiError as error:
            if not error.conflict:
                raise

    def _hold(self, written: LeaseObject, sent: float) -> None:
        self._version, self._spec, self._renewed = written.metadata.resource_version, written.spec, sent
        self._sight = _Sight(self._version, self.identity, sent)
        if self._keeper is None or not self._keeper.is_alive():
            self._keeper = threading.Thread(target=self._keep, name="lease keeper", daemon=True)
            self._keeper.start()

    def _body(self, version: str, before: LeaseSpec, holder: str | None = None) -> dict[str, object]:
        """The object to write: made, taken, renewed, or (`holder` "") freed."""
        ours = self.identity if holder is None else holder
        now = datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        same = before.holder_identity == self.identity
        spec = {
            "holderIdentity": ours,
            "leaseDurationSeconds": max(1, math.ceil(self._lease_s)),
            "acquireTime": before.acquire_time if same and before.acquire_time else now,
            "renewTime": now,
            "leaseTransitions": before.lease_transitions + (not same),
        }
        metadata = {"name": self._name, "namespace": self._namespace}
        if version:
            metadata["resourceVersion"] = version
        kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        return {**kind, "metadata": metadata, "spec": spec}
