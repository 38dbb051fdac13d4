"""Lines of which we know what they are, because we made them: what is final (only a new part helps) and what is not.

The truth stands here by hand and not from the catalog, so that a wrong row of the catalog is caught too. Random numbers
come from a seed: drawing every byte through Hypothesis would cost a hundred times as much.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.checks.floods import BODIES as FLOODS
from tests.checks.floods import FOREIGN, OTHERS, PREFIXES, Prefix

Say = Callable[[random.Random], str]


def _gpu(r: random.Random) -> str:
    return f"PCI:000{r.randrange(2)}:{r.randrange(16):x}{r.randrange(16):x}:00"


def _process(r: random.Random) -> str:
    return r.choice(("", "pid=77, ", "pid=912345, name=python3, ", "pid='<unknown>', name=<unknown>, "))


def _xid(code: int, text: str) -> Say:
    return lambda r: f"NVRM: Xid ({_gpu(r)}): {code}, {_process(r)}{text.replace('#', f'0x{r.getrandbits(40):016x}')}"


FINAL: tuple[Say, ...] = (
    _xid(64, "Row Remapper Error: (#) - All reserved rows for bank are remapped"),
    _xid(64, "Row Remapper Error: (#) - Row Remapping table is full"),
    _xid(64, "Dynamic Page Retirement: Fatal error, unable to retire page (#)"),
    _xid(54, "Auxiliary power is not connected"),
)
NOT_FINAL: tuple[Say, ...] = (
    _xid(64, "Row Remapper: (#) - Attempting to remap a row that is already pending remapping"),
    _xid(64, "Row Remapper Error: (#) - Internal error"),
    _xid(63, "Row Remapper: New row (#) marked for remapping, reset gpu to activate."),
    _xid(48, "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 6."),
    _xid(79, "GPU has fallen off the bus."),
    _xid(94, "Contained: SM (0x1). RST: No, D-RST: No"),
    _xid(95, "Uncontained: FBHUB. RST: Yes, D-RST: No"),
    _xid(
        31, "Ch 00000008, MMU Fault: ENGINE GRAPHICS GPC6 GPCCLIENT_T1_13 faulted @ #. All reserved rows of the table"
    ),
    _xid(13, "Graphics SM Warp Exception on (GPC 9, TPC 1, SM 1): Out Of Range Address"),
    _xid(120, "GSP task exception: load access page fault (cause:0xd) @ pc:#"),
    _xid(154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
    _xid(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 # 0x0)"),
    lambda r: "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
    lambda r: "NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.",
    lambda r: "NVRM: GPU 0000:39:00.0: RmInitAdapter failed! (0x62:0x40:2393)",
    lambda r: "pcieport 0000:00:07.1: AER: Multiple Uncorrected (Fatal) error message received from 0000:08:00.0",
    lambda r: "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0",
    lambda r: "mce: [Hardware Error]: Machine check: Processor context corrupt",
    lambda r: "Kernel panic - not syncing: Fatal exception",
    lambda r: "usb 1-1.3: new high-speed USB device number 4 using xhci_hcd",
    *(
        (lambda r, say=say: say(r.randrange(1000)))
        for name, say in (FLOODS | OTHERS).items()
        if not name.startswith("xid 64")
    ),
)


@dataclass(frozen=True, slots=True)
class Log:
    lines: tuple[str, ...]
    final: bool  # the kernel itself said something final


def log(seed: int) -> Log:
    """A log in one logger's prefix; some lines written by programs, some cut or damaged. Damage never adds digits and
    is never done to a final line, so that it cannot make one."""
    r = random.Random(seed)
    kernel, other = PREFIXES[r.choice(sorted(PREFIXES))], FOREIGN[r.choice(sorted(FOREIGN))]
    lines, final, second = [], False, r.choice((0, 96, 9_990))
    for n in range(r.choice((1, 3, 10, 60))):
        second += r.choice((0, 0, 1, 7))
        lines.append(_line(r, kernel, other, second, n))
        final = final or lines[-1][1]
    return Log(tuple(line for line, _ in lines), final)


def _line(r: random.Random, kernel: Prefix, other: Prefix, second: int, n: int) -> tuple[str, bool]:
    last = r.random() < 0.02
    body = r.choice(FINAL if last else NOT_FINAL)(r)
    ours = r.random() < 0.7
    line = (kernel if ours else other)(second, r.randrange(1_000_000), n) + body
    if not last and r.random() < 0.2:
        line = _damaged(r, line)
    return line, last and ours


def _damaged(r: random.Random, line: str) -> str:
    at = r.randrange(len(line))
    return r.choice(
        (line[:at], line[at:], line[:at] + r.choice("\x00…é{}()[]:;,=\t\x1b") + line[at + 1 :], line + " " + line)
    )
