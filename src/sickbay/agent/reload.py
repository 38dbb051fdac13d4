"""Settings while the agent runs: a TOML file, or a folder of key files (a mounted ConfigMap), read again each cycle.

In a folder a file's name is the key (CHECK_INTERVAL, SICKBAY_AGENT__MODE) and its content the value; sickbay.toml in it
is a whole file. A bad edit is reported and the last good settings are kept (originals 002.12 #15). It must never
apply half of an edit.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from sickbay import atomic, settings_env, settings_load
from sickbay.errors import SickbayError
from sickbay.settings import AgentSettings, Settings

MOST_FILES = 256
MOST_BYTES = 1_000_000
FILE = "sickbay.toml"
ALSO = frozenset({FILE, "instance-profiles.conf"})

# What only a start can change: they are open files, sockets and threads.
AT_START = (
    "node_name",
    "host_root",
    "state_dir",
    "kmsg",
    "listen",
    "publishers",
    "ingest_url",
    "token_file",
    "ca_file",
    "spool_mb",
)


class Config:
    """The newest good settings, and what is wrong with the newest edit."""

    def __init__(self, path: str = "", environ: Mapping[str, str] | None = None) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        self._path = path or self._environ.get("SICKBAY_CONFIG", "")
        self._mark = ""
        self.settings = Settings()
        self.trouble = ""  # what is wrong with what is on disk now; "" if it is what we use
        self.remarks: tuple[str, ...] = ()
        self._take()

    def _take(self) -> None:
        text, keys, self._mark = self._read()
        self.remarks = tuple(f"{name}: not a key the agent knows" for name in sorted(keys) if not _known(name))
        given = {**self._environ, **{name: value for name, value in keys.items() if name not in ALSO}}
        self.settings = settings_load.parse(text, self._path, given).settings
        self.trouble = ""

    def refresh(self) -> bool:
        """Read again; True if the settings in use have changed. A bad edit changes only `trouble`."""
        before = self.settings
        try:
            if self._read()[2] == self._mark:
                return False
            self._take()
        except (SickbayError, OSError, UnicodeDecodeError) as error:
            self.trouble = str(error)
            self._mark = self._mark_now()
            return False
        return self.settings != before

    def _mark_now(self) -> str:
        try:
            return self._read()[2]
        except (SickbayError, OSError, UnicodeDecodeError):
            return "unreadable"

    def _read(self) -> tuple[str, dict[str, str], str]:
        """(TOML text, key files, a mark of both)."""
        if not self._path:
            return "", {}, "none"
        path = Path(self._path).expanduser()
        keys = _key_files(path) if path.is_dir() else {}
        text = keys.pop(FILE, "") if path.is_dir() else settings_load._read(path)
        digest = hashlib.sha256(repr((text, sorted(keys.items()))).encode("utf-8", "replace")).hexdigest()
        return text, keys, digest


def _key_files(folder: Path) -> dict[str, str]:
    """Name -> content. Kubernetes' own links (..data, ..2024_...) are how it swaps all keys at once: not keys."""
    names = sorted(name for name in os.listdir(folder) if not name.startswith("."))[:MOST_FILES]
    found: dict[str, str] = {}
    for name in names:
        if (folder / name).is_file():
            with atomic.opened(folder / name) as file:
                found[name] = file.read(MOST_BYTES).decode("utf-8").strip()
    return found


def _known(name: str) -> bool:
    ours = name.startswith(settings_env.PREFIX)
    return ours or name in settings_env.ALIASES or name in settings_env.SEVERITY_ALIASES or name in ALSO


def needs_restart(old: AgentSettings, new: AgentSettings) -> tuple[str, ...]:
    """Keys that were edited and stay as they were until the agent is started anew."""
    return tuple(key for key in AT_START if getattr(old, key) != getattr(new, key))
