"""A folder that swallows whoever looks into it: a file system whose server takes each question and never answers.

A process that asks is, once killed, in uninterruptible sleep (state D) for good: the kernel waits for an answer to a
question that was already handed over (fs/fuse/dev.c, request_wait_answer). Closing the hole lets it go. Needs root and
/dev/fuse, so tests that use it skip where those are missing. Formats: include/uapi/linux/fuse.h.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from pathlib import Path

import pytest

INIT = 26  # opcode
MNT_DETACH = 2
_HEADER = struct.Struct("<IIQQIIII")  # length, opcode, unique, node, uid, gid, pid, padding
_libc = ctypes.CDLL(None, use_errno=True)


class Hole:
    """Mounted at `folder` from construction until `close`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked = threading.Event()  # somebody looked, and will not come back by himself
        self._fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._fd},rootmode=40000,user_id=0,group_id=0".encode()
        if _libc.mount(b"hole", str(folder).encode(), b"fuse.hole", 0, options):
            os.close(self._fd)
            raise OSError(ctypes.get_errno(), "mount")
        threading.Thread(target=self._swallow, daemon=True).start()

    def _swallow(self) -> None:
        while True:
            try:
                question = os.read(self._fd, 1 << 17)
            except OSError:  # closed
                return
            _, opcode, unique, *_ = _HEADER.unpack_from(question)
            if opcode == INIT:
                answer = struct.pack("<IIIIHHII", 7, 31, 0, 0, 16, 12, 1 << 16, 1).ljust(64, b"\0")
                os.write(self._fd, struct.pack("<IiQ", 16 + len(answer), 0, unique) + answer)
            else:
                self.asked.set()

    def close(self) -> None:
        """Everybody comes out, with an error. Unmounting ends the server's read; the descriptor is its to close."""
        _libc.umount2(str(self.folder).encode(), MNT_DETACH | 1)
        os.close(self._fd)


def dig(folder: Path) -> Hole:
    """A hole, or the test is skipped and says why."""
    try:
        return Hole(folder)
    except OSError as refused:
        pytest.skip(f"no file system of our own here ({refused.strerror}): state D cannot be shown")
