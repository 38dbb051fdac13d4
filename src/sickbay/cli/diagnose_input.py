"""The bytes behind a name given to `sickbay diagnose`: files, standard input, gzip; a block at a time.

Called by `cli/diagnose`. Memory stays bounded whatever comes in; what cannot be read is an InputError in plain words.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from sickbay import atomic
from sickbay.errors import InputError

BLOCK = 1 << 20


@contextmanager
def opened(file: Path, name: str) -> Iterator[tuple[BinaryIO, bytes]]:
    """The stream, and the end of the file where it can be had cheaply: logs often begin with a banner."""
    if str(file) == "-":
        yield sys.stdin.buffer, b""
        return
    try:
        with atomic.named(file) as stream:
            yield stream, _tail(stream)
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}") from None


def _tail(stream: BinaryIO) -> bytes:
    if not stream.seekable():
        return b""
    size = stream.seek(0, 2)
    stream.seek(max(0, size - 65536))
    tail = stream.read(65536) if size > BLOCK else b""
    stream.seek(0)
    return b"" if tail[:2] == b"\x1f\x8b" else tail.partition(b"\n")[2]


def blocks(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """The bytes, unpacked if they are gzip, a megabyte at a time."""
    progress = _Progress(name)
    raw = iter(lambda: stream.read(BLOCK), b"")
    first = next(raw, b"")
    source = chain([first], raw) if first else raw
    if first[:2] == b"\x1f\x8b":
        source = _unpacked(source, name)
    for block in source:
        progress.saw(len(block))
        yield block
    progress.end()


def _unpacked(packed: Iterator[bytes], name: str) -> Iterator[bytes]:
    unzip = zlib.decompressobj(wbits=31)
    try:
        for block in packed:
            while block:
                if unzip.eof:  # rotated logs are often several gzip members in a row
                    unzip = zlib.decompressobj(wbits=31)
                if out := unzip.decompress(block, BLOCK):
                    yield out
                block = unzip.unconsumed_tail or unzip.unused_data
    except zlib.error as error:
        raise InputError(f"{name}: damaged gzip data ({error}); unpack it by hand to see what can be saved") from None


class _Progress:
    """A line on a terminal's stderr once reading takes longer than two seconds."""

    def __init__(self, name: str) -> None:
        self._name, self._begin, self._seen, self._shown = name, time.monotonic(), 0, 0.0

    def saw(self, count: int) -> None:
        self._seen += count
        now = time.monotonic()
        if now - self._begin > 2 and now - self._shown > 0.5 and sys.stderr.isatty():
            self._shown = now
            print(f"\r{self._name}: {self._seen / 1e6:,.0f} MB read", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown:
            print(file=sys.stderr)
