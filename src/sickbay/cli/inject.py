"""`sickbay inject`: rehearse a fault. A kernel line, a field in DCGM's cache, or an illness of a simulated host.

A rehearsal on a real node looks like a fault to everybody who watches it, so it is refused unless the node's settings
allow it (`agent.allow_inject`); what comes of a kernel line says REHEARSAL. No hardware is touched. Everything it does
is said on stderr, with who did it. Exit codes: 0 done, 2 refused or not possible.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from typing import Annotated

import typer

from sickbay.checks import rehearsal
from sickbay.cli.person import person
from sickbay.cli.words import moment, plain
from sickbay.errors import InputError, UserError
from sickbay.hosts.linux import LinuxHost
from sickbay.ports import Host
from sickbay.settings import AgentSettings
from sickbay.settings_load import load

PRIORITY = 3  # KERN_ERR, as the driver prints an XID
DCGM_S = 30.0
FIELDS = {
    202: "PCIe replays",
    230: "the last XID",
    310: "uncorrected memory errors",
    319: "double-bit errors",
    394: "row remap failure",
}


def command(
    xid: Annotated[int, typer.Option("--xid", metavar="N", help="Kernel line: this XID ...")] = 0,
    device: Annotated[str, typer.Option("--device", metavar="PCI", help="... of the GPU at this address.")] = "",
    text: Annotated[str, typer.Option("--text", help="... with these words after the number.")] = "",
    line: Annotated[str, typer.Option("--line", help="Any other kernel line.")] = "",
    dcgm_field: Annotated[
        int, typer.Option("--dcgm-field", metavar="N", help="DCGM: this field, e.g. 230 (XID) ...")
    ] = 0,
    value: Annotated[str, typer.Option("--value", help="... shows this value ...")] = "",
    gpu: Annotated[int, typer.Option("--gpu", metavar="INDEX", help="... on this GPU (also with --sim).")] = 0,
    sim: Annotated[
        str, typer.Option("--sim", metavar="KIND", help="An illness of a simulated host; ? lists them.")
    ] = "",
    config: Annotated[str, typer.Option("--config", metavar="FILE", help="Settings file.")] = "",
) -> None:
    """Rehearse a fault on this node (or, with --sim, on a simulated one). Refused unless agent.allow_inject is on."""
    asked = [bool(xid), bool(line), bool(dcgm_field), bool(sim)]
    if sum(asked) != 1:
        raise InputError("say what to rehearse, one of: --xid N --device PCI, --line TEXT, --dcgm-field N, --sim KIND")
    if sim:
        from sickbay.cli.inject_sim import show

        show(sim, gpu)
        return
    agent = allowed(config)
    if dcgm_field:
        into_dcgm(LinuxHost(agent.node_name or socket.gethostname(), root=agent.host_root), dcgm_field, value, gpu)
    else:
        into_kernel_log(agent, rehearsal.xid_line(xid, device, text) if xid else rehearsal.marked(line))


def allowed(config: str) -> AgentSettings:
    agent = load(config or None).settings.agent
    if not agent.allow_inject:
        raise UserError(
            "refused: rehearsals are off on this node. Set `allow_inject = true` under [agent] in its settings (and "
            "in those of its agent, or it ignores the line); a rehearsal nobody announced looks like a real fault."
        )
    return agent


def into_kernel_log(agent: AgentSettings, line: str) -> None:
    """One record. Linux marks it as a program's; the agent knows it by its marker."""
    told(f"writes to {agent.kmsg}: {line}")
    try:
        out = os.open(agent.kmsg, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(out, f"<{PRIORITY}>{line}\n".encode())
        finally:
            os.close(out)
    except OSError as error:
        raise UserError(
            f"cannot write to {agent.kmsg}: {error.strerror or error}; run it as root on the node"
        ) from error
    told("done; the agent of this node reports it as a rehearsal")


def into_dcgm(host: Host, field: int, value: str, gpu: int) -> None:
    """A value in the engine's cache (`dcgmi test --inject`); the next real reading replaces it."""
    if not 0 < field < 2_000 or not 0 <= gpu < 64 or not _number(value):
        raise InputError(
            "--dcgm-field is 1 to 1999, --gpu 0 to 63, --value a number; for an XID: --dcgm-field 230 --value 79"
        )
    argv = ("dcgmi", "test", "--inject", "--gpuid", str(gpu), "-f", str(field), "-v", value)
    told(f"runs: {' '.join(argv)} ({FIELDS.get(field, 'a field of DCGM')})")
    done = host.run(argv, DCGM_S)
    if done.code != 0:
        why = (
            "dcgmi is not installed"
            if done.missing
            else "no answer in time"
            if done.timed_out
            else f"exit code {done.code}"
        )
        raise UserError(f"DCGM did not take it ({why}): {plain((done.stdout + done.stderr).strip()[:300])}")
    told(f"done: {plain(done.stdout.strip()[:200])} Undo: inject value 0, or restart the host engine.")


def _number(value: str) -> bool:
    return value.removeprefix("-").replace(".", "", 1).isdecimal() and value.isascii() and len(value) <= 20


def told(what: str) -> None:
    print(
        f"sickbay inject: {moment(time.time())} {plain(person(os.environ))} {plain(what)}", file=sys.stderr, flush=True
    )
