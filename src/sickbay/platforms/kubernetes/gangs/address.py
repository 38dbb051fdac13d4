"""What a trainer says at a port of its own pod: one small HTTP request, bounded in bytes and in time as a whole.

Called by progress.py and by checkpoint.py (a hook). `<port><path>` at the pod's own address: no other host can be
named, redirects are not followed. The other side is a user's program: it may send a byte a second, for ever.
"""

from __future__ import annotations

import http.client
import io
import socket
import time

from sickbay.errors import InputError
from sickbay.kube.objects import PodObject

WHOLE_S, MOST_ANSWER = 2.0, 65_536


class NoAnswer(InputError):
    """Nothing can be read there now, and why."""


def fetch(pod: PodObject, address: str, method: str = "GET") -> str:
    port, slash, path = address.partition("/")
    if not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65_536):
        raise NoAnswer(f"{address[:60]} names no port")
    if not pod.status.pod_ip:
        raise NoAnswer(f"pod {pod.metadata.name} has no address")
    try:
        raw, ended = _exchange((pod.status.pod_ip, int(port)), _request(method, f"{slash}{path}" or "/"))
        return _body(raw, ended, method)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoAnswer(f"pod {pod.metadata.name} does not answer at {address[:60]} ({error or 'too late'})") from error


def _request(method: str, path: str) -> bytes:
    if not path.isascii() or not path.isprintable() or " " in path:
        raise ValueError("that is no path")
    head = (f"{method} {path} HTTP/1.1", "Host: sickbay", "User-Agent: sickbay", "Connection: close")
    return "\r\n".join((*head, "Content-Length: 0" if method == "POST" else "Accept: */*", "", "")).encode()


def _exchange(where: tuple[str, int], request: bytes) -> tuple[bytes, bool]:
    """All that comes until the other side ends, or until the time or the bytes are used up; and whether it has ended
    by itself."""
    end, said = time.monotonic() + WHOLE_S, b""
    with socket.create_connection(where, timeout=WHOLE_S) as connection:
        connection.settimeout(max(0.01, end - time.monotonic()))
        connection.sendall(request)
        while len(said) < 2 * MOST_ANSWER and (left := end - time.monotonic()) > 0:
            connection.settimeout(left)
            try:
                more = connection.recv(MOST_ANSWER)
            except TimeoutError:
                break  # one that keeps the line open may have said all
            if not more:
                return said, True
            said += more
    return said, False


class _Said:
    """As much of a socket as http.client reads an answer from."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._raw)


def _body(raw: bytes, ended: bool, method: str) -> str:
    """Of a whole answer only: the first half of a number is another number."""
    answer = http.client.HTTPResponse(_Said(raw), method=method)  # type: ignore[arg-type]
    answer.begin()
    if not 200 <= answer.status < 300:
        raise ValueError(f"it says {answer.status}")
    length, said = answer.length, answer.read(MOST_ANSWER)
    whole = ended or answer.chunked if length is None else len(said) >= min(length, MOST_ANSWER)
    if not whole and len(said) < MOST_ANSWER:
        raise ValueError(f"not all of it came within {WHOLE_S:.0f} s")
    return said.decode("utf-8", "replace")
