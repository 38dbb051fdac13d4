"""How an archive leaves its node: as text in the log of the Job's pod, which the API server reads from the kubelet.

`sickbay node collect` prints it, collect.py reads it. So a sick machine needs no rights, no network and no secret to
hand its evidence over, and the controller opens no door for it. What comes is bounded in bytes and in time, and counts
only if its digest is the one in the Job's answer. It must never raise for anything a node can print.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import re
import time
from collections.abc import Iterator
from typing import TextIO

from sickbay.kube.api import Api

BEGIN, END = "-----BEGIN SICKBAY EVIDENCE-----", "-----END SICKBAY EVIDENCE-----"
LINE = 12_000  # characters: a container runtime breaks lines at 16 KiB
SLACK = 256 << 10  # of a log: what else the Job has said
READ_S, QUIET_S = 7.0, 4.0  # a door must answer within ten seconds
_BASE64 = re.compile(rb"[A-Za-z0-9+/]+={0,2}")


def printed(data: bytes, out: TextIO) -> None:
    out.write(f"\n{BEGIN}\n")
    for line in _lines(data):
        out.write(f"{line}\n")
    out.write(f"{END}\n")
    out.flush()


def _lines(data: bytes) -> Iterator[str]:
    step = LINE // 4 * 3
    for start in range(0, len(data), step):
        yield base64.b64encode(data[start : start + step]).decode()


def fetched(api: Api, log: str, size: int) -> bytes:
    """The log of a pod, as far as an archive of this size can need it. ApiError when the server refuses; OSError
    when it does not come in time."""
    most = size * 4 // 3 + 2 * (size // LINE + 16) + SLACK
    until, got = time.monotonic() + READ_S, bytearray()
    try:
        with api.stream(log, {"limitBytes": str(most)}, QUIET_S) as answer:
            while len(got) < most and (block := answer.read1(1 << 20)):
                got += block
                if time.monotonic() > until:
                    raise TimeoutError(f"{len(got) >> 10} KiB of the log came in {READ_S:.0f} s")
    except http.client.HTTPException as broken:
        raise OSError(f"the log broke off: {type(broken).__name__}") from broken
    return bytes(got[:most])


def opened(log: bytes, size: int) -> bytes:
    """The archive in it, at most this many bytes; what is between the marks and no base64 was said by somebody else."""
    _, _, after = log.rpartition(BEGIN.encode())
    body = bytearray()
    for line in after.partition(END.encode())[0].split():
        if _BASE64.fullmatch(line) and len(line) <= LINE + 4:
            body += _decoded(line)
        if len(body) > size:
            break
    return bytes(body[:size])


def _decoded(line: bytes) -> bytes:
    try:
        return base64.b64decode(line, validate=True)
    except (binascii.Error, ValueError):
        return b""
