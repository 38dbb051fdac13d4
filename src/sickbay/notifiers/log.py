"""Notices as log lines: one line each, key=value, made for grep and for log shippers. Always there, needs nothing.

Called by the outbox. Text in a notice may quote hostile log lines: control characters are escaped, so that a notice
can never forge a second line, and what looks like a credential is blotted out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime

from sickbay.model import Done, Notice, Outcome, Retry

MAX_LINE = 8_192
_BARE = re.compile(r"[A-Za-z0-9._:/@%+,-]+")
_SECRETS = re.compile(
    r"""(?ix)
    (?P<name>\b[\w-]*(?:password|passwd|secret|token|api[_-]?key|credential)[\w-]*["']?\s*[=:]\s*["']?)
        (?P<value>[^\s"'&,;]+)
  | (?P<scheme>\b(?:bearer|basic)\s+)(?P<bearer>[A-Za-z0-9._~+/=-]{8,})
  | (?P<url>\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)(?P<login>[^\s@/]+)(?=@)
  | (?P<aws>\b(?:AKIA|ASIA)[A-Z0-9]{16}\b)
    """
)


class LogNotifier:
    """ports.Notifier. `write` gets one line without its end; by default it goes to standard error."""

    name = "log"

    def __init__(self, write: Callable[[str], object] | None = None) -> None:
        self._write = write or _to_stderr

    def send(self, notice: Notice) -> Outcome:
        try:
            self._write(line(notice))
        except (OSError, ValueError) as error:  # disk full, pipe closed
            return Retry(after_s=10.0, why=f"cannot write the log: {error}")
        return Done()


def line(notice: Notice) -> str:
    parts = (
        ("at", _utc(notice.at)),
        ("level", notice.level),
        ("key", notice.key),
        ("case", notice.case),
        ("title", notice.title),
        ("body", notice.body),
    )
    text = " ".join(f"{name}={_quoted(value)}" for name, value in parts if value)
    return text if len(text) <= MAX_LINE else text[: MAX_LINE - 2].rstrip("\\") + '…"'


def _utc(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (OverflowError, OSError, ValueError):
        return str(at)


def _quoted(value: str) -> str:
    value = without_secrets(value)
    if _BARE.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char.isprintable() else _escape(char) for char in escaped) + '"'


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def without_secrets(text: str) -> str:
    """The name of a secret stays, its value goes."""
    return _SECRETS.sub(lambda found: (found["name"] or found["scheme"] or found["url"] or "") + "***", text)


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
