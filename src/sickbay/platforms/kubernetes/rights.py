"""A right that is missing: told apart from other refusals, in words that say which one and how to give it back.

Called by platform, cordon and evictions. A missing right comes back when somebody mends a role, so what lacks it is
asked again; an admission policy that denies, or an object that is not valid, will say the same again. Pure.
"""

from __future__ import annotations

from sickbay.errors import ApiError

MISSING = "a right is missing"
AGAIN_S = 60.0  # nobody mends a role within seconds


def is_missing(error: ApiError) -> bool:
    """RBAC's own sentence: User "x" cannot patch resource "nodes" ... (a policy that denies has other words)."""
    return error.status == 403 and " cannot " in error.said and " resource " in error.said


ROLES = "our roles are in the chart (helm upgrade) and in deploy/kubernetes/ (kubectl apply -f deploy/kubernetes/)"


def words(error: ApiError) -> str:
    return f"{MISSING}: {error.said}. It is asked for again every minute; {ROLES}"


def named(error: ApiError) -> str:
    """Where whoever asks says himself when he asks again."""
    return f"{MISSING}: {error.said}; {ROLES}"
