"""Is a controller at work on this store? Read off the lock or lease that whoever leads must hold, never off a guess.

Called by the command line. Where a store decides its lead in another way, it gets a function here. It only looks: a
moment's shared lock at most, so that a controller that starts just then tries again a second later.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sickbay.controller.leader import FileLeader
from sickbay.errors import ApiError
from sickbay.settings import KubernetesSettings

LOCK = "leader.lock"
STALE_LEASES = 4  # a lease not renewed for so many times its length is nobody's: clocks differ, so not at the first
STALE_LEAST_S = 60.0


@dataclass(frozen=True, slots=True)
class Presence:
    """`leads` is None where it cannot be seen, and `who` says why."""

    leads: bool | None
    who: str = ""


def by_lock(folder: Path) -> Presence:
    """On a file: the kernel frees the lock the moment its holder dies."""
    path = folder / LOCK
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return Presence(False)
    except OSError as error:
        return Presence(None, f"{path} cannot be opened: {error.strerror}")
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return Presence(False)
    except BlockingIOError:
        return Presence(True, FileLeader(path).holder())
    except OSError as error:
        return Presence(None, f"{path} cannot be locked: {error.strerror}")
    finally:
        os.close(fd)


def by_lease(kube: KubernetesSettings, cluster: str, now: float) -> Presence:
    """In a cluster: a lease that is renewed every few seconds, read by the API server's clock."""
    from sickbay.kube import names
    from sickbay.kube.api import open_api
    from sickbay.kube.objects import LeaseObject

    try:
        with closing(open_api(kube.kubeconfig, kube.context)) as api:
            name = names.object_name(lease_name(cluster))
            found = api.find(names.lease(kube.namespace, name), LeaseObject)
            now += api.ahead_s
    except ApiError as error:
        return Presence(None, f"the lease cannot be read: {error}")
    if found is None or not found.spec.holder_identity:
        return Presence(False)
    silent = now - _moment(found.spec.renew_time or "")
    fresh = silent <= max(STALE_LEAST_S, STALE_LEASES * found.spec.lease_duration_seconds)
    return Presence(fresh, found.spec.holder_identity if fresh else "")


def lease_name(cluster: str) -> str:
    return f"sickbay-{cluster}"


def _moment(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
