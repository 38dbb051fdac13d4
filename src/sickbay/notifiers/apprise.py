"""Notices to chat, pager and mail, through apprise: one notifier for each address of `notify.apprise_file`.

Called by the outbox. One notifier an address, so that a pager that is down does not make a chat hear everything twice.
Each address holds a secret: none is ever logged, in an error, or in a notifier's name.
"""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

from sickbay import atomic
from sickbay.errors import UserError
from sickbay.model import Done, Notice, Outcome, Retry
from sickbay.notifiers.words import clean, plain

LONGEST = 3_500  # what the strictest chat takes in one message
MOST_ADDRESSES = 32
LARGEST_FILE = 64 * 1024
TYPES = {"urgent": "failure", "warning": "warning"}


class AppriseNotifier:
    """ports.Notifier for one address."""

    def __init__(self, number: int, target: Any, cluster: str) -> None:
        self.name, self._target, self._cluster = f"apprise-{number}", target, cluster

    def send(self, notice: Notice) -> Outcome:
        try:
            sent = self._target.notify(
                title=clean(notice.title, 200) or "Sickbay", body=plain(notice, self._cluster, LONGEST),
                notify_type=TYPES.get(notice.level, "info"),
            )  # fmt: skip
        except Exception as error:  # a library of a hundred services: whatever one of them raises is "not delivered"
            return Retry(0.0, f"{self.name} failed: {type(error).__name__}")
        return Done() if sent else Retry(0.0, f"{self.name} did not take the notice")


def apprise_notifiers(file: str, cluster: str) -> list[AppriseNotifier]:
    """One for each line that is neither empty nor a comment. UserError names the line, never the address."""
    lines = _lines(Path(file).expanduser())
    if not lines:
        raise UserError(f"notify.apprise_file {file} has no address in it: one a line, see `apprise` for the kinds")
    return [AppriseNotifier(number, _target(line, f"{file}, line {number}"), cluster) for number, line in lines]


def _target(address: str, where: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its hundred plug-ins import what is deprecated here and there
            import apprise

            logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)  # its lines hold addresses
            target = apprise.Apprise()
            known = target.add(address)
    except ImportError as missing:
        raise UserError("notify.apprise_file needs apprise: pip install 'sickbay[notify]'") from missing
    if not known:
        raise UserError(f"notify.apprise_file {where}: apprise does not know this kind of address")
    return target


def _lines(path: Path) -> list[tuple[int, str]]:
    try:
        with atomic.named(path) as opened:
            text = opened.read(LARGEST_FILE).decode("utf-8", "replace")
    except OSError as error:
        raise UserError(f"notify.apprise_file {path} cannot be read: {error.strerror}") from error
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    kept = [(number, line) for number, line in lines if line and not line.startswith(("#", ";"))]
    if len(kept) > MOST_ADDRESSES:
        raise UserError(f"notify.apprise_file {path} has more than {MOST_ADDRESSES} addresses")
    return kept
