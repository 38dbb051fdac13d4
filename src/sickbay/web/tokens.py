"""Tokens bound to a node: who may speak for gpu-17 is whoever holds the token made for gpu-17.

A token is "v1.<node, base64url>.<HMAC-SHA256, hex>" over the cluster's and the node's name. Nothing is stored per
node: the ingest checks it with the secrets it was made from. Made by `sickbay token NODE`, checked by web/ingest.py.
A secret must never be logged or put into an error.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import stat
import threading
from pathlib import Path

from sickbay import atomic
from sickbay.errors import UserError

log = logging.getLogger(__name__)

VERSION = "v1"
LONGEST_TOKEN = 1024
LONGEST_NODE = 253  # a DNS name: no platform calls a node by a longer one
SHORTEST_SECRET = 16
MOST_SECRETS = 16  # old ones are kept for a rotation, not for ever; each wrong token is tried with all of them
LARGEST_FILE = 64 * 1024

# A token for a source instead of a node (`sickbay token source:alertmanager`): no node can have such a name.
SOURCE = "source:"

HOW = "make one with: (umask 077; openssl rand -hex 32 > FILE)"


def make(secret: bytes, cluster: str, node: str) -> str:
    """The token for this node of this cluster."""
    if not node or len(node) > LONGEST_NODE or not node.isprintable():
        raise UserError(f"{node[:40]!r} is no node's name: 1 to {LONGEST_NODE} printable characters")
    name = base64.urlsafe_b64encode(node.encode()).decode().rstrip("=")
    return f"{VERSION}.{name}.{_seal(secret, cluster, node)}"


def _seal(secret: bytes, cluster: str, node: str) -> str:
    """NUL between the names: no two pairs of them give the same text."""
    return hmac.new(secret, "\0".join((VERSION, cluster, node)).encode(), hashlib.sha256).hexdigest()


def node_of(secrets: tuple[bytes, ...], cluster: str, token: str) -> str | None:
    """The node this token speaks for, or None if none of the secrets made it. Takes as long either way."""
    version, _, rest = token[:LONGEST_TOKEN].partition(".")
    name, _, seal = rest.partition(".")
    node = _named(name)
    if version != VERSION or not node or not seal.isascii():
        return None
    fits = [hmac.compare_digest(_seal(secret, cluster, node), seal) for secret in secrets]
    return node if any(fits) else None


def _named(name: str) -> str:
    try:
        raw = base64.b64decode((name + "=" * (-len(name) % 4)).encode("ascii"), altchars=b"-_", validate=True)
        node = raw.decode()
    except (binascii.Error, UnicodeError, ValueError):
        return ""
    return node if len(node) <= LONGEST_NODE and node.isprintable() else ""


class Secrets:
    """The secrets of `ingest.secret_file`, one a line, read again when the file changes.

    The first makes tokens, any of them checks one: to rotate, put a new line on top, hand out new tokens, then remove
    the old line. A file that became unreadable is complained of once, and the last good secrets are kept.
    """

    def __init__(self, path: str) -> None:
        if not path:
            raise UserError(f"ingest.secret_file is not set: name a file with one secret a line; {HOW}")
        self._path = Path(path).expanduser()
        self._lock = threading.Lock()
        self._mark = self._look()
        self._known = self._read()

    def first(self) -> bytes:
        return self.all()[0]

    def all(self) -> tuple[bytes, ...]:
        with self._lock:
            mark = self._look()
            if mark != self._mark:
                self._mark = mark
                self._read_again()
            return self._known

    def _look(self) -> tuple[int, ...]:
        """What tells one state of the file from the next; a rename over it changes the inode."""
        try:
            found = self._path.stat()
        except OSError:
            return ()
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    def _read_again(self) -> None:
        try:
            self._known = self._read()
            log.info("secrets read again file=%s count=%d", self._path, len(self._known))
        except UserError as problem:
            log.error("the last good secrets are kept: %s", problem)

    def _read(self) -> tuple[bytes, ...]:
        try:
            with atomic.named(self._path) as opened:
                mode, data = stat.S_IMODE(self._path.stat().st_mode), opened.read(LARGEST_FILE + 1)
        except OSError as error:
            raise UserError(f"ingest.secret_file {self._path} cannot be read: {error.strerror}; {HOW}") from error
        if mode & 0o077:
            log.warning("secret file=%s mode=%04o: others can read it; chmod 600 it", self._path, mode)
        return self._secrets(data)

    def _secrets(self, data: bytes) -> tuple[bytes, ...]:
        lines = [line.strip() for line in data[:LARGEST_FILE].splitlines()]
        secrets = tuple(line for line in lines if line and not line.startswith(b"#"))
        if not secrets:
            raise UserError(f"ingest.secret_file {self._path} has no secret in it; {HOW}")
        if any(len(secret) < SHORTEST_SECRET for secret in secrets):
            raise UserError(
                f"ingest.secret_file {self._path}: a secret is shorter than {SHORTEST_SECRET} characters and could be "
                f"guessed; {HOW}"
            )
        if len(secrets) > MOST_SECRETS:
            raise UserError(f"ingest.secret_file {self._path} has more than {MOST_SECRETS} secrets: remove old ones")
        return secrets
