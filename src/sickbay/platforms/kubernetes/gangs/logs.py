"""The last lines of a pod's log, through the API server, bounded in bytes and in time.

Called when a gang is stopped (what did the ranks say before they died?) and by the reader of progress. What a log says
is its user's text: cut, never believed beyond a number or a quote.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.objects import PodObject
from sickbay.platforms.kubernetes.site import Site

TAIL_LINES, TAIL_BYTES = 60, 65_536
LINE = 400  # characters
AT_ONCE = 8


def read(site: Site, pod: PodObject, lines: int = TAIL_LINES) -> tuple[str, ...]:
    """ApiError when nobody can say: its node is gone, it never started, or it has no log any more."""
    first = next((c.name for c in pod.spec.containers or ()), "")
    params = {"tailLines": str(lines), "limitBytes": str(TAIL_BYTES), **({"container": first} if first else {})}
    said = site.api.request("GET", f"{names.pod(pod.metadata.namespace, pod.metadata.name)}/log", params=params)
    return tuple(line[:LINE] for line in said[-TAIL_BYTES:].decode("utf-8", "replace").splitlines()[-lines:])


def tail(site: Site, pod: PodObject) -> tuple[str, ...]:
    """() when nobody can say."""
    try:
        return read(site, pod)
    except ApiError:
        return ()


def tails(site: Site, pods: Sequence[PodObject]) -> list[tuple[str, ...]]:
    """Of several, side by side."""
    if not pods:
        return []
    with ThreadPoolExecutor(min(AT_ONCE, len(pods))) as pool:
        return list(pool.map(lambda pod: tail(site, pod), pods))
