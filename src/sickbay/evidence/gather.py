"""Asks a node for each piece of evidence, within one time limit for all of them. Called by `archive`.

A tool that is missing, fails or hangs is a line in the manifest, never an exception. Everything goes through the Host,
also the report that NVIDIA's script leaves in a file: the machine asked may not be the one we run on.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sickbay.evidence.parts import BUG_REPORT, BUG_REPORT_S, COMMANDS, FILES, Asked
from sickbay.ports import Completed, Host

MOST_PART = 8 << 20  # bytes of one piece; also what a Host hands out at most
BLOCK = 4 << 20  # of the bug report, so that a block in base64 fits into one answer
BLOCKS = 8
NO_TIME = "not asked: the time for all of it was over"


@dataclass(frozen=True, slots=True)
class Piece:
    """One file of the archive, or why there is none."""

    file: str
    data: bytes
    source: str  # the command, or the path that was read
    code: int | None = None
    timed_out: bool = False
    truncated: bool = False
    missing: bool = False
    note: str = ""


class Gathering:
    """The Host, and how much time is left. `clock` is monotonic."""

    def __init__(self, host: Host, clock: Callable[[], float], limit_s: float, say: Callable[[str], None]) -> None:
        self.host, self._clock, self._say = host, clock, say
        self._end = clock() + limit_s

    def left(self) -> float:
        return self._end - self._clock()

    def pieces(self, kernel_lines: int) -> Iterator[Piece]:
        yield self._kernel(kernel_lines)
        for file, path in FILES.items():
            yield self._file(file, path)
        for asked in COMMANDS:
            yield self.command(asked)
        yield self._bug_report()

    def _kernel(self, most: int) -> Piece:
        try:
            lines, _ = self.host.kernel_lines("")
        except Exception as broken:  # a host may have no kernel log to read, and says so in its own way
            return Piece("kernel.log", b"", "kernel log", missing=True, note=f"{type(broken).__name__}: {broken}"[:400])
        text = "\n".join(lines[-most:]) + "\n" if lines else ""
        return bounded(Piece("kernel.log", text.encode("utf-8", "replace"), "kernel log"), len(lines) > most)

    def _file(self, file: str, path: str) -> Piece:
        try:
            text = self.host.read(path)
        except Exception as broken:
            return Piece(file, b"", path, missing=True, note=f"{type(broken).__name__}"[:400])
        if text is None:
            return Piece(file, b"", path, missing=True)
        return bounded(Piece(file, text.encode("utf-8", "replace"), path))

    def command(self, asked: Asked) -> Piece:
        said = " ".join(asked.argv)
        if self.left() < 1.0:
            return Piece(asked.file, b"", said, note=NO_TIME)
        self._say(said)
        done = self._run(asked.argv, asked.limit_s)
        if done.missing:
            return Piece(asked.file, b"", said, missing=True)
        text = done.stdout + (f"\n--- standard error ---\n{done.stderr}" if done.stderr.strip() else "")
        piece = Piece(asked.file, text.encode("utf-8", "replace"), said, done.code, done.timed_out)
        return bounded(piece)

    def _run(self, argv: tuple[str, ...], limit_s: float) -> Completed:
        try:
            return self.host.run(argv, max(0.1, min(limit_s, self.left())))
        except Exception as broken:
            return Completed(None, "", f"{type(broken).__name__}: {broken}"[:400])

    def _bug_report(self) -> Piece:
        """NVIDIA's own report. Its script writes a file, which is fetched in blocks and removed again."""
        name = "nvidia-bug-report.log.gz"
        if self.left() < 1.0:
            return Piece(name, b"", BUG_REPORT, note=NO_TIME)
        self._say(f"{BUG_REPORT} (up to {min(BUG_REPORT_S, self.left()):.0f} s)")
        made = self._run(("mktemp", "-d"), 10.0)
        folder = made.stdout.strip()
        if made.code != 0 or not folder.startswith("/") or "\n" in folder:
            return Piece(name, b"", BUG_REPORT, made.code, note="no temporary folder could be made")
        try:
            return self._report_in(folder, name)
        finally:
            self._after(("rm", "-rf", folder))

    def _report_in(self, folder: str, name: str) -> Piece:
        target = f"{folder}/nvidia-bug-report.log"
        argv = (BUG_REPORT, "--safe-mode", "--output-file", target)
        done = self._run(argv, min(BUG_REPORT_S, self.left()))
        if done.missing:
            return Piece(name, b"", " ".join(argv), missing=True)
        data, whole = self._fetched(f"{target}.gz", folder)
        if not data:
            name, (data, whole) = name.removesuffix(".gz"), self._fetched(target, folder)
        note = "" if data else "it left no report"
        return Piece(name, data, " ".join(argv), done.code, done.timed_out, not whole, note=note)

    def _fetched(self, path: str, folder: str) -> tuple[bytes, bool]:
        """The file's bytes, and whether they are all of them."""
        if self._after(("split", "-a", "3", "-d", "-b", str(BLOCK), path, f"{folder}/block-")).code != 0:
            return b"", True
        blocks: list[bytes] = []
        for number in range(BLOCKS + 1):
            done = self._after(("base64", f"{folder}/block-{number:03d}"))
            if done.code != 0:
                self._after(("rm", "-f", *(f"{folder}/block-{n:03d}" for n in range(BLOCKS + 1))))
                return b"".join(blocks), True
            if number < BLOCKS:
                blocks.append(_decoded(done.stdout))
        return b"".join(blocks), False

    def _after(self, argv: tuple[str, ...]) -> Completed:
        """What must be done even when the time is over, and is quick."""
        try:
            return self.host.run(argv, 10.0)
        except Exception as broken:
            return Completed(None, "", str(broken)[:400])


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()))
    except (binascii.Error, ValueError):
        return b""


def bounded(piece: Piece, cut: bool = False) -> Piece:
    """No piece is larger than MOST_PART; what was cut, here or by the Host, says so."""
    truncated = cut or len(piece.data) >= MOST_PART
    return Piece(
        piece.file,
        piece.data[:MOST_PART],
        piece.source,
        piece.code,
        piece.timed_out,
        truncated,
        piece.missing,
        piece.note,
    )
