"""Requests to the API server are counted by verb and status, for `sickbay_api_requests_total`."""

from __future__ import annotations

import pytest

from sickbay.errors import ApiError, Unreachable
from sickbay.kube import names, traffic
from sickbay.kube.access import Access
from sickbay.kube.api import Api
from sickbay.kube.objects import NodeObject


def counted(verb: str, status: str) -> int:
    return dict(traffic.requests()).get((verb, status), 0)


def test_answers_are_counted_by_what_the_server_said(api: Api) -> None:
    good, missing = counted("GET", "200"), counted("GET", "404")
    api.list(names.NODES, NodeObject)
    with pytest.raises(ApiError):
        api.get(f"{names.NODES}/there-is-no-such-node", NodeObject)
    assert counted("GET", "200") >= good + 1
    assert counted("GET", "404") >= missing + 1


def test_a_body_that_is_not_valid_is_not_called_denied(api: Api) -> None:
    """Both are 422. What our own policies deny is counted apart, and alerted on: test_deploy_fences.py."""
    before, denied = counted("POST", "422"), counted("POST", "denied")
    with pytest.raises(ApiError):
        api.create("/api/v1/namespaces", {"metadata": {"name": "Not A Name"}}, NodeObject)
    assert counted("POST", "422") == before + 1
    assert counted("POST", "denied") == denied


def test_a_server_that_does_not_answer_is_counted_as_none(api: Api) -> None:
    before = counted("DELETE", "none")
    away = Api(_elsewhere(api.access), timeout_s=1.0)
    with pytest.raises(Unreachable):
        away.delete(f"{names.NODES}/n")
    assert counted("DELETE", "none") == before + 1


def _elsewhere(access: Access) -> Access:
    from dataclasses import replace

    return replace(access, port=1)
