"""The evidence store as the controller runs it: what is past its time goes, its troubles are told, archives handed out.

Called by controller/app.py after every pass, and by the pages. It must never hold up a pass or a treatment.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence

from sickbay.errors import EvidenceError
from sickbay.model import Archive, Notice
from sickbay.ports import EvidenceStore

log = logging.getLogger(__name__)

EVERY_S = 3_600.0
DAY_S = 86_400.0
_PAGE = re.compile(r"/evidence/([A-Za-z0-9._-]{1,200})/([0-9a-f]{64})/([0-9]{1,12})")


class EvidenceRoom:
    def __init__(
        self, evidence: EvidenceStore | None, tell: Callable[[Sequence[Notice]], object], wall: Callable[[], float]
    ) -> None:
        self._evidence, self._tell, self._wall = evidence, tell, wall
        self._due, self._told = time.monotonic() + EVERY_S, -1
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Once a day what is wrong, once an hour what is old; never waits."""
        if self._evidence is None:
            return
        day = int(self._wall() // DAY_S)
        if self._evidence.trouble and day != self._told:
            self._told = day
            self._tell((not_kept(self._evidence.trouble, self._wall()),))
        if time.monotonic() >= self._due and (self._thread is None or not self._thread.is_alive()):
            self._due = time.monotonic() + EVERY_S
            self._thread = threading.Thread(target=self._prune, args=(self._evidence,), name="evidence", daemon=True)
            self._thread.start()

    def _prune(self, evidence: EvidenceStore) -> None:
        try:
            if gone := evidence.prune():
                log.info("evidence: %d archives were past their time and are removed", gone)
        except EvidenceError as error:
            log.warning("old evidence could not be removed, tried again in an hour: %s", error)


def not_kept(why: str, at: float) -> Notice:
    """One message a day for however many cases: they share the reason."""
    body = (
        f"What was collected on a node before its treatment is not kept: {why}. Nodes are treated all the same, and "
        "what they could tell is lost with them. Give the evidence store more room, or a place that can be written "
        "(settings, [evidence])."
    )
    return Notice(f"evidence/{int(at // DAY_S)}", "warning", "evidence is not kept", body, "", at)


# --- handing out ------------------------------------------------------------------------------------------------------


def page_of(archive: Archive) -> str:
    return f"/evidence/{archive.name}/{archive.sha256}/{archive.size}"


def handed_out(evidence: EvidenceStore | None, path: str) -> tuple[int, bytes] | None:
    """The page of one archive. Its digest is the key: nobody can guess it, and who may read the case knows it."""
    asked = _PAGE.fullmatch(path)
    if asked is None or evidence is None:
        return None
    try:
        return 200, evidence.get(Archive(asked[1], asked[2], int(asked[3])))
    except EvidenceError:
        return 404, b"there is no such archive here\n"
