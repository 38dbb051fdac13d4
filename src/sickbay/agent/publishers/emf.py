"""Publisher emf: host metrics as CloudWatch embedded metric format, JSON lines on standard output.

Whatever ships the container's log to CloudWatch Logs makes metrics of them; no AWS call is made from here. Names follow
the originals' CloudWatch agent (001.6) where it has them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sickbay.agent.measures import Measures
from sickbay.agent.publishers import Item, Publisher, Told
from sickbay.agent.publishers.stdout import write_line

NAMESPACE = "Sickbay"
UNITS = {"percent": "Percent", "bytes": "Bytes", "bytes_per_s": "Bytes/Second", "per_s": "Count/Second", "": "None"}


class EmfPublisher(Publisher):
    name = "emf"
    takes: type[Told] | type[Measures] = Measures

    def __init__(self, node: str, handle: int = 1) -> None:
        self._node, self._handle = node, handle
        self._sent = 0

    def publish(self, item: Item) -> None:
        if isinstance(item, Measures):
            for document in documents(item, self._node):
                write_line(self._handle, msgspec.json.encode(document))
            self._sent += 1

    def figures(self) -> dict[str, float]:
        return {"sent": float(self._sent)}


def documents(measures: Measures, node: str) -> list[dict[str, Any]]:
    """One for the host, one for each GPU: figures of one document share their dimensions."""
    by_label: dict[str, dict[str, tuple[float, str]]] = {}
    for one in measures.all:
        by_label.setdefault(one.label, {})[one.name] = (one.value, one.unit)
    return [_document(measures.at, node, label, figures) for label, figures in by_label.items()]


def _document(at: float, node: str, label: str, figures: dict[str, tuple[float, str]]) -> dict[str, Any]:
    kind, _, which = label.partition("=")
    dimensions = {"host": node} | ({kind: which} if label else {})
    metrics = [{"Name": name, "Unit": UNITS.get(unit, "None")} for name, (_, unit) in list(figures.items())[:100]]
    about = {"Namespace": NAMESPACE, "Dimensions": [list(dimensions)], "Metrics": metrics}
    values = {name: value for name, (value, _) in figures.items()}
    return {"_aws": {"Timestamp": int(at * 1000), "CloudWatchMetrics": [about]}, **dimensions, **values}
