"""A host that prints what a test tells it to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sickbay.ports import Completed


def printed(text: str, code: int = 0, stderr: str = "") -> Completed:
    return Completed(code, text, stderr)


MISSING = Completed(None, "", "", missing=True)
TIMED_OUT = Completed(None, "", "", timed_out=True)


@dataclass
class SpokenHost:
    """Answers by the first word of the command."""

    answers: dict[str, Completed] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    name: str = "node-1"
    boot: str = "boot-a"

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        return self.answers.get(argv[0], MISSING)

    def read(self, path: str) -> str | None:
        return None

    def kernel_lines(self, cursor: str) -> tuple[list[str], str]:
        return self.lines[int(cursor or 0) :], str(len(self.lines))

    def boot_id(self) -> str:
        return self.boot
