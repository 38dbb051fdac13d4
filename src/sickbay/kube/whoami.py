"""Who the API server takes us for: the name that it holds against `by` of a Command or Pause (people-policy.yaml).

The command line asks before it writes one. It must never guess: a name that the server did not say is refused there.
"""

from __future__ import annotations

import msgspec

from sickbay.errors import UserError
from sickbay.kube.api import Api
from sickbay.kube.objects import Shape

PATH = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
BODY = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


class _User(Shape):
    username: str = ""


class _Status(Shape):
    user_info: _User = msgspec.field(default_factory=_User)


class _Review(Shape):
    status: _Status = msgspec.field(default_factory=_Status)


def username(api: Api) -> str:
    """As in `kubectl auth whoami`. ApiError when the server does not say, UserError when it knows nobody."""
    name = api.create(PATH, BODY, _Review).status.user_info.username
    if not name:
        raise UserError("The API server does not say who you are (`kubectl auth whoami`), so nothing was written.")
    return name
