"""A host that prints what a test tells it to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sickbay.ports import Completed


def printed(text: str, code: int = 0, stderr: str = "") -> Completed:
    return Completed(code, text, stderr)


MISSING = Completed(None, "", "", missing=True)
TIMED_OUT = Completed(None, "", "", timed_out=True)


@dataclass
class SpokenHost:
    """Answers by the longest beginning of the command that a test gave an answer for."""

    answers: dict[str, Completed] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    name: str = "node-1"
    boot: str = "boot-a"
    files: dict[str, str] = field(default_factory=dict)
    folders: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pages: dict[str, str] = field(default_factory=dict)  # "PUT http://..." or a plain address -> body
    asked: list[str] = field(default_factory=list)

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        self.asked.append(" ".join(argv))
        for end in range(len(argv), 0, -1):
            if (answer := self.answers.get(" ".join(argv[:end]))) is not None:
                return answer
        return MISSING

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def names(self, path: str) -> tuple[str, ...] | None:
        return self.folders.get(path)

    def fetch(
        self, url: str, timeout_s: float, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> str | None:
        return self.pages.get(url if method == "GET" else f"{method} {url}")

    def kernel_lines(self, cursor: str) -> tuple[list[str], str]:
        return self.lines[int(cursor or 0) :], str(len(self.lines))

    def boot_id(self) -> str:
        return self.boot
