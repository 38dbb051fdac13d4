"""A call that must be made once: made, and its failure turned into what the node remembers and the case is told.

Called by reboot.py, power.py and replace.py, after treatment.begin. A call that failed cleanly is written down as such:
one that only looks in progress would hold its case until its time is up (NVSentinel #1808).
"""

from __future__ import annotations

from collections.abc import Callable

from sickbay.errors import ApiError, UserError
from sickbay.model import Failed, Lost, Outcome, Retry, Started
from sickbay.platforms.kubernetes.machines.aws import Meaning, is_amazons, meaning, words
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.treatment import FAILED, NEVER, Treatment, move

THROTTLED_S = 30.0


def make(site: Site, name: str, known: Treatment, call: Callable[[], str | None], what: str, after_s: float) -> Outcome:
    """Make the call. Started when it was made or may have been; otherwise what is certain, remembered on the node.
    `call` answers why it was not let in, if it was not: nothing has been tried then."""
    try:
        kept_out = call()
    except Exception as error:
        if not (is_amazons(error) or isinstance(error, ApiError | UserError)):
            raise
        return _failed(site, name, known, error, what, after_s)
    if kept_out:
        move(site, name, known, NEVER, f"{what}: {kept_out}")
        return Lost(f"{what}: {kept_out}")  # asked for again later: somebody can make room or let it in
    return Started(after_s, f"{what} was asked for")


def _failed(site: Site, name: str, known: Treatment, error: Exception, what: str, after_s: float) -> Outcome:
    says, why = _meaning(error), f"{what}: {words(error)}"
    if says is Meaning.UNCLEAR:
        return Started(after_s, f"{why}; whether it happened is not known, so it is watched")
    if says is Meaning.REFUSED:
        move(site, name, known, FAILED, why)
        return Failed(why)
    move(site, name, known, NEVER, why)
    return Retry(THROTTLED_S, why) if says is Meaning.THROTTLED else Lost(why)


def _meaning(error: Exception) -> Meaning:
    if isinstance(error, UserError):
        return Meaning.REFUSED
    if not isinstance(error, ApiError):
        return meaning(error)
    if error.passing or error.status == 429:
        return Meaning.THROTTLED
    return Meaning.REFUSED if error.refused or error.conflict or error.not_found else Meaning.UNCLEAR


def cannot_look(error: Exception) -> Outcome:
    """A provider that does not answer a question: asked again, nothing done."""
    if not (is_amazons(error) or isinstance(error, UserError)):
        raise error
    if isinstance(error, UserError) or meaning(error) is Meaning.REFUSED:
        return Failed(f"the provider cannot be asked: {words(error)}")
    return Retry(THROTTLED_S, f"the provider cannot be asked: {words(error)}")
