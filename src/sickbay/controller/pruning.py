"""Ended cases leave the archive when they are old: once a day, in a thread of its own.

Called by controller/app.py after every pass. To look through a large archive on a server takes minutes, and no pass may
wait for that. It must never end a lead: what could not be removed today is there tomorrow.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from sickbay.errors import SickbayError
from sickbay.ports import Store

log = logging.getLogger(__name__)

FIRST_S = (
    600.0  # after the lead was taken: by then the first passes are over, and a lead that does not last prunes nothing
)
EVERY_S = 86_400.0
DAY_S = 86_400.0


class Pruning:
    def __init__(self, store: Store, wall: Callable[[], float], days: float) -> None:
        self._store, self._wall, self._days = store, wall, days
        self._due = time.monotonic() + FIRST_S
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Begin if it is time; never waits."""
        if time.monotonic() < self._due or (self._thread is not None and self._thread.is_alive()):
            return
        self._due = time.monotonic() + EVERY_S
        self._thread = threading.Thread(target=self._prune, name="prune", daemon=True)
        self._thread.start()

    def _prune(self) -> None:
        try:
            gone = self._store.prune(self._wall() - self._days * DAY_S)
        except SickbayError as error:
            log.warning("old cases could not be removed from the archive, tried again in a day: %s", error)
        else:
            log.info("archive: %d ended more than %g days ago and are removed", gone, self._days)
