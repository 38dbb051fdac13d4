"""What an API server's answers mean to the store: deletions, and refusals in plain words.

Called by stores/kubernetes.py. It must never do IO.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.stores.kubernetes_objects import KINDS


class _Details(msgspec.Struct):
    uid: str = ""


class Deleted(msgspec.Struct):
    details: _Details = msgspec.field(default_factory=_Details)


def is_object(error: ApiError, kind: type[Any]) -> bool:
    """A 404 about this object; not about the namespace, nor about the whole kind."""
    return f"{KINDS[kind].plural}.{names.GROUP}" in error.said


def explained(error: ApiError, namespace: str) -> str:
    """What it means and what to do, then the server's own words."""
    if error.reason == "Unreachable":
        return f"the API server cannot be reached, whether a write arrived is not known ({error})"
    if error.not_found and "namespaces" in error.said:
        return f"there is no namespace {namespace}: create it, or set kubernetes.namespace ({error})"
    if error.not_found:
        return f"our custom resource definitions are not installed: kubectl apply -f deploy/kubernetes/crds/ ({error})"
    if error.status in (401, 403):
        return f"we are not allowed to: see the Role in deploy/kubernetes/ ({error})"
    if error.status in (413, 422):
        return f"the API server does not accept the record ({error})"
    return f"the API server cannot do it now ({error})"
