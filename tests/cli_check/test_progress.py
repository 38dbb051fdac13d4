"""A long check shows that it is alive."""

from __future__ import annotations

import io
import time

from sickbay.cli.check_progress import Ticker


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def until(out: io.StringIO, text: str) -> bool:
    end = time.monotonic() + 10
    while text not in out.getvalue() and time.monotonic() < end:
        time.sleep(0.005)
    return text in out.getvalue()


def test_a_log_gets_a_line_now_and_then() -> None:
    out = io.StringIO()
    with Ticker(out, every_s=0.02) as ticker:
        ticker.turn("dcgm-l4")
        assert until(out, "sickbay: dcgm-l4: ")
    assert "\r" not in out.getvalue()


def test_a_terminal_gets_one_line_that_is_wiped() -> None:
    out = Terminal()
    with Ticker(out) as ticker:
        ticker.turn("dcgm-l4")
        assert until(out, "dcgm-l4: 1 s so far")
        ticker.turn("")
    assert "\n" not in out.getvalue()
    assert out.getvalue().endswith("\r\x1b[K")


def test_quick_checks_say_nothing() -> None:
    out = io.StringIO()
    with Ticker(out, every_s=30.0) as ticker:
        for name in ("a", "b", "c"):
            ticker.turn(name)
            ticker.turn("")
    assert out.getvalue() == ""
