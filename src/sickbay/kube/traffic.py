"""How many requests this process has made of API servers, by verb and status. Counted by kube/api.py, read by /metrics.

One for the process, since store, lease and platform have connections of their own and an operator asks for the sum.
"""

from __future__ import annotations

import threading

DENIED = b"ValidatingAdmissionPolicy"  # in its words: such a denial has the status of a body that is not valid, 422

_counts: dict[tuple[str, str], int] = {}
_lock = threading.Lock()


def count(verb: str, status: int, said: bytes = b"") -> None:
    """`status` 0: there was no answer. Verbs and statuses are few, so this is bounded."""
    key = (verb, _called(status, said))
    with _lock:
        _counts[key] = _counts.get(key, 0) + 1


def _called(status: int, said: bytes) -> str:
    if status == 422 and DENIED in said:
        return "denied"
    return str(status) if status else "none"


def requests() -> list[tuple[tuple[str, str], int]]:
    return sorted(_counts.copy().items())
