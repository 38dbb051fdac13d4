"""The client, against a real API server: what it reads, what it never repeats, and how it says no."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from sickbay.errors import ApiError, Unreachable, UserError
from sickbay.kube.access import from_kubeconfig
from sickbay.kube.api import Api, segment
from sickbay.kube.conflicts import settle
from sickbay.kube.objects import Anything
from testbed.cluster import Cluster
from testbed.proxy import Proxy


@pytest.fixture
def path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[Proxy]:
    with cluster.proxy() as proxy:
        yield proxy


@pytest.fixture
def proxied(proxy: Proxy) -> Iterator[Api]:
    api = Api(from_kubeconfig(proxy.kubeconfig), timeout_s=1.0)
    yield api
    api.close()


def _a_map(name: str, **labels: str) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": labels}, "data": {"text": "x"}}


def test_what_is_not_there_is_none_or_an_error_that_says_what(api: Api, path: str) -> None:
    assert api.find(f"{path}/nobody", Anything) is None
    with pytest.raises(
        ApiError, match=r'GET .*/configmaps/nobody: 404 NotFound: configmaps "nobody" not found'
    ) as told:
        api.get(f"{path}/nobody", Anything)
    assert told.value.not_found
    api.delete(f"{path}/nobody")


def test_a_second_create_and_an_old_version_are_conflicts(api: Api, path: str) -> None:
    made = api.create(path, _a_map("a"), Anything)
    with pytest.raises(ApiError) as told:
        api.create(path, _a_map("a"), Anything)
    assert told.value.conflict
    api.patch(f"{path}/a", {"data": {"text": "y"}}, Anything)
    stale = {"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"text": "z"}}
    with pytest.raises(ApiError, match="the object has been modified") as told:
        api.patch(f"{path}/a", stale, Anything)
    assert told.value.conflict


def test_a_write_is_decided_anew_while_others_are_faster_and_given_up_after_a_few(api: Api, path: str) -> None:
    api.create(path, _a_map("a"), Anything)
    rivals = iter("bcd")

    def ask() -> str:
        seen = api.get(f"{path}/a", Anything).metadata.resource_version
        if (word := next(rivals, "")) != "":
            api.patch(f"{path}/a", {"data": {"text": word}}, Anything)
        mine = {"metadata": {"resourceVersion": seen}, "data": {"text": "mine"}}
        return api.patch(f"{path}/a", mine, dict[str, Any])["data"]["text"]  # type: ignore[no-any-return]

    assert settle(ask) == "mine"
    rivals = iter("bcdefgh")
    with pytest.raises(ApiError, match="the object has been modified"):
        settle(ask)
    assert next(rivals) == "g", "five tries"


def test_a_body_that_the_server_does_not_accept_is_refused_with_its_words(api: Api, path: str) -> None:
    with pytest.raises(ApiError, match=r"422 Invalid: .*Not_A_Name") as told:
        api.create(path, _a_map("Not_A_Name"), Anything)
    assert told.value.refused


def test_long_lists_come_in_pages_of_bounded_size(api: Api, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sickbay.kube.api.PAGE", 2)
    for number in range(5):
        api.create(path, _a_map(f"m{number}", kind="ours"), Anything)
    pages = list(api.pages(path, Anything, labelSelector="kind=ours"))
    assert [len(items) for items, _ in pages] == [2, 2, 1]
    assert len({meta.resource_version for _, meta in pages}) == 1
    assert [one.metadata.name for one in api.list(path, Anything, labelSelector="kind=ours")] == [
        f"m{number}" for number in range(5)
    ]


def test_a_name_cannot_leave_its_place_in_the_path() -> None:
    assert segment("../../nodes/x?y=z#") == "..%2F..%2Fnodes%2Fx%3Fy%3Dz%23"


def test_connections_are_kept_and_shared_by_threads(proxy: Proxy, proxied: Api, path: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: proxied.list(path, Anything), range(40)))
    assert 1 <= proxy.connections() <= 4
    proxied.close()


def test_a_read_survives_a_connection_that_was_cut_while_it_lay_idle(proxy: Proxy, proxied: Api, path: str) -> None:
    for _ in range(3):
        proxied.list(path, Anything)
        proxy.cut()


def test_a_write_is_never_sent_twice(proxy: Proxy, proxied: Api, path: str, api: Api) -> None:
    """It may have arrived: only the caller can tell what to do then."""
    proxy.freeze()
    began = time.monotonic()
    with pytest.raises(Unreachable, match=r"POST .*configmaps: 0 Unreachable: .*timed out"):
        proxied.create(path, {"metadata": {"generateName": "twin-"}}, Anything)
    assert time.monotonic() - began < 3.0
    proxy.thaw()
    time.sleep(0.3)
    twins = [one for one in api.list(path, Anything) if one.metadata.name.startswith("twin-")]
    assert len(twins) <= 1


def test_a_silent_server_is_given_up_in_time(proxy: Proxy, proxied: Api, path: str) -> None:
    proxied.list(path, Anything)
    proxy.freeze()
    began = time.monotonic()
    with pytest.raises(Unreachable, match="timed out"):
        proxied.list(path, Anything)
    assert time.monotonic() - began < 4.0  # two tries of a second each


def test_connections_that_died_in_silence_cost_one_time_limit_not_one_each(
    proxy: Proxy, proxied: Api, path: str
) -> None:
    """A balancer that lost its table: what lies idle is half open, all of it."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: proxied.list(path, Anything), range(40)))
    proxy.forget()
    began = time.monotonic()
    proxied.list(path, Anything)
    assert time.monotonic() - began < 3.0, "one of a second, and the second try is on a new one"
    with pytest.raises(ApiError, match="404"):
        proxied.patch(f"{path}/nobody", {}, Anything)


