"""What an API server's "no" means for an action: asked again, failed, or not let in."""

from __future__ import annotations

import pytest

from sickbay.errors import ApiError, Unreachable
from sickbay.model import Failed, Outcome, Retry, Unguarded, Verb
from sickbay.platforms.kubernetes import rights
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


RBAC = 'nodes "n1" is forbidden: User "sickbay" cannot patch resource "nodes" in API group "" at the cluster scope'


def test_a_right_that_is_missing_is_asked_for_again_and_named_with_what_gives_it_back() -> None:
    outcome = answered(ApiError(403, "Forbidden", RBAC, f"PATCH {NODE}"), Verb.COLLECT)
    assert isinstance(outcome, Retry)
    assert 'cannot patch resource "nodes"' in outcome.why
    assert "helm upgrade" in outcome.why
    assert "kubectl apply -f deploy/kubernetes/" in outcome.why


def test_a_treatment_that_lacks_a_right_was_not_tried() -> None:
    assert isinstance(answered(ApiError(403, "Forbidden", RBAC, "POST /apis/batch/v1/jobs"), Verb.REBOOT), Unguarded)


@pytest.mark.parametrize("verb", [Verb.CORDON, Verb.DRAIN, Verb.RELEASE])
def test_a_cordon_a_drain_or_a_release_that_lacks_a_right_is_told_at_once_and_is_worth_asking_again(verb: Verb) -> None:
    outcome = answered(ApiError(403, "Forbidden", RBAC, "POST /api/v1/pods/x/eviction"), verb)
    assert outcome == Failed(rights.words(ApiError(403, "Forbidden", RBAC, "")), lacks=True)
