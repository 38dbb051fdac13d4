"""`sickbay evidence CASE`: one archive about a case, ready for a vendor ticket.

Takes the archive that COLLECT put into the evidence store (kernel window, tool outputs, serials), re-packs it safely
and adds timeline.txt and ticket.txt. Works on ended cases, and without the collected archive it says so inside. It is
fetched by the name that we gave it and checked by the digest in the case: no file of this machine is opened because a
record or a node names it. Its contents came from a sick machine: only regular files are carried over, under their own
names, bounded in number, size and sum.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from sickbay.cli.cases import facts, found
from sickbay.cli.evidence_source import source
from sickbay.cli.sitting import ConfigOption, StoreOption, say, sit_down
from sickbay.cli.words import moment, plain
from sickbay.core.explain import case_story
from sickbay.errors import EvidenceError, UserError
from sickbay.model import Case
from sickbay.ports import EvidenceStore

MAX_FILES = 1000
MAX_BYTES = 64 * 1024 * 1024  # of one file, which is held in memory once
MAX_UNPACKED = 256 * 1024 * 1024  # of all of them, and of what stands between them
COLLECTED = "collected"  # folder inside the archive
IDENTITY = "identity.json"  # written by COLLECT: which machine, which GPUs
CaseArgument = Annotated[str, typer.Argument(metavar="CASE", help="The case, e.g. gpu-17.3; it may have ended.")]
OutOption = Annotated[
    str, typer.Option("-o", "--output", metavar="FILE", help="Where to write; else CASE.tar.gz here; - for stdout.")
]


def command(case_id: CaseArgument, output: OutOption = "", store: StoreOption = "", config: ConfigOption = "") -> None:
    """One archive about a case, ready for a vendor ticket."""
    with sit_down(store, config) as sitting:
        case, _ = sitting.case(case_id)
    if output == "-":
        _to_stdout(case, source(store, config))
        return
    target = Path(output).expanduser() if output else Path(f"{case.id.replace('/', '_')}.tar.gz")
    carried, missing = pack(case, target, source(store, config))
    say(f"Wrote {target}: timeline.txt, ticket.txt and {carried} collected files.")
    if missing:
        say(f"Not complete: {missing}")


def _to_stdout(case: Case, evidence: EvidenceStore | None) -> None:
    """For `kubectl exec … > FILE`: the archive and nothing else; what is missing is said beside it."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "case.tar.gz"
        _, missing = pack(case, target, evidence)
        sys.stdout.buffer.write(target.read_bytes())
        sys.stdout.buffer.flush()
    if missing:
        print(f"Not complete: {missing}", file=sys.stderr)


def pack(case: Case, target: Path, evidence: EvidenceStore | None) -> tuple[int, str]:
    """Write the archive whole or not at all; how many collected files it carries, and why not ("" if it does)."""
    partial = target.with_name(target.name + ".part")
    collected, missing = fetched(case, evidence)
    carried, parts = 0, list[str]()
    try:
        with tarfile.open(partial, "w:gz") as out:
            if not missing:
                carried, missing, parts = _carry_over(collected, out)
            _add(out, "timeline.txt", timeline(case).encode(), case.opened_at)
            _add(out, "ticket.txt", ticket(case, missing, parts).encode(), case.opened_at)
        os.replace(partial, target)
    except OSError as error:
        raise UserError(f"Cannot write {target}: {error.strerror or error}. Name another file with -o.") from error
    finally:
        partial.unlink(missing_ok=True)
    return carried, missing


def fetched(case: Case, evidence: EvidenceStore | None) -> tuple[bytes, str]:
    """What was collected, and why not ("" if it is there). By the case's own name for it, and by its digest."""
    if case.archive is None:
        said = f"; what was said instead: {plain(case.evidence)}" if case.evidence else ""
        return b"", f"none were kept (the case did not get that far, or its node no longer answered){said}."
    if evidence is None:
        return b"", "there is no evidence store (evidence.store is none)."
    try:
        return evidence.get(case.archive), ""
    except EvidenceError as error:
        return b"", f"{plain(str(error))}."


def _carry_over(collected: bytes, out: tarfile.TarFile) -> tuple[int, str, list[str]]:
    """Copy the collected files across, as many as can be read; how many, why not all, and the GPUs they name."""
    carried, parts = 0, list[str]()
    for name, body, at in _readable(collected):
        if body is None:
            return carried, f"the collected archive: {name} after {carried} files.", parts
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


class _Unpacked(io.RawIOBase):
    """What is in it, up to a limit: a few packed bytes can stand for more than any machine has."""

    def __init__(self, packed: bytes) -> None:
        self._file, self._left = gzip.GzipFile(fileobj=io.BytesIO(packed)), MAX_UNPACKED

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise OSError(f"more than {MAX_UNPACKED >> 20} MB when unpacked")
        return data


def _readable(packed: bytes) -> Iterator[tuple[str, bytes | None, float]]:
    """Each collected file, read whole before it is passed on; at the end (why, None) if something stayed behind."""
    left_out = 0
    try:
        with tarfile.open(fileobj=_Unpacked(packed), mode="r|") as collected:
            for count, member in enumerate(collected):
                if count >= MAX_FILES:
                    yield f"only the first {MAX_FILES} are taken", None, 0.0
                    return
                body = collected.extractfile(member) if _wanted(member) else None
                if body is None:
                    left_out += not member.isdir()
                else:
                    yield member.name, body.read(), member.mtime
    except (tarfile.TarError, EOFError, OSError, zlib.error, ValueError) as error:
        yield f"damaged ({error})", None, 0.0
    if left_out:
        yield f"{left_out} left out (links, devices, paths outside, or too large)", None, 0.0


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