def test_a_kept_connection_asks_by_itself_whether_its_peer_lives(proxied: Api, path: str) -> None:
    proxied.list(path, Anything)
    (kept,) = proxied._idle
    assert kept.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert kept.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000


class BusyApi(Api):
    """A server that is too busy for the first few requests."""

    def __init__(self, api: Api, times: int, *causes: str) -> None:
        super().__init__(api.access)
        self.left, self.causes = times, causes

    def _ask(self, connection: Any, method: str, *more: Any) -> bytes:
        if not self.left:
            return super()._ask(connection, method, *more)
        self.left -= 1
        raise ApiError(429, "TooManyRequests", "please try again later", method, causes=self.causes)


def test_a_write_that_a_busy_server_did_not_take_is_made_shortly_after(
    api: Api, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sickbay.kube.api.BUSY_S", (0.0, 0.0, 0.0))
    busy = BusyApi(api, 3)
    busy.create(path, _a_map("a"), Anything)
    busy.close()
    assert api.find(f"{path}/a", Anything)
    with pytest.raises(ApiError, match="429"):
        BusyApi(api, 4).create(path, _a_map("b"), Anything)


def test_an_eviction_that_a_budget_forbids_is_told_at_once(api: Api, path: str) -> None:
    budget = BusyApi(api, 4, "The disruption budget a needs 1 healthy pods and has 1 currently")
    with pytest.raises(ApiError, match="429"):
        budget.create(path, {}, Anything)
    assert budget.left == 3


def test_credentials_that_cannot_be_had_for_a_moment_are_no_refusal(api: Api, path: str) -> None:
    def hiccup() -> str:
        raise UserError("config: aws gave no credentials: could not connect to sts")

    with pytest.raises(Unreachable, match="could not connect to sts"):
        Api(replace(api.access, token=hiccup)).list(path, Anything)


def test_a_server_that_is_not_there_is_unreachable_at_once(api: Api, path: str) -> None:
    nowhere = Api(replace(api.access, port=1))
    with pytest.raises(Unreachable, match="Connection refused"):
        nowhere.list(path, Anything)


def test_a_server_with_another_certificate_is_not_spoken_to(api: Api, path: str) -> None:
    stranger = Api(replace(api.access, tls=ssl.create_default_context))
    with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        stranger.list(path, Anything)


def test_a_stream_is_silent_only_as_long_as_it_may_be(proxied: Api, path: str) -> None:
    params = {"watch": "true", "resourceVersion": "0", "timeoutSeconds": "30", "labelSelector": "kind=nothing"}
    began = time.monotonic()
    with proxied.stream(path, params, quiet_s=0.4) as answer, pytest.raises(TimeoutError):
        answer.read1(1000)
    assert 0.3 < time.monotonic() - began < 3.0


def test_a_stream_that_is_refused_says_why(api: Api, namespace: str) -> None:
    with (
        pytest.raises(ApiError, match="404"),
        api.stream(f"/api/v1/namespaces/{namespace}/pods/nobody/log", {"follow": "true"}, 1.0),
    ):
        pass
