"""`sickbay evidence CASE`: one archive about a case, ready for a vendor ticket.

Takes the archive that COLLECT left (kernel window, tool outputs, serials), re-packs it safely and adds timeline.txt and
ticket.txt. Works on ended cases, and without the collected archive it says so inside. Its contents came from a sick
machine: only regular files are carried over, under their own names, bounded in number and size.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from sickbay.cli.cases import facts, found
from sickbay.cli.sitting import ConfigOption, StoreOption, say, sit_down
from sickbay.cli.words import moment, plain
from sickbay.core.explain import case_story
from sickbay.errors import UserError
from sickbay.model import Case

MAX_FILES = 1000
MAX_BYTES = 64 * 1024 * 1024  # of one file, which is held in memory once
COLLECTED = "collected"  # folder inside the archive
IDENTITY = "identity.json"  # written by COLLECT: which machine, which GPUs
CaseArgument = Annotated[str, typer.Argument(metavar="CASE", help="The case, e.g. gpu-17.3; it may have ended.")]
OutOption = Annotated[
    str, typer.Option("-o", "--output", metavar="FILE", help="Where to write; else CASE.tar.gz here.")
]


def command(case_id: CaseArgument, output: OutOption = "", store: StoreOption = "", config: ConfigOption = "") -> None:
    """One archive about a case, ready for a vendor ticket."""
    with sit_down(store, config) as sitting:
        case, _ = sitting.case(case_id)
    target = Path(output).expanduser() if output else Path(f"{case.id.replace('/', '_')}.tar.gz")
    carried, missing = pack(case, target)
    say(f"Wrote {target}: timeline.txt, ticket.txt and {carried} collected files.")
    if missing:
        say(f"Not complete: {missing}")


def pack(case: Case, target: Path) -> tuple[int, str]:
    """Write the archive whole or not at all; how many collected files it carries, and why not ("" if it does)."""
    partial = target.with_name(target.name + ".part")
    missing, carried, parts = _why_not(case), 0, list[str]()
    try:
        with tarfile.open(partial, "w:gz") as out:
            if not missing:
                carried, missing, parts = _carry_over(Path(case.evidence), out)
            _add(out, "timeline.txt", timeline(case).encode(), case.opened_at)
            _add(out, "ticket.txt", ticket(case, missing, parts).encode(), case.opened_at)
        os.replace(partial, target)
    except OSError as error:
        raise UserError(f"Cannot write {target}: {error.strerror or error}. Name another file with -o.") from error
    finally:
        partial.unlink(missing_ok=True)
    return carried, missing


def _why_not(case: Case) -> str:
    if not case.evidence:
        return "none were collected (the case did not get that far, or its node no longer answered)."
    if not Path(case.evidence).is_file():
        return f"{case.evidence} is not on this machine; run this where the controller runs."
    return ""


def _carry_over(source: Path, out: tarfile.TarFile) -> tuple[int, str, list[str]]:
    """Copy the collected files across, as many as can be read; how many, why not all, and the GPUs they name."""
    carried, parts = 0, list[str]()
    for name, body, at in _readable(source):
        if body is None:
            return carried, f"{source}: {name} after {carried} files.", parts
        _add(out, f"{COLLECTED}/{name}", body, at)
        carried += 1
        if PurePosixPath(name).name == IDENTITY:
            parts += serials(body)
    return carried, "", parts


def serials(identity: bytes) -> list[str]:
    """The GPUs in COLLECT's identity.json, a line each; none if it is not what we expect."""
    try:
        gpus = json.loads(identity)["gpus"]
        return [f"- GPU {gpu['index']} at {gpu['pci']}: serial {gpu['serial']}, {gpu['uuid']}" for gpu in gpus]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []


def _readable(source: Path) -> Iterator[tuple[str, bytes | None, float]]:
    """Each collected file, read whole before it is passed on; at the end (why, None) if something stayed behind."""
    left_out = 0
    try:
        with tarfile.open(source) as collected:
            for count, member in enumerate(collected):
                body = collected.extractfile(member) if count < MAX_FILES and _wanted(member) else None
                if body is None:
                    left_out += not member.isdir()
                else:
                    yield member.name, body.read(), member.mtime
    except (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        yield f"damaged ({error})", None, 0.0
    if left_out:
        yield f"{left_out} left out (links, devices, paths outside, or too large or too many)", None, 0.0


def _wanted(member: tarfile.TarInfo) -> bool:
    path = PurePosixPath(member.name)
    return member.isreg() and member.size <= MAX_BYTES and not path.is_absolute() and ".." not in path.parts


def _add(out: tarfile.TarFile, name: str, data: bytes, at: float) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = len(data), int(at), 0o644
    out.addfile(info, io.BytesIO(data))


def timeline(case: Case) -> str:
    """The journal, a line per entry, then the same as sentences."""
    entries = [
        f"{moment(entry.at)}  {entry.step:>4}  {entry.event:<12} {entry.phase:<11} {entry.by}: {plain(entry.why)}"
        for entry in case.journal
    ]
    if case.dropped_entries:
        entries.append(f"({case.dropped_entries} entries in between were dropped to keep the journal bounded)")
    return "\n".join(
        [f"Timeline of case {case.id}, all times UTC", "", *entries, "", *map(plain, case_story(case)), ""]
    )


def ticket(case: Case, missing: str, parts: list[str]) -> str:
    """What a vendor's form asks for: which machine, which part, what was seen, what was tried, what is attached."""
    tried = ", ".join(verb.value for verb in case.rungs_tried) or "nothing yet"
    attached = (
        f"Not attached: {missing}" if missing else f"Attached under {COLLECTED}/: kernel log, tool output, serials."
    )
    lines = [
        f"GPU server fault: {', '.join(dict.fromkeys(d.fault for d in case.diagnoses)) or 'see the timeline'}",
        "",
        *map(plain, facts(case)),
        "",
        "What was found",
        *map(plain, found(case)),
        "",
        *(["GPUs in this machine", *map(plain, parts), ""] if parts else []),
        f"Already tried, in this order: {tried}",
        "Timeline: timeline.txt",
        attached,
        "",
    ]
    return "\n".join(lines)
