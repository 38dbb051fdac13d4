"""Following objects of a real API server through everything that cuts a watch short."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sickbay.errors import ApiError, StoreError
from sickbay.kube import names
from sickbay.kube.access import from_kubeconfig
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything
from sickbay.kube.watch import Gone, Put, Reflector, Synced
from testbed.cluster import Cluster
from testbed.proxy import Proxy
from testbed.waiting import until

from .shelf import install_crds


class Listener:
    """What was told, as short words, and the world it adds up to."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.world: dict[str, str] = {}

    def __call__(self, told: Put[Anything] | Gone | Synced) -> None:
        if isinstance(told, Put):
            meta = told.object.metadata
            self.world[meta.name] = meta.uid
            self.words.append(f"put {meta.name}")
        elif isinstance(told, Gone):
            assert self.world.pop(told.name) == told.uid
            assert told.version > 0
            self.words.append(f"gone {told.name}")
        else:
            self.words.append("synced")


class Maps:
    """ConfigMaps, the plainest objects there are, in one namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.path = api, f"/api/v1/namespaces/{namespace}/configmaps"
        self.more: dict[str, Any] = {}

    def put(self, name: str, **data: str) -> Anything:
        made = {"metadata": {"name": name, "labels": {"kind": "ours"}}, "data": data, **self.more}
        return self.api.create(self.path, made, Anything)

    def change(self, name: str, **body: Any) -> None:
        self.api.patch(f"{self.path}/{name}", body or {"data": {"at": str(time.time())}}, Anything)

    def drop(self, name: str) -> None:
        self.api.delete(f"{self.path}/{name}")


@pytest.fixture
def maps(api: Api, namespace: str) -> Maps:
    return Maps(api, namespace)


Follow = Callable[..., tuple[Reflector[Anything], Listener]]
Through = Callable[..., Api]


@pytest.fixture
def follow(maps: Maps) -> Iterator[Follow]:
    """Only our own objects: the controllers put a ConfigMap into every namespace."""
    begun: list[Reflector[Anything]] = []

    def follow(through: Api | None = None, **more: Any) -> tuple[Reflector[Anything], Listener]:
        heard: Any = more.pop("sink", None) or Listener()
        params = {"labelSelector": "kind=ours"}
        path = more.pop("path", maps.path)
        reflector = Reflector(through or maps.api, path, Anything, heard, params=params, **more)
        begun.append(reflector.start())
        return reflector, heard

    yield follow
    for reflector in begun:
        reflector.stop()


@pytest.fixture
def through() -> Iterator[Through]:
    """A client whose way to the server can be broken."""
    made: list[Api] = []

    def through(proxy: Proxy, **more: Any) -> Api:
        made.append(Api(from_kubeconfig(proxy.kubeconfig), **more))
        return made[-1]

    yield through
    for api in made:
        api.close()


def _hears(heard: Listener, *words: str) -> None:
    until(lambda: heard.words[-len(words) :] == list(words), f"{words} is told after {heard.words}")


# --- following --------------------------------------------------------------------------------------------------------


def test_what_is_there_is_told_then_what_changes_in_order(maps: Maps, follow: Follow) -> None:
    maps.put("a")
    reflector, heard = follow()
    assert reflector.synced.wait(10)
    assert heard.words == ["put a", "synced"]
    maps.put("b")
    maps.change("a")
    maps.drop("b")
    _hears(heard, "synced", "put b", "put a", "gone b")
    assert reflector.there() == {"a"}


def test_a_list_is_read_in_pages_and_told_whole(maps: Maps, follow: Follow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sickbay.kube.api.PAGE", 3)
    for number in range(8):
        maps.put(f"m{number}")
    reflector, heard = follow()
    assert reflector.synced.wait(10)
    assert heard.words == [*(f"put m{number}" for number in range(8)), "synced"]
    maps.put("later")
    _hears(heard, "put later")


def test_an_object_that_no_longer_matches_the_selector_is_gone(maps: Maps, follow: Follow) -> None:
    maps.put("a")
    reflector, heard = follow()
    assert reflector.synced.wait(10)
    maps.change("a", metadata={"labels": {"kind": "theirs"}})
    _hears(heard, "gone a")


def test_a_large_object_among_small_ones_is_told_whole(maps: Maps, follow: Follow) -> None:
    reflector, heard = follow()
    assert reflector.synced.wait(10)
    maps.put("small")
    maps.put("large", text="x" * 900_000)
    maps.put("last")
    _hears(heard, "put small", "put large", "put last")


def test_stopping_is_quick_and_nothing_is_told_afterwards(maps: Maps, follow: Follow) -> None:
    reflector, heard = follow()
    assert reflector.synced.wait(10)
    began = time.monotonic()
    reflector.stop()
    assert time.monotonic() - began < 1.0
    maps.put("unheard")
    assert heard.words == ["synced"]
    assert not [thread for thread in threading.enumerate() if thread is reflector._thread]


# --- interruptions ----------------------------------------------------------------------------------------------------


def test_after_a_cut_the_watch_goes_on_where_it_was_and_deletions_are_told(
    cluster: Cluster, maps: Maps, follow: Follow, through: Through
) -> None:
    maps.put("a")
    maps.put("b")
    with cluster.proxy() as proxy:
        reflector, heard = follow(through(proxy))
        until(lambda: reflector.watches == 1, "it watches")
        proxy.freeze()
        maps.drop("a")
        maps.put("c")
        proxy.cut()
        proxy.thaw()
        _hears(heard, "synced", "gone a", "put c")
        assert reflector.lists == 1
        reflector.stop()


def test_when_the_version_is_forgotten_everything_is_listed_and_what_vanished_is_told(
    cluster: Cluster, maps: Maps, follow: Follow, through: Through
) -> None:
    """410 Gone: deletions nobody heard, the same name with a new uid, and no word about what did not change.

    On a kind of our own: of those the server remembers nothing from before their definition was applied.
    """
    install_crds(cluster)
    maps.path = names.custom(maps.path.split("/")[4], "noderecords")
    maps.more = {"apiVersion": "sickbay.dev/v1alpha1", "kind": "NodeRecord", "record": {}}
    for name in ("kept", "gone", "again"):
        maps.put(name)
    with cluster.proxy() as proxy:
        reflector, heard = follow(through(proxy))
        until(lambda: reflector.watches == 1, "it watches")
        proxy.freeze()
        maps.drop("gone")
        maps.drop("again")
        uid = maps.put("again").metadata.uid
        reflector._version = "1"  # as after a night offline: the server has long forgotten it
        proxy.cut()
        proxy.thaw()
        _hears(heard, "synced", "gone again", "put again", "gone gone", "synced")
        assert heard.world["again"] == uid
        assert set(heard.world) == {"kept", "again"}
        maps.change("kept", record={"changed": True})
        _hears(heard, "put kept")
        reflector.stop()


def test_a_connection_that_is_open_and_silent_is_given_up(
    cluster: Cluster, maps: Maps, follow: Follow, through: Through
) -> None:
    with cluster.proxy() as proxy:
        reflector, heard = follow(through(proxy, timeout_s=1.0), quiet_s=0.3)
        until(lambda: reflector.watches >= 3, "silence alone makes it begin again, from where it was")
        assert reflector.lists == 1
        proxy.freeze()
        maps.put("meanwhile")
        begun = reflector.watches
        time.sleep(0.5)
        assert heard.words == ["synced"]
        proxy.thaw()
        until(lambda: reflector.watches > begun, "it watches anew")
        _hears(heard, "put meanwhile")
        reflector.stop()


def test_a_server_that_tells_old_news_again_is_not_believed(
    cluster: Cluster, maps: Maps, follow: Follow, through: Through
) -> None:
    maps.put("a")
    with cluster.proxy() as proxy:
        reflector, heard = follow(through(proxy))
        until(lambda: reflector.watches == 1, "it watches")
        before = reflector._version
        maps.change("a")
        maps.change("a")
        maps.put("b")
        _hears(heard, "synced", "put a", "put a", "put b")
        proxy.freeze()
        reflector._version = before
        proxy.cut()
        proxy.thaw()
        maps.put("c")
        _hears(heard, "synced", "put a", "put a", "put b", "put c")
        reflector.stop()


def test_bookmarks_carry_the_version_on_although_nothing_of_ours_happens(api: Api, maps: Maps, follow: Follow) -> None:
    """The server sends one shortly before a watch's time is up; without it, a quiet watch would meet a 410 one day."""
    reflector, heard = follow(watch_s=(3, 3))
    until(lambda: reflector.watches == 1, "it watches")
    made = api.create(maps.path, {"metadata": {"name": "not-ours"}}, Anything)
    until(lambda: reflector.version >= made.metadata.version, "the version goes on")
    assert heard.words == ["synced"]
    assert reflector.lists == 1


