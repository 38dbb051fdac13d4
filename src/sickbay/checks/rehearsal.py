"""Rehearsed kernel lines: what `sickbay inject` writes, how the agent knows one, and how it says so.

A program cannot write a record of kernel origin: Linux gives what is written to /dev/kmsg facility 1, "user"
(kernel/printk/printk.c). So a rehearsal carries a marker, and the agent takes it for a kernel line only while
`agent.allow_inject` is on. Whatever comes of it says "rehearsal". Pure; it must never let a line pass that does not
carry the marker at the very beginning of its body: log text is hostile, and a program may quote one.
"""

from __future__ import annotations

import re
from dataclasses import replace

from sickbay.checks.signs import Sign
from sickbay.errors import InputError

MARKER = "sickbay-rehearsal"
SAID = "REHEARSAL, no real fault: "
MOST = 900  # of a body: a kmsg record is cut at 1,024 bytes less its own head (LOG_LINE_MAX)

# A kmsg record whose facility is 1 (priority 8 to 15), or a body alone, as journald's MESSAGE holds it.
_RECORD = re.compile(rf"(?P<priority>8|9|1[0-5]),(?P<rest>\d+,\d+,[^;\n]{{0,64}};){MARKER}: (?=\S)")
_BODY = re.compile(rf"{MARKER}: (?=\S)")
_DEVICE = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}")

# What the driver prints after the number, where our own rules read it (open-gpu-kernel-modules, kernel_rc.c).
_TEXTS = {
    48: "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 0.",
    63: "Row Remapper: New row (0x0000000000000000) marked for remapping, reset gpu to activate.",
    74: "NVLink: fatal error detected on link 0(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
    79: "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    94: "Contained: SM (0x1). RST: No, D-RST: No",
    95: "Uncontained: FBHUB. RST: Yes, D-RST: No",
    119: "Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL).",
    154: "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
}  # fmt: skip


def xid_line(xid: int, device: str, text: str = "") -> str:
    """The line the driver would print, with the marker before it. InputError for what no driver prints."""
    where = device.strip().lower().removesuffix(".0")
    if not _DEVICE.fullmatch(where):
        raise InputError(f"--device {device!r}: not a PCI address; write it as in nvidia-smi, such as 0000:3b:00")
    if not 0 < xid < 1000:
        raise InputError(f"--xid {xid}: not the number of an XID; write 1 to 999, such as 79")
    return marked(f"NVRM: Xid (PCI:{where}): {xid}, {text or _TEXTS.get(xid, 'rehearsed')}")


def marked(body: str) -> str:
    """Any kernel line as a rehearsal. One line, and short enough to be one record."""
    if not body.strip() or not body.isprintable():
        raise InputError("a rehearsed kernel line must be one line of printable characters")
    return f"{MARKER}: {body.strip()[:MOST]}"


def is_rehearsal(line: str) -> bool:
    """Does this record (or body) begin with our marker?"""
    return bool(_RECORD.match(line) or _BODY.match(line))


def strip(line: str) -> str:
    """The line as the kernel would have written it: no marker, facility 0. Other lines come back as they are."""
    if found := _RECORD.match(line):
        return f"{int(found['priority']) - 8},{found['rest']}{line[found.end() :]}"
    return _BODY.sub("", line, count=1) if _BODY.match(line) else line


def said(sign: Sign) -> Sign:
    """The sign of a rehearsed line: its reason says so first, and so does a trait, for whoever counts."""
    return replace(sign, reason=f"{SAID}{sign.reason}", traits={**sign.traits, "rehearsal": "yes"})
