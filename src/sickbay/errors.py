"""The error tree. Operating errors become values (Outcome, Status.UNKNOWN) before they reach core.

SickbayError
 - ConfigError      at start only: says file, key, what is wrong, what would be right
 - InputError       a file we were asked to read cannot be read; exit code 2
 - CheckError       becomes Finding(UNKNOWN); never stops the agent
 - StoreError
    - StaleWrite    somebody else moved the record, or a newer leader owns it: drop the decision, look again
    - AlreadyExists create-if-absent found one
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


class NotLeader(SickbayError):
    pass


class UserError(SickbayError):
    pass
