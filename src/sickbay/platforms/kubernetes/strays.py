"""Nodes that carry our mark and are not selected: found by one list when the eyes open.

Called by watching. A node whose last GPU has fallen off the bus loses the label that selects it. Whoever saw that goes
on following it; the next leader, or a fresh install, would never hear of it, and its cordon and taint would stay.
A read of what is there. It must never take up a mark that another Sickbay of this cluster has put.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sickbay.kube import names
from sickbay.kube.objects import Anything, NodeObject
from sickbay.platforms.kubernetes import marks
from sickbay.platforms.kubernetes.site import Site

_ONE_LABEL = re.compile(r"([^\s=!(),]+)(==?[^\s=!(),]*)?")


def marked(site: Site) -> Iterator[str]:
    """Names of nodes with a mark, of those that the selector may have let go. Page by page; only metadata is read."""
    for page, _ in site.api.pages(names.NODES, Anything, **without(site.settings.gpu_selector)):
        yield from (node.metadata.name for node in page if node.metadata.annotation(site.keys.case))


def without(selector: str) -> dict[str, str]:
    """What to ask for: of a selector by one label (the default is one) the nodes that lack it, else all there are. One
    that has another value belongs to whoever selects by that."""
    one = _ONE_LABEL.fullmatch(selector.strip())
    return {"labelSelector": f"!{one[1]}"} if one else {}


def is_ours(site: Site, node: NodeObject) -> bool:
    """Marked, and by us: an earlier version of ours did not say in whose name."""
    found = marks.read_found(node, site.keys)
    home = found.home if found is not None else ""
    return bool(marks.mark_of(node, site.keys)) and home in ("", site.settings.namespace)
