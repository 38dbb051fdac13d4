"""What an API server's "no" means for an action: asked again, failed, or not let in."""

from __future__ import annotations

import pytest

from sickbay.errors import ApiError, Unreachable
from sickbay.model import Failed, Outcome, Retry, Unguarded, Verb
from sickbay.platforms.kubernetes.platform import answered

NODE = "/api/v1/nodes/a"


@pytest.mark.parametrize(
    ("error", "verb", "means"),
    [
        (Unreachable(f"GET {NODE}", "timed out"), Verb.REBOOT, Retry),
        (ApiError(429, "TooManyRequests", "later", f"PATCH {NODE}"), Verb.CORDON, Retry),
        (ApiError(500, "InternalError", "etcd", f"PATCH {NODE}"), Verb.CORDON, Retry),
        (ApiError(401, "Unauthorized", "Unauthorized", f"PATCH {NODE}"), Verb.REBOOT, Retry),
        (ApiError(403, "Forbidden", "cannot get resource", f"GET {NODE}"), Verb.REBOOT, Retry),
        (ApiError(403, "Forbidden", "cannot patch resource", f"PATCH {NODE}"), Verb.CORDON, Failed),
        (ApiError(403, "Forbidden", "cannot patch resource", f"PATCH {NODE}"), Verb.REBOOT, Unguarded),
        (ApiError(422, "Invalid", "change freeze", f"PATCH {NODE}"), Verb.RESET_GPU, Unguarded),
    ],
)
def test_only_a_write_that_is_refused_for_good_is_an_answer(error: ApiError, verb: Verb, means: type[Outcome]) -> None:
    """A read that is refused says nothing about a reboot that runs; a treatment that was not let in was not tried."""
    said = answered(error, verb)
    assert isinstance(said, means)
    assert error.said in str(said)
