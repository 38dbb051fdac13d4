"""Notices about one case that come together are told as one (controller.notice_s), and none is lost for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from sickbay.controller.outbox import Outbox
from sickbay.model import Done, Notice, Outcome, Retry


@dataclass
class Reader:
    """Keeps what it was told; `off` makes it answer that it is not there."""

    name: str = "chat"
    off: bool = False
    told: list[Notice] = field(default_factory=list)

    def send(self, notice: Notice) -> Outcome:
        if self.off:
            return Retry(1.0, "not there")
        self.told.append(notice)
        return Done()


def about(case: str, n: int, level: str = "info") -> Notice:
    return Notice(f"{case}/{n}", level, f"{case} step {n}", f"body {n}", case)


def an_outbox(reader: Reader, gather_s: float = 5.0) -> Outbox:
    outbox = Outbox([reader], gather_s=gather_s)
    outbox.pump(100.0)  # the thread has begun
    return outbox


def test_what_happens_to_a_case_within_seconds_is_one_message_in_its_order() -> None:
    reader = Reader()
    outbox = an_outbox(reader)
    outbox.put([about("gpu-17.3", 1)])
    assert outbox.pump(102.0) == []
    outbox.put([about("gpu-17.3", 2, "warning")])
    assert outbox.pump(104.0) == []
    assert sorted(outbox.pump(105.0)) == ["gpu-17.3/1", "gpu-17.3/2"]
    (notice,) = reader.told
    assert (notice.level, notice.title) == ("warning", "gpu-17.3 step 2")
    assert notice.body == "body 1\n\ngpu-17.3 step 2\nbody 2"


def test_cases_are_not_mixed_and_what_is_about_none_does_not_wait() -> None:
    reader = Reader()
    outbox = an_outbox(reader)
    outbox.put([about("a.1", 1), about("b.1", 1), Notice("full/fleet/1", "warning", "full", "body")])
    assert outbox.pump(101.0) == ["full/fleet/1"]
    outbox.pump(106.0)
    assert [n.key for n in reader.told] == ["full/fleet/1", "a.1/1", "b.1/1"]


def test_an_urgent_one_waits_for_nobody_and_takes_along_what_was_gathered() -> None:
    reader = Reader()
    outbox = an_outbox(reader)
    outbox.put([about("a.1", 1)])
    outbox.put([about("a.1", 2, "urgent")])
    assert sorted(outbox.pump(101.0)) == ["a.1/1", "a.1/2"]
    assert [n.level for n in reader.told] == ["urgent"]


def test_a_letter_that_is_on_its_way_takes_nothing_more() -> None:
    """What was tried may have arrived: adding to it would tell the first part twice or the second never."""
    reader = Reader(off=True)
    outbox = an_outbox(reader)
    outbox.put([about("a.1", 1)])
    outbox.pump(106.0)
    outbox.put([about("a.1", 2)])
    reader.off = False
    outbox.pump(200.0)
    assert [n.title for n in reader.told] == ["a.1 step 1", "a.1 step 2"]


def test_a_gathered_notice_put_again_is_not_told_again() -> None:
    reader = Reader()
    outbox = an_outbox(reader)
    for _ in range(3):
        outbox.put([about("a.1", 1), about("a.1", 2)])
    outbox.pump(106.0)
    assert outbox.put([about("a.1", 2)]) == 0
    assert outbox.pump(107.0) == ["a.1/2"]  # the caller has not heard
    assert len(reader.told) == 1
    assert outbox.waiting() == 0


def test_the_thread_wakes_when_a_letter_is_ripe() -> None:
    outbox = an_outbox(Reader())
    outbox.put([about("a.1", 1)])
    assert outbox.next_due() == 105.0


def test_without_the_setting_everything_goes_at_once() -> None:
    reader = Reader()
    outbox = an_outbox(reader, gather_s=0.0)
    outbox.put([about("a.1", 1), about("a.1", 2)])
    assert len(outbox.pump(100.0)) == 2
    assert len(reader.told) == 2
