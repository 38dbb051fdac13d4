"""What the outbox may assume about every notifier."""

from __future__ import annotations

from sickbay.model import Done, Failed, Notice, Retry
from sickbay.ports import Notifier

from .conftest import FarEnd

NOTICE = Notice("n1.1/3", "urgent", "n1 needs a person", "The reboot did not bring GPU 3 back.", case="n1.1", at=0.0)
HOSTILE = Notice("k\n", "odd level", "", "\x00\x1b[31m\u2028\ud800" + "x" * 100_000, at=float("nan"))


def test_a_notifier_has_a_name(notifier: Notifier) -> None:
    assert notifier.name


def test_a_notice_arrives_with_its_words(notifier: Notifier, far: FarEnd) -> None:
    assert isinstance(notifier.send(NOTICE), Done)
    assert len(far.received) == 1
    for words in (NOTICE.key, NOTICE.level, NOTICE.title, NOTICE.body, NOTICE.case):
        assert words in far.received[0]


def test_the_same_notice_may_be_sent_again(notifier: Notifier) -> None:
    assert isinstance(notifier.send(NOTICE), Done)
    assert isinstance(notifier.send(NOTICE), Done)


def test_a_broken_far_end_is_an_answer_and_not_an_exception(notifier: Notifier, far: FarEnd) -> None:
    far.broken = True
    assert isinstance(notifier.send(NOTICE), Retry | Failed)
    far.broken = False
    assert isinstance(notifier.send(NOTICE), Done)


def test_a_hostile_notice_is_sent_or_refused_but_never_raises(notifier: Notifier) -> None:
    assert isinstance(notifier.send(HOSTILE), Done | Failed)
