"""Publisher stdout: each Report as one JSON line. Where a log shipper reads the container's output, this is enough."""

from __future__ import annotations

import os
import threading

from sickbay import wire
from sickbay.agent.measures import Measures
from sickbay.agent.publishers import Item, Publisher, Told

_WHOLE_LINES = threading.Lock()  # stdout and emf may write to the same place


def write_line(handle: int, data: bytes) -> None:
    """One whole line, however small a pipe's pieces are."""
    view = memoryview(data + b"\n")
    with _WHOLE_LINES:
        while view:
            view = view[os.write(handle, view) :]


class StdoutPublisher(Publisher):
    name = "stdout"
    takes: type[Told] | type[Measures] = Told

    def __init__(self, handle: int = 1) -> None:
        self._handle = handle
        self._sent = 0

    def publish(self, item: Item) -> None:
        if isinstance(item, Told):
            write_line(self._handle, wire.encode(item.report))
            self._sent += 1

    def figures(self) -> dict[str, float]:
        return {"sent": float(self._sent)}
