"""Kubernetes Events: what `kubectl describe` shows under a node, a job or a pod. The same words again are counted.

Called by the agent's publisher, the notifier and the job verbs. Bounded: of one reason about one object so many are
written in a row, then one a minute; and the API server forgets them all after an hour. It must never be the only place
where something is said.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.api import Api, segment
from sickbay.kube.objects import Shape
from sickbay.kube.results import stamp

LONGEST = 1_000  # characters of a message: the newer events API takes 1,024 bytes
BURST, EVERY_S = 10, 60.0  # of one reason about one object
MOST_KNOWN = 4_096

NORMAL, WARNING = "Normal", "Warning"


class _Counted(Shape):
    count: int = 0


class Rate:
    """How often something may be said: a burst, then at intervals. Safe from many threads, of bounded size."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._spent: OrderedDict[tuple[str, ...], tuple[float, float]] = OrderedDict()  # key -> (how much, when)

    def allows(self, *key: str) -> bool:
        with self._lock:
            now = self._clock()
            spent, at = self._spent.pop(key, (0.0, now))
            spent = max(0.0, spent - (now - at) / EVERY_S)
            allowed = spent + 1.0 <= BURST
            self._spent[key] = (spent + allowed, now)
            if len(self._spent) > MOST_KNOWN:
                self._spent.popitem(last=False)
            return allowed


_rate = Rate()


def about_node(name: str, uid: str = "") -> dict[str, str]:
    """`kubectl describe node` looks for the node's uid, or its name in the place of one, as kubelets write it."""
    return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid or name}


def event(
    api: Api, namespace: str, about: Mapping[str, str], type: str, reason: str, message: str, component: str,
    *, at: float | None = None, rate: Rate | None = None,
) -> bool:  # fmt: skip
    """Write it; False if there were too many of this kind and it was left out. ApiError as it comes.

    `about`: apiVersion, kind, name, uid, and namespace if it has one. Events about objects without a namespace live in
    "default", whatever `namespace` says: the API server takes them nowhere else.
    """
    if not (rate or _rate).allows(about.get("kind", ""), about.get("namespace", ""), about.get("name", ""), reason):
        return False
    folder = names.events(about.get("namespace") or "default")
    body = _body(dict(about), type, reason, _short(message), component, time.time() if at is None else at)
    try:
        api.create(folder, body, _Counted)
    except ApiError as error:
        if not error.conflict:
            raise
        _again(api, f"{folder}/{segment(body['metadata']['name'])}", body)
    return True


def _again(api: Api, path: str, body: Mapping[str, Any]) -> None:
    """It was said before: count it. Two who do so at once may count one; the words are there either way."""
    found = api.find(path, _Counted)
    if found is not None:
        api.patch(path, {"count": found.count + 1, "lastTimestamp": body["lastTimestamp"]}, _Counted)


def _body(
    about: dict[str, str], type: str, reason: str, message: str, component: str, at: float
) -> dict[str, Any]:  # fmt: skip
    when, namespace = stamp(at), about.get("namespace") or "default"
    return {
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": _name(about, type, reason, message, component), "namespace": namespace},
        "involvedObject": about, "type": type, "reason": reason[:128], "message": message,
        "source": {"component": component}, "reportingComponent": component,
        "firstTimestamp": when, "lastTimestamp": when, "count": 1,
    }  # fmt: skip


def _name(about: Mapping[str, str], *said: str) -> str:
    """The same for the same words about the same object: that is what makes one Event of many."""
    digest = hashlib.sha256(msgspec.json.encode([sorted(about.items()), said])).hexdigest()[:16]
    return f"{about.get('name', '')[:200].rstrip('.-')}.{digest}"


def _short(message: str) -> str:
    """Whole characters within the bytes that the API server takes."""
    data = message.encode("utf-8", "replace")
    return message if len(data) <= LONGEST else data[: LONGEST - 3].decode("utf-8", "ignore") + "…"
