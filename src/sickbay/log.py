"""Our own log: one line a record, key=value, to standard error. Set up once by each process: the controller, the agent.

What a node printed may stand in a message; it must never forge a second line.
"""

from __future__ import annotations

import logging
import sys
import time


class PlainLines(logging.Formatter):
    """One line a record, key=value, readable at 3 a.m. What a node printed can never forge a second line."""

    def __init__(self) -> None:
        super().__init__("at=%(asctime)s level=%(levelname)s from=%(name)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        self.converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)


def set_up_log(level: str) -> None:
    """Our own log to standard error. Libraries speak only when something is wrong with them."""
    shown = logging.StreamHandler(sys.stderr)
    shown.setFormatter(PlainLines())
    ours = logging.getLogger("sickbay")
    ours.handlers, ours.propagate = [shown], False
    ours.setLevel(level.upper())
