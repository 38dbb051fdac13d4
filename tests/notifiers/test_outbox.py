"""At least once to each notifier, once in the ordinary case, and never in the loop's way."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from sickbay.controller import outbox as box
from sickbay.controller.outbox import Outbox
from sickbay.model import Done, Failed, Notice, Outcome, Retry, Started


@dataclass
class Scripted:
    """A notifier that gives these answers in turn, and Done from then on."""

    name: str = "chat"
    answers: list[Outcome | Exception] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def send(self, notice: Notice) -> Outcome:
        self.asked.append(notice.key)
        answer = self.answers.pop(0) if self.answers else Done()
        if isinstance(answer, Exception):
            raise answer
        return answer


def a_notice(key: str = "k1", level: str = "info") -> Notice:
    return Notice(key, level, "title", "body")


def _pumped(outbox: Outbox, times: Sequence[float]) -> list[list[str]]:
    return [outbox.pump(now) for now in times]


def test_a_notice_goes_to_every_notifier_and_is_reported_once() -> None:
    chat, mail = Scripted("chat"), Scripted("mail")
    outbox = Outbox([chat, mail])
    outbox.put([a_notice()])
    assert _pumped(outbox, [0.0, 1.0]) == [["k1"], []]
    assert (chat.asked, mail.asked) == (["k1"], ["k1"])


def test_a_notice_put_again_while_it_waits_is_sent_once() -> None:
    chat = Scripted()
    outbox = Outbox([chat])
    assert outbox.put([a_notice(), a_notice()]) == 1
    assert outbox.put([a_notice()]) == 0
    outbox.pump(0.0)
    assert chat.asked == ["k1"]


def test_a_delivered_notice_put_again_is_reported_again_but_not_sent_again() -> None:
    """The caller crashed, or lost its write, before it could forget the notice."""
    chat = Scripted()
    outbox = Outbox([chat])
    outbox.put([a_notice()])
    outbox.pump(0.0)
    outbox.put([a_notice()])
    assert outbox.next_due() == float("-inf")
    assert _pumped(outbox, [1.0, 2.0]) == [["k1"], []]
    assert chat.asked == ["k1"]


def test_a_retry_is_asked_again_after_the_time_it_named() -> None:
    chat = Scripted(answers=[Retry(30.0, "busy")])
    outbox = Outbox([chat])
    outbox.put([a_notice()])
    assert _pumped(outbox, [0.0, 29.0, 30.0]) == [[], [], ["k1"]]
    assert len(chat.asked) == 2


def test_waits_grow_and_stay_bounded() -> None:
    chat = Scripted(answers=[Retry(0.0, "down")] * 50)
    outbox = Outbox([chat])
    outbox.put([a_notice()])
    now, waits = 0.0, []
    for _ in range(12):
        outbox.pump(now)
        due = outbox.next_due()
        assert due is not None
        waits.append(due - now)
        now = due
    assert waits[:4] == [5.0, 10.0, 20.0, 40.0]
    assert max(waits) == box.LONGEST_WAIT_S


def test_an_outage_costs_one_call_per_wait_however_many_notices_wait() -> None:
    chat = Scripted(answers=[Retry(0.0, "down")] * 2)
    outbox = Outbox([chat])
    outbox.put(a_notice(f"k{n}") for n in range(50))
    outbox.pump(0.0)
    assert len(chat.asked) == 1
    outbox.pump(5.0)
    assert len(chat.asked) == 2
    assert len(outbox.pump(15.0)) == 50


def test_one_broken_notifier_does_not_hold_up_the_others() -> None:
    pager, log = Scripted("pager", [RuntimeError("boom"), ValueError("bang")]), Scripted("log")
    outbox = Outbox([pager, log])
    outbox.put([a_notice()])
    assert outbox.pump(0.0) == []
    assert log.asked == ["k1"]
    assert "boom" in outbox.problems()["pager"]
    assert _pumped(outbox, [5.0, 15.0]) == [[], ["k1"]]
    assert log.asked == ["k1"]
    assert outbox.problems() == {}


def test_a_notice_one_notifier_refuses_does_not_stop_its_other_notices() -> None:
    chat = Scripted(answers=[Failed("too long")])
    outbox = Outbox([chat])
    outbox.put([a_notice("k1"), a_notice("k2")])
    assert outbox.pump(0.0) == ["k2"]
    assert outbox.pump(5.0) == ["k1"]


def test_a_notice_refused_again_and_again_is_given_up_if_somebody_else_has_it() -> None:
    chat, log = Scripted("chat", [Failed("too long")] * 100), Scripted("log")
    outbox = Outbox([chat, log])
    outbox.put([a_notice()])
    reports = _pumped(outbox, [n * 300.0 for n in range(box.REFUSALS)])
    assert reports[-1] == ["k1"]
    assert len(chat.asked) == box.REFUSALS


def test_a_notice_nobody_has_is_never_given_up() -> None:
    chat = Scripted(answers=[Failed("no")] * 1000)
    outbox = Outbox([chat])
    outbox.put([a_notice()])
    assert not any(_pumped(outbox, [n * 3600.0 for n in range(100)]))
    assert outbox.waiting() == 1


def test_a_notifier_down_for_a_day_no_longer_holds_back_what_others_delivered() -> None:
    pager, log = Scripted("pager", [Retry(0.0, "down")] * 10_000), Scripted("log")
    outbox = Outbox([pager, log])
    outbox.put([a_notice()])
    assert outbox.pump(0.0) == []
    assert outbox.pump(box.GIVE_UP_S - 1) == []
    assert outbox.pump(box.GIVE_UP_S) == ["k1"]


def test_long_work_is_asked_about_again() -> None:
    chat = Scripted(answers=[Started(7.0)])
    outbox = Outbox([chat])
    outbox.put([a_notice()])
    assert _pumped(outbox, [0.0, 6.0, 7.0]) == [[], [], ["k1"]]


def test_urgent_notices_go_first() -> None:
    chat = Scripted()
    outbox = Outbox([chat])
    outbox.put([a_notice("a", "info"), a_notice("b", "warning"), a_notice("c", "urgent"), a_notice("d", "urgent")])
    outbox.pump(0.0)
    assert chat.asked == ["c", "d", "b", "a"]


def test_one_pump_is_bounded() -> None:
    chat = Scripted()
    outbox = Outbox([chat])
    outbox.put(a_notice(f"k{n}") for n in range(box.BATCH + 10))
    assert len(outbox.pump(0.0)) == box.BATCH
    assert len(outbox.pump(0.0)) == 10


def test_memory_is_bounded_and_a_full_box_takes_the_rest_later() -> None:
    outbox = Outbox([Scripted()], capacity=5, remember=3)
    notices = [a_notice(f"k{n}") for n in range(8)]
    assert outbox.put(notices) == 5
    assert len(outbox.pump(0.0)) == 5
    assert outbox.put(notices) == 5  # k0 and k1 were forgotten: at least once, not exactly once
    assert outbox.waiting() == 5


def test_without_notifiers_nothing_piles_up() -> None:
    outbox = Outbox([])
    outbox.put([a_notice()])
    assert outbox.next_due() == float("-inf")
    assert outbox.pump(0.0) == ["k1"]
    assert outbox.next_due() is None


def test_a_wait_of_for_ever_or_nonsense_is_not_believed() -> None:
    chat = Scripted(answers=[Retry(float("inf"), "no"), Retry(float("nan"), "no"), Retry(-5.0, "no")])
    outbox = Outbox([chat])
    outbox.put([a_notice()])
    assert _pumped(outbox, [0.0, 3_600.0, 3_700.0, 3_800.0]) == [[], [], [], ["k1"]]


def test_a_clock_that_is_set_back_does_not_lengthen_a_wait() -> None:
    chat = Scripted(answers=[Retry(30.0, "busy")])
    outbox = Outbox([chat])
    outbox.put([a_notice()])
    assert outbox.pump(1_000_000.0) == []
    assert outbox.pump(10.0) == []  # now the clock is right
    assert outbox.next_due() == 40.0
    assert _pumped(outbox, [39.0, 40.0]) == [[], ["k1"]]


class RealTime:
    def now(self) -> float:
        return self.monotonic()

    def monotonic(self) -> float:
        import time

        return time.monotonic()


def test_the_thread_delivers_what_is_put_while_a_slow_notifier_blocks_only_itself() -> None:
    slow, gate, heard = Scripted(), threading.Event(), threading.Event()
    ask = slow.send

    def wait_then_send(notice: Notice) -> Outcome:
        gate.wait(10)
        return ask(notice)

    slow.send = wait_then_send  # type: ignore[method-assign]
    outbox, stop = Outbox([slow]), threading.Event()
    delivered: list[str] = []

    def on_delivered(keys: list[str]) -> None:
        delivered.extend(keys)
        heard.set()

    thread = threading.Thread(target=outbox.serve, args=(RealTime(), stop, on_delivered))
    thread.start()
    assert outbox.put([a_notice("a")]) == 1
    assert outbox.put([a_notice("b")]) == 1  # returns although the notifier hangs
    gate.set()
    while "b" not in delivered:
        assert heard.wait(10)
        heard.clear()
    stop.set()
    outbox.put([a_notice("wake")])
    thread.join(10)
    assert not thread.is_alive()
    assert sorted(set(delivered) & {"a", "b"}) == ["a", "b"]
