"""The error tree. Operating errors become values (Outcome, Status.UNKNOWN) before they reach core.

SickbayError
 - ConfigError      at start only: says file, key, what is wrong, what would be right
 - InputError       a file we were asked to read cannot be read; exit code 2
 - CheckError       becomes Finding(UNKNOWN); never stops the agent
 - StoreError
    - StaleWrite    somebody else moved the record, or a newer leader owns it: drop the decision, look again
    - AlreadyExists create-if-absent found one
    - Unreadable    the record is there, damaged or newer than we are: leave it, and what it is about, alone
    - NotNow        it did not answer or has too much to do; whether a write arrived is not known
 - EvidenceError    an archive is not kept, or is not there any more, or is not what was kept: why, in words
 - ApiError         a Kubernetes API server said no (status, reason, its words)
    - Unreachable   it did not answer; whether a write arrived is not known
 - NotLeader        another controller holds the lead
 - UserError        a person asked for something impossible; the message says what to do instead
"""

from __future__ import annotations


class SickbayError(Exception):
    """Root of everything we raise on purpose. Its text is for people."""


class ConfigError(SickbayError):
    def __init__(self, file: str, key: str, wrong: str, right: str) -> None:
        self.file, self.key, self.wrong, self.right = file, key, wrong, right
        super().__init__(f"{file}: {key}: {wrong}; {right}")


class InputError(SickbayError):
    pass


class CheckError(SickbayError):
    pass


class StoreError(SickbayError):
    pass


class StaleWrite(StoreError):
    pass


class AlreadyExists(StoreError):
    pass


class Unreadable(StoreError):
    pass


class NotNow(StoreError):
    pass


class EvidenceError(SickbayError):
    pass


TEST_FAILED = ("the server rejected our request due to an error in our request", "testing value", "does not apply")


class ApiError(SickbayError):
    """An answer other than 2xx. `retry_after` is in seconds, 0 when the server named none; `causes` are its details."""

    def __init__(
        self, status: int, reason: str, said: str, where: str = "", retry_after: float = 0.0,
        causes: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.status, self.reason, self.said, self.where, self.retry_after = status, reason, said, where, retry_after
        self.causes = causes
        super().__init__(f"{where}: {status} {reason}: {said}" if where else f"{status} {reason}: {said}")

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def conflict(self) -> bool:
        """Our resourceVersion is old, or create found one."""
        return self.status == 409

    @property
    def stale(self) -> bool:
        """What the write was decided on is not true any more: read again. A JSON patch whose test failed is 422, and so
        is a denial by an admission policy, in the policy's own words."""
        return self.conflict or (self.status == 422 and self.said.casefold().startswith(TEST_FAILED))

    @property
    def busy(self) -> bool:
        """429: too many requests. Not that of an eviction which a disruption budget forbids, for it names its cause."""
        return self.status == 429 and not self.causes

    @property
    def expired(self) -> bool:
        """410: the version to continue from is forgotten; list again."""
        return self.status == 410

    @property
    def not_now(self) -> bool:
        """It may say something else in a moment: no answer, too many requests, or trouble of its own."""
        return self.status in (0, 429) or self.status >= 500

    @property
    def refused(self) -> bool:
        """It will say the same again: forbidden by RBAC, denied by an admission policy, or not valid."""
        return self.status in (400, 401, 403, 422)

    @property
    def passing(self) -> bool:
        """Refused, and perhaps not the next time: a token that is not taken (401) or a read that is forbidden. Both are
        said for moments after an API server's start, and while credentials are renewed; nothing was done."""
        return self.status == 401 or (self.status == 403 and self.where.startswith("GET "))


class Unreachable(ApiError):
    def __init__(self, where: str, why: str) -> None:
        super().__init__(0, "Unreachable", why, where)


class NotLeader(SickbayError):
    pass


class UserError(SickbayError):
    pass
