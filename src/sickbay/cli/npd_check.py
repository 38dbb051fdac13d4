"""`sickbay npd-check`: what node-problem-detector runs each minute, answered from the verdict that the agent keeps.

It prints one line and exits 0 (well), 1 (GPUs are down) or 2 (cannot tell). `sickbay.cli` calls `main` before it
imports anything else, and deploy/node-problem-detector/check_gpu.sh runs this very file alone in an image without
Sickbay: so it must never import more than a few light parts of the standard library. It must never run a tool, open a
connection or wait, and 1 must never be the outcome of anything but a fresh verdict that says so: 1 cordons nodes.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time

OK, NONOK, UNKNOWN = 0, 1, 2
MOST = 80  # characters: node-problem-detector cuts there (max_output_length)
MOST_BYTES = 65_536  # of a verdict; the agent writes about 400
MOST_AHEAD_S = 300.0  # a verdict dated later than this was written before the clock was set back
FILE = "verdict.json"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
STATE_DIR = "/var/lib/sickbay"  # agent.state_dir

HELP = f"""\
Usage: sickbay npd-check [--state-dir DIR] [--only-failures]

Answers node-problem-detector from the agent's last verdict: one line of at most {MOST} characters, and exit code
0 (pass, warn), 1 (fail) or 2 (cannot tell: no GPUs, no verdict, one that is too old or from before a reboot).
It runs no GPU tool and needs no network. See docs/agent.md.

  --state-dir DIR   the agent's folder; else SICKBAY_AGENT__STATE_DIR, else {STATE_DIR}
  --only-failures   exit 0 instead of 2: for a "temporary" rule, which makes an event of everything but 0
"""


class Unclear(Exception):
    """There is no verdict to go by; the text says why, for the node's condition."""


def main(argv: list[str] | None = None) -> int:
    """Print the line and return the exit code. Whatever goes wrong in here is "cannot tell"."""
    try:
        return _main(list(sys.argv[1:] if argv is None else argv))
    except Exception as error:
        return _say(f"npd-check itself failed: {error!r}", UNKNOWN)


def _main(args: list[str]) -> int:
    if "--help" in args or "-h" in args:
        print(HELP, end="")
        return OK
    try:
        only_failures, folder = _options(args)
        code, line = answer(read(os.path.join(folder, FILE)), time.time(), boot_id())
    except Unclear as why:
        only_failures, code, line = "--only-failures" in args, UNKNOWN, str(why)
    return _say(line, OK if only_failures and code == UNKNOWN else code)


def _options(args: list[str]) -> tuple[bool, str]:
    only_failures, folder, rest = False, os.environ.get("SICKBAY_AGENT__STATE_DIR") or STATE_DIR, list(args)
    while rest:
        word = rest.pop(0)
        if word == "--only-failures":
            only_failures = True
        elif word == "--state-dir" and rest:
            folder = rest.pop(0)
        elif word.startswith("--state-dir="):
            folder = word.partition("=")[2]
        else:
            raise Unclear(f"npd-check does not know {word!r}: only --state-dir DIR, --only-failures")
    return only_failures, folder


def _say(line: str, code: int) -> int:
    print(plain(line))
    return code


def plain(line: str) -> str:
    """One line of printable ASCII that fits into a node's condition."""
    words = " ".join(line.encode("ascii", "replace").decode("ascii").split())
    shown = "".join(c if c.isprintable() else "?" for c in words)
    return shown if len(shown) <= MOST else shown[: MOST - 3].rstrip() + "..."


def boot_id() -> str:
    """The running kernel's; the same inside a container."""
    try:
        with open(BOOT_ID, encoding="ascii") as file:
            return file.read(100).strip()
    except (OSError, ValueError):
        return ""


def read(path: str) -> dict[str, object]:
    """The verdict as the agent wrote it. Anything but a small regular file with a JSON object in it is Unclear."""
    text = _text(path)
    try:
        verdict = json.loads(text)
    except (ValueError, RecursionError):
        raise Unclear(f"{FILE} is damaged: not JSON") from None
    if not isinstance(verdict, dict):
        raise Unclear(f"{FILE} is damaged: not an object")
    return verdict


def _text(path: str) -> bytes:
    try:
        door = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO in its place must not hang us
    except FileNotFoundError:
        raise Unclear(f"no verdict from the agent yet: is it running? no {path}") from None
    except OSError as error:
        raise Unclear(f"{FILE} cannot be read: {error.strerror}") from None
    with os.fdopen(door, "rb") as file:
        if not stat.S_ISREG(os.fstat(door).st_mode):
            raise Unclear(f"{FILE} is not a file")
        text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise Unclear(f"{FILE} is damaged: larger than {MOST_BYTES} bytes")
    return text


def answer(verdict: dict[str, object], now: float, boot: str) -> tuple[int, str]:
    """Exit code and line. The order matters: what is not of this boot, or too old, says nothing about now."""
    if verdict.get("schema") != 1:
        raise Unclear(f"{FILE} is of schema {verdict.get('schema')!r}, this npd-check reads 1: update it")
    if verdict.get("gpus") is False:
        raise Unclear("this node has no GPUs")
    if not boot or verdict.get("boot_id") != boot:
        raise Unclear("the verdict is from before the last boot: the agent has not looked yet")
    status, reason = verdict.get("status"), str(verdict.get("reason") or "")
    _fresh(verdict, now, f"{status}: {reason}")
    if status == "fail":
        return NONOK, reason or f"GPUs are down, severity {verdict.get('severity')}"
    if status in ("pass", "warn"):
        return OK, reason or "gpus are up"
    if status == "unknown":
        raise Unclear(f"cannot tell: {reason}" if reason else "cannot tell: the checks could not look")
    raise Unclear(f"{FILE} is damaged: status {status!r}")


def _fresh(verdict: dict[str, object], now: float, last: str) -> None:
    at, until = _number(verdict, "at"), _number(verdict, "expires_at")
    if at > now + MOST_AHEAD_S:
        raise Unclear(f"the verdict is dated {_span(at - now)} ahead: the clock was set back")
    if now >= until:
        raise Unclear(f"agent silent for {_span(now - at)}; it last said {last}")


def _number(verdict: dict[str, object], key: str) -> float:
    value = verdict.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:  # no NaN either
        raise Unclear(f"{FILE} is damaged: {key} is no time")
    return float(value)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


if __name__ == "__main__":
    sys.exit(main())
