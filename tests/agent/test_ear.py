"""Kernel lines as they come: what is new in each batch."""

from __future__ import annotations

from sickbay.agent.ear import PAUSE_S, Ear
from tests.agent.builders import GPU, XID_13, XID_79


def test_an_xid_is_heard_in_its_own_batch() -> None:
    (sign,) = Ear().hear([XID_79 % 1], 0.0)
    assert (sign.code, sign.device, sign.count) == ("xid.79", GPU, 1)


def test_each_batch_says_only_what_it_adds() -> None:
    ear = Ear()
    assert [sign.count for sign in ear.hear([XID_13 % n for n in range(5)], 0.0)] == [5]
    assert [sign.count for sign in ear.hear([XID_13 % n for n in range(5, 8)], 0.1)] == [3]
    assert ear.hear([b"6,9,9,-;usb 1-1: new device"], 0.2) == []


def test_a_loss_told_in_several_records_is_one_finding() -> None:
    """The driver needs three lines for it, and they may come in three wake-ups."""
    ear = Ear()
    lines = (
        b"3,1,1,-;NVRM: The NVIDIA GPU 0000:3b:00.0",
        b"3,2,1,-;NVRM: (PCI ID: 10de:2330) installed in this system has",
        b"3,3,1,-;NVRM: fallen off the bus and is not responding to commands.",
    )
    heard = [sign for n, line in enumerate(lines) for sign in ear.hear([line], 0.01 * n)]
    assert [(sign.code, sign.device) for sign in heard] == [("kernel.fallen-off-bus", GPU)]


def test_after_a_pause_evidence_is_of_the_present() -> None:
    ear = Ear()
    ear.hear([XID_13 % 1], 0.0)
    (sign,) = ear.hear([XID_13 % 777], PAUSE_S + 1.0)
    assert (sign.count, sign.evidence[0].split(",")[1]) == (1, "777")


def test_a_flood_of_100_000_lines_costs_no_memory_of_lines() -> None:
    ear = Ear()
    for begin in range(0, 100_000, 8_192):
        ear.hear([XID_13 % n for n in range(begin, min(begin + 8_192, 100_000))], 0.0)
    assert len(ear._told) == 1
    assert ear._told[("xid.13", GPU, "")] == 100_000
