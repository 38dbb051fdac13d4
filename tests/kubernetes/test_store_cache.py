"""What a store knows without asking, whatever order its own answers and the watch's echoes arrive in."""

from __future__ import annotations

from sickbay.model import Command, Pause, Recovery
from sickbay.ports import Stored
from sickbay.stores.kubernetes_cache import FOR_EVER, MOST_TOMBS, Cache, Seen
from tests.stores.builders import a_pause


def _seen(version: int, uid: str = "u1", pause: bool = False) -> Seen:
    return Seen(uid, version, 0, (), Stored(a_pause(), version, 0) if pause else None)


def test_the_echo_of_a_creation_that_comes_after_the_deletion_brings_nothing_back() -> None:
    cache = Cache()
    cache.learn(Pause, "fleet", _seen(5, pause=True))
    cache.bury(Pause, "fleet", "u1")
    token = cache.token
    cache.learn(Pause, "fleet", _seen(5, pause=True))
    assert (cache.people(Pause), cache.look(Pause, "fleet"), cache.token) == ([], None, token)


def test_another_object_of_the_same_name_is_news() -> None:
    cache = Cache()
    cache.learn(Pause, "fleet", _seen(5, pause=True))
    cache.bury(Pause, "fleet", "u1")
    cache.learn(Pause, "fleet", _seen(9, "u2", pause=True))
    cache.bury(Pause, "fleet", "u1", 8)  # the first one's end, heard late
    assert len(cache.people(Pause)) == 1


def test_a_deletion_counts_once_whoever_tells_of_it_first() -> None:
    for first, second in ((FOR_EVER, 7), (7, FOR_EVER)):
        cache = Cache()
        cache.learn(Command, "c1", _seen(5))
        cache.bury(Command, "c1", "u1", first)
        cache.bury(Command, "c1", "u1", second)
        assert cache.token == 2


def test_an_archived_object_that_comes_back_is_known_again() -> None:
    cache = Cache()
    cache.learn(Recovery, "llama", _seen(5))
    cache.bury(Recovery, "llama", "u1", 7)
    cache.learn(Recovery, "llama", _seen(6))  # an echo from before its end
    assert cache.look(Recovery, "llama") is None
    cache.learn(Recovery, "llama", _seen(9))
    assert cache.look(Recovery, "llama") == _seen(9)
    cache.bury(Recovery, "llama", "u1", 7)  # the echo of its end
    assert cache.look(Recovery, "llama") == _seen(9)


def test_what_a_list_did_not_show_is_gone_unless_it_is_younger() -> None:
    cache = Cache()
    cache.learn(Command, "old", _seen(5))
    cache.learn(Command, "young", _seen(12))
    cache.bury_missing(Command, set(), version=10)
    assert cache.look(Command, "old") is None
    assert cache.look(Command, "young") is not None


def test_the_memory_of_the_dead_is_bounded() -> None:
    cache = Cache()
    for number in range(MOST_TOMBS + 100):
        cache.bury(Command, f"c{number}", f"u{number}")
    assert len(cache._tombs) == MOST_TOMBS
