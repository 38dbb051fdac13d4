"""Where results are written: one file a check, the summary, and the raw texts the checks keep. Whole or not at all.

The default place is in a folder that everybody may write to, so it is made for us alone, and one that somebody else
made, or a link, is refused: results written through it would land where he likes.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sickbay import atomic
from sickbay.errors import UserError

_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
MOST_KEPT = 8 * 1024 * 1024  # characters of one artefact
PRIVATE = 0o600


def default_folder(environ: Mapping[str, str], at: float) -> Path:
    """As the original: named after the Slurm job, or the moment."""
    job = _UNFIT.sub("-", environ.get("SLURM_JOB_ID", ""))[:64]
    return Path(tempfile.gettempdir()) / f"gpu-healthcheck-{job or int(at)}"


def made(folder: Path, *, ours: bool) -> Path:
    """The folder, there and fit to write to. `ours`: in a place where strangers may have been before."""
    try:
        folder.mkdir(mode=0o700, parents=not ours, exist_ok=True)
        found = folder.lstat() if ours else folder.stat()
    except OSError as refused:
        raise UserError(f"The results folder {folder} cannot be made: {refused.strerror}. Say --results-dir.") from None
    if not stat.S_ISDIR(found.st_mode):
        raise UserError(f"{folder} is {_kind(found.st_mode)}, not a folder. Remove it or say --results-dir.")
    if ours and (found.st_uid != os.geteuid() or found.st_mode & 0o022):
        raise UserError(f"{folder} belongs to somebody else or others may write to it. Say --results-dir.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"We may not write to {folder}. Say --results-dir.")
    return folder


def _kind(mode: int) -> str:
    return "a link" if stat.S_ISLNK(mode) else "a file"


def write(folder: Path, name: str, document: Mapping[str, Any]) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    atomic.write(folder / name, text.encode("utf-8", "replace"), mode=PRIVATE)


def keep(folder: Path, texts: Mapping[str, str]) -> None:
    """Raw texts; a name with a path in it keeps only its last part."""
    for name, text in texts.items():
        fit = _UNFIT.sub("-", os.path.basename(name)).lstrip(".")[:128]
        if fit:
            atomic.write(folder / fit, text[:MOST_KEPT].encode("utf-8", "replace"), mode=PRIVATE)