def test_the_end_of_a_watch_by_the_servers_clock_loses_nothing(maps: Maps, follow: Follow) -> None:
    reflector, heard = follow(watch_s=(1, 1))
    until(lambda: reflector.watches == 1, "it watches")
    for number in range(20):
        maps.put(f"m{number}")
        time.sleep(0.1)
    until(lambda: len(heard.world) == 20, "all of them")
    assert heard.words == ["synced", *(f"put m{number}" for number in range(20))]
    assert (reflector.lists, reflector.watches > 1) == (1, True)


def test_a_listener_that_breaks_is_told_everything_again(maps: Maps, follow: Follow) -> None:
    heard = Listener()
    broken = [True]

    def sink(told: Put[Anything] | Gone | Synced) -> None:
        if isinstance(told, Put) and told.object.metadata.name == "b" and broken.pop():
            broken.append(False)
            raise ValueError("a bug of ours")
        heard(told)

    maps.put("a")
    reflector, _ = follow(sink=sink)
    assert reflector.synced.wait(10)
    maps.put("b")
    _hears(heard, "put a", "put b", "synced")
    maps.drop("a")
    _hears(heard, "gone a")


@pytest.mark.parametrize(
    "error", [StoreError("not now"), OSError("disk"), KeyError("a")], ids=lambda e: type(e).__name__
)
def test_what_a_listener_did_not_take_in_is_told_again_also_a_deletion(
    maps: Maps, follow: Follow, error: Exception
) -> None:
    heard, fails = Listener(), {"put b", "gone a"}

    def sink(told: Put[Anything] | Gone | Synced) -> None:
        name = told.object.metadata.name if isinstance(told, Put) else getattr(told, "name", "")
        word = f"{'put' if isinstance(told, Put) else 'gone'} {name}"
        if word in fails:
            fails.discard(word)
            raise error
        heard(told)

    maps.put("a")
    reflector, _ = follow(sink=sink)
    assert reflector.synced.wait(10)
    maps.put("b")
    until(lambda: "put b" in heard.words, "it is told again")
    maps.drop("a")
    until(lambda: heard.words[-1] == "synced" and "gone a" in heard.words, "so is the deletion")
    assert not fails
    assert set(heard.world) == {"b"}


