"""Who is to blame for a job that failed: hardware, infrastructure, its own code, or nobody we can name.

`core/recover` and `sickbay diagnose` ask it about a job's log. Pure. A job's log can blame, never open a case; a
program error is never called hardware; watchdog time-outs and signals passed on between ranks are symptoms, not
causes. Callers that would refuse a restart because of "user-code" should ask for `confidence >= SURE`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sickbay.model import Blame

SURE = 0.7
MOST_LINES = 20_000
MOST_QUOTES = 4

# XIDs that speak of the part or its links. Everything else an XID says about a job is at best an application fault
# (NVIDIA's XID catalog: the RESTART_APP and IGNORE buckets).
HARDWARE_XIDS = frozenset(
    (
        48,
        54,
        62,
        63,
        64,
        74,
        79,
        92,
        94,
        95,
        110,
        119,
        120,
        136,
        140,
        143,
        *range(144, 151),
        155,
        156,
        157,
        158,
        160,
        161,
        171,
        172,
        177,
    )
)


@dataclass(frozen=True, slots=True)
class BlameVerdict:
    blame: Blame
    confidence: float
    because: tuple[str, ...]
    traceback: str = ""  # equal for two failures of the same kind at the same place


@dataclass(frozen=True, slots=True)
class Clue:
    blame: Blame
    weight: float
    line: str
    at: int
    plain: bool = False  # an ordinary program error: nothing about GPUs, the network or storage in it


H, N, U = Blame.HARDWARE, Blame.INFRASTRUCTURE, Blame.USER_CODE
_CUDA = r"(?:cuda|nccl|cublas|cudnn|hip|nvlink|nvml|c10|acceleratorerror)"

# First match per line wins. Weight: how often such a line, alone, is right about the cause.
_RULES: tuple[tuple[re.Pattern[str], Blame, float], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), who, weight)
    for pattern, who, weight in (
        (rf"{_CUDA}.{{0,120}}uncorrectable (?:ECC|NVLink) error", H, 0.95),
        (r"cudaError(?:ECC|Nvlink)Uncorrectable|CUDA_ERROR_(?:ECC|NVLINK)_UNCORRECTABLE", H, 0.95),
        (r"GPU has fallen off the bus|GPU is lost\b|Unable to determine the device handle for", H, 0.95),
        (r"all links are inactive|NVLink: fatal error detected", H, 0.8),
        (
            r"NET/IB ?:.{0,60}(?:async event|completion (?:from peer )?with error)|ibv_\w+ failed"
            r"|local catastrophic error",
            N,
            0.85,
        ),
        (r"NET/OFI.{0,80}(?:error|failed)|\befa\b.{0,60}(?:error|timed? ?out)|fi_cq_readerr", N, 0.85),
        (
            r"NCCL.{0,200}(?:unhandled system error|internal error|remote process exited)"
            r"|NCCL WARN.{0,80}(?:Attribute|topology|socket|connect)",
            N,
            0.7,
        ),
        (
            r"\[Errno (?:5|28|30|70|107|108|116|121|122)\]|Disk quota exceeded|No space left on device"
            r"|Stale (?:NFS )?file handle",
            N,
            0.9,
        ),
        (r"Transport endpoint is not connected|Remote I/O error|Read-only file system|: Input/output error", N, 0.9),
        (r"insufficient shared memory|killed by signal: Bus error", N, 0.85),
        (r"system not yet initialized|cudaGetDeviceCount returned 802|fabric ?manager.{0,60}(?:not|fail)", N, 0.85),
        (
            r"Driver/library version mismatch|Failed to initialize NVML|couldn't communicate with the NVIDIA driver",
            N,
            0.85,
        ),
        (r"the launch timed out and was terminated|RC watchdog: GPU is probably locked", N, 0.6),
        (
            r"Temporary failure in name resolution|Name or service not known|No route to host|Network is unreachable",
            N,
            0.8,
        ),
        (
            r"DUE TO (?:PREEMPTION|NODE FAILURE)|\bNODE_FAIL\b|node failure|spot (?:instance )?interruption"
            r"|ImagePullBackOff",
            N,
            0.9,
        ),
        (r"CUDA driver version is insufficient|no CUDA-capable device is detected", N, 0.6),
        (r"out of memory\. Tried to allocate|CUDA out of memory|OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY", U, 0.9),
        (r"device-side assert triggered|\.cuh?:\d+.{0,200}Assertion .{0,200}failed", U, 0.95),
        (
            r"illegal memory access|misaligned address|illegal instruction was encountered"
            r"|invalid device (?:ordinal|function)",
            U,
            0.7,
        ),
        (
            r"no kernel image is available|CUBLAS_STATUS_INVALID_VALUE|CUDNN_STATUS_BAD_PARAM"
            r"|unspecified launch failure",
            U,
            0.7,
        ),
        (r"Out of memory: Kill(?:ed)? process|oom-kill:|\boom[_-]killed?\b|OOMKilled|MemoryError", U, 0.75),
        (r"exitcode\s*:\s*-9\b|Signal 9 \(SIGKILL\)|failed \(exitcode: -9\)", U, 0.5),
        (r"segfault at [0-9a-f]+ ip|exitcode\s*:\s*-11\b|Signal 11 \(SIGSEGV\)|Segmentation fault", U, 0.6),
    )
)
_SYMPTOM = re.compile(
    r"collective operation timeout|watchdog|timed out|ChildFailedError|exitcode|\bSIG[A-Z]+\b|\w+Error\b|\berror:",
    re.IGNORECASE,
)
_PCIE = re.compile(r"PCIe Bus Error|\b(?:RxErr|BadTLP|BadDLLP)\b")
_XID = re.compile(r"\bXid\b(?: \((?:PCI:)?[^)\n]{7,40}\):)? (\d{1,3})((?:\s?/\s?\d{1,3})*)", re.IGNORECASE)
_CAUSED = re.compile(r"caused by previous Xid (\d+)")
# Talk about an error is not an error.
_TALK = re.compile(
    r"\b(?:no|zero|without|never|checking|checked|handl\w+|in case of|documentation|test(?:s|ing)?)\b|\b(?:errors?"
    r"|count)\s*[:=]\s*0\b",
    re.IGNORECASE,
)
_RANK = re.compile(r"^\s*(?:\[rank\s?\d+\]:|\d+:|\[\d+,\d+\]<std\w+>:|\(\w+ pid=\d+[^)]*\))\s?", re.IGNORECASE)

_PLAIN = frozenset(
    [
        "KeyError",
        "ValueError",
        "TypeError",
        "AttributeError",
        "ImportError",
        "ModuleNotFoundError",
        "IndexError",
        "NameError",
        "SyntaxError",
        "AssertionError",
        "ZeroDivisionError",
        "FileNotFoundError",
        "NotImplementedError",
        "UnicodeDecodeError",
        "UnboundLocalError",
        "IndentationError",
        "LookupError",
        "ArithmeticError",
        "OverflowError",
        "FloatingPointError",
        "RecursionError",
        "StopIteration",
        "NotADirectoryError",
        "IsADirectoryError",
        "JSONDecodeError",
        "ParserError",
        "ConfigAttributeError",
        "ValidationError",
    ]
)
_SHAPES = re.compile(
    r"mat1 and mat2|size mismatch|shape|expected scalar type|dtype|must match the size|not implemented for"
    r"|requires? grad|element 0 of tensors|Error\(s\) in loading state_dict",
    re.IGNORECASE,
)
_OUTSIDE = re.compile(
    r"cuda|nccl|cublas|cudnn|nvlink|ECC|errno|i/o|socket|connection|timed? ?out|store|rendezvous", re.IGNORECASE
)
_RAISED = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Iteration|Interrupt)): ?(.*)$")
_FRAME = re.compile(r'^\s*File "([^"]+)", line \d+, in (\S+)')
_WITNESS = re.compile(
    r"remote process exited|ncclRemoteError|connection (?:closed|reset) by (?:remote )?peer", re.IGNORECASE
)


def blame(text_lines: Sequence[str]) -> BlameVerdict:
    """The verdict on one log. Only its last 20,000 lines are read: causes stand near the end."""
    lines = [_RANK.sub("", line[:2000].rstrip()) for line in text_lines[-MOST_LINES:]]
    clues = list(_clues(lines))
    trace = signature(lines)
    return _weigh(clues, trace, _symptoms(lines))


def blame_gang(logs: Sequence[Sequence[str]]) -> BlameVerdict | None:
    """The verdict on the logs of a gang's ranks; None if all are empty. A rank that says its peer went away is a
    witness, not a cause: fifteen of them must not outvote the one that says what it died of."""
    spoke = [log for log in logs if log]
    causes = [log for log in spoke if not any(_WITNESS.search(line) for line in log)]
    lines = [line for log in causes or spoke for line in log]
    return blame(lines) if lines else None


def _symptoms(lines: Sequence[str]) -> tuple[str, ...]:
    """What to quote when nothing names a cause: the first lines that at least say something went wrong."""
    found = (line.strip()[:300] for line in lines if _SYMPTOM.search(line))
    return tuple("".join(c if c.isprintable() else " " for c in line) for line, _ in zip(found, range(2), strict=False))


def _clues(lines: Sequence[str]) -> Iterator[Clue]:
    pcie = next((line for line in lines if _PCIE.search(line)), "")
    for at, line in enumerate(lines):
        if clue := _ruled(line, at) or _xid(line, at, pcie) or _raised(line, at):
            yield clue


def _ruled(line: str, at: int) -> Clue | None:
    for pattern, who, weight in _RULES:
        if found := pattern.search(line):
            if who is H and _TALK.search(line[: found.end() + 20].replace(found.group(), " ")):
                return None
            return Clue(who, weight, line, at)
    return None


def _xid(line: str, at: int, pcie: str) -> Clue | None:
    numbers = [int(n) for found in _XID.finditer(line) for n in re.findall(r"\d+", found.group(1) + found.group(2))]
    numbers += [int(n) for n in _CAUSED.findall(line)]
    if not numbers or _TALK.search(line):
        return None
    if HARDWARE_XIDS.intersection(numbers):
        return Clue(H, 0.9, line, at)
    application = {8, 13, 31, 32, 43, 45, 68, 69, 109}
    if application.intersection(numbers):
        return Clue(U, 0.6, line, at)
    return Clue(H, 0.6, f"{pcie} | {line}", at) if pcie else None


def _raised(line: str, at: int) -> Clue | None:
    """A Python exception's last line that is plainly the program's own mistake."""
    found = _RAISED.match(line.strip())
    if found is None:
        return None
    kind, said = found.group(1).rpartition(".")[2], found.group(2)
    if _OUTSIDE.search(said) or (kind == "FileNotFoundError" and "/dev/" in said):
        return None
    if kind in _PLAIN or (kind == "RuntimeError" and _SHAPES.search(said)):
        return Clue(U, 0.9, line.strip(), at, plain=True)
    return None


def _weigh(clues: Sequence[Clue], trace: str, symptoms: tuple[str, ...]) -> BlameVerdict:
    strongest = {
        who: max((c for c in clues if c.blame is who), key=lambda c: (c.weight, -c.at), default=None)
        for who in (H, N, U)
    }
    hard, infra, user = strongest[H], strongest[N], strongest[U]
    plain = next((c for c in clues if c.plain), None)
    if hard and plain:  # both, and a user's bug must never be called hardware
        return BlameVerdict(Blame.UNKNOWN, 0.4, _quotes(hard, plain), trace)
    if hard:
        return _verdict(hard, clues, trace)
    if infra and user and (user.weight <= infra.weight or (infra.at < user.at and not user.plain)):
        return _verdict(infra, clues, trace)
    chosen = user or infra
    if chosen is None:
        return BlameVerdict(Blame.UNKNOWN, 0.3, symptoms, trace)
    return _verdict(chosen, clues, trace)


def _verdict(chosen: Clue, clues: Sequence[Clue], trace: str) -> BlameVerdict:
    same = [c for c in clues if c.blame is chosen.blame]
    agreeing = len({c.line for c in same}) > 1 and chosen.weight < 0.95
    contested = any(c.blame is not chosen.blame and c.weight >= chosen.weight for c in clues)
    confidence = chosen.weight + (0.03 if agreeing else 0.0) - (0.15 if contested else 0.0)
    return BlameVerdict(chosen.blame, round(confidence, 2), _quotes(chosen, *same), trace)


def _quotes(*clues: Clue) -> tuple[str, ...]:
    kept: dict[str, None] = {}
    for clue in clues:
        kept.setdefault("".join(c if c.isprintable() else " " for c in clue.line[:300]).strip())
    return tuple(kept)[:MOST_QUOTES]


def signature(lines: Sequence[str]) -> str:
    """The first Python traceback as one comparable line: error, message without numbers, and where it came from."""
    begin = next(
        (n for n, line in enumerate(lines) if line.lstrip().startswith("Traceback (most recent call last)")), None
    )
    if begin is None:
        return ""
    frames: list[str] = []
    for line in lines[begin + 1 : begin + 200]:
        if frame := _FRAME.match(line):
            frames.append(f"{frame.group(1).rpartition('/')[2]}:{frame.group(2)}")
        elif raised := _RAISED.match(line.strip()):
            said = re.sub(r"0x[0-9a-fA-F]+|\d+", "#", raised.group(2))[:120]
            return f"{raised.group(1)}: {said} @ {' > '.join(frames[-5:])}"
    return f"? @ {' > '.join(frames[-5:])}"
