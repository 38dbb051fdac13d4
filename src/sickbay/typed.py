"""What msgspec must know of a type before it can read one: built once, by one thread at a time.

msgspec builds it at the first use of a type, and publishes it half built while it looks at the types inside: a second
thread that reads the same type in that moment crashes the process (0.22.0, segmentation fault: tests/test_typed.py).
So whoever reads nested types from several threads builds them here first. Called by wire and kube; it reads nothing.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_building = threading.Lock()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of a type; after this msgspec may also be asked for the type in any other way."""
    known = _decoders.get(kind)
    if known is not None:
        return known
    with _building:
        return _decoders.setdefault(kind, msgspec.json.Decoder(kind))


def built(kind: type[T]) -> type[T]:
    """The type itself, for those who read it by msgspec.json.decode or msgspec.convert."""
    decoder(kind)
    return kind