def test_a_server_that_answers_each_watch_with_an_error_is_asked_less_and_less(maps: Maps) -> None:
    reflector = Reflector(maps.api, maps.path, Anything, Listener())
    pauses: list[float] = []
    wrong = b'{"type":"ERROR","object":{"kind":"Status","code":500,"reason":"InternalError","message":"etcd"}}'
    for _ in range(5):
        with pytest.raises(ApiError, match="etcd"):
            reflector._hear(wrong)
        pauses.append(reflector._pause)
        reflector._pause *= 2  # as after each rest
    assert pauses == sorted(set(pauses))
    reflector._hear(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}')
    assert reflector._pause == min(pauses)


def test_a_kind_that_is_not_there_is_asked_for_with_patience(follow: Follow, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "sickbay.kube.watch")
    reflector, _ = follow(path="/apis/nothing.example/v1/things")
    until(lambda: caplog.text.count("watch interrupted") >= 4, "it tries again, and says so")
    assert not reflector.synced.is_set()
    assert "404" in caplog.text
    assert "again in 0.8 s" in caplog.text
    aloud = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(aloud) == 1, "a break is told once, not at each try"


def test_a_server_that_restarts_or_hangs_is_followed_again(
    own_cluster: Callable[..., Cluster], follow: Follow, through: Through
) -> None:
    """Its memory of versions is gone too: what was deleted while nobody listened is told after a list."""
    cluster = own_cluster(kwok=False, controllers=False, scheduler=False)
    maps = Maps(cluster.api(), "default")
    maps.put("a")
    maps.put("b")
    with cluster.proxy() as proxy:
        reflector, heard = follow(through(proxy, timeout_s=1.0), path=maps.path, quiet_s=1.0)
        until(lambda: reflector.watches == 1, "it watches")
        proxy.freeze()
        maps.drop("a")
        cluster.stop_apiserver(kill=True)
        proxy.cut()
        proxy.thaw()
        cluster.start_apiserver()
        until(lambda: "gone a" in heard.words, "the deletion", 30)
        maps.put("c")
        until(lambda: "put c" in heard.words, "and what is new", 30)

        begun = reflector.watches
        cluster.pause_apiserver()
        time.sleep(1.5)
        cluster.resume_apiserver()
        until(lambda: reflector.watches > begun, "a new watch after the silence", 30)
        maps.put("d")
        until(lambda: set(heard.world) == {"b", "c", "d"}, "the world is right", 30)
        reflector.stop()
