"""`sickbay collect [--output DIR]`: on a node, gather the evidence about it into one archive, before it is rebooted.

Asks everything through the same Host as the checks; takes up to five minutes and says on stderr what it is at.
Exit codes: 0 written, 2 could not be written or the settings are wrong.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import sys
import time
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from sickbay import catalog, evidence
from sickbay.checks import run as checks_run
from sickbay.checks.nvidia_smi import inventory
from sickbay.cli.words import plain
from sickbay.hosts.linux import LinuxHost
from sickbay.identity import gpu_map
from sickbay.identity.versions import versions
from sickbay.model import Gpu
from sickbay.ports import Host
from sickbay.settings import AgentSettings
from sickbay.settings_load import load

QUICK = ("nvidia-smi", "kernel-log")  # what is wrong, from instruments that do not disturb
MOST_KEPT, LARGEST_KEPT = 32, 1 << 20
MAP = "gpu-map.json"  # in the state folder


def command(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for the archive.")] = Path(),
    results: Annotated[
        Path | None, typer.Option("--results-dir", metavar="DIR", help="Results of `sickbay check` to add.")
    ] = None,
    config: Annotated[str, typer.Option("--config", metavar="FILE", help="Settings file.")] = "",
) -> None:
    """Gather the evidence about this node into one archive: kernel log, tools' outputs, versions, serials."""
    agent = load(config or None).settings.agent
    host = LinuxHost(agent.node_name or socket.gethostname(), kmsg=agent.kmsg, root=agent.host_root)
    path = gathered(host, agent, output.expanduser(), results)
    print(path)


def gathered(host: Host, agent: AgentSettings, output: Path, results: Path | None) -> Path:
    at = time.time()
    say("looking at the GPUs")
    found = checks_run.run(host, QUICK, catalog.load(), at=at)
    stamp = datetime.fromtimestamp(at, UTC).strftime("%Y%m%dT%H%M%SZ")
    return evidence.collect(
        host,
        output,
        key=f"{host.name}-{stamp}",
        findings=[finding for finding in found if finding.code],
        gpus=known_gpus(host, agent),
        at=at,
        kept=kept(results) if results else {},
        versions=versions(host),
        say=say,
    )


def known_gpus(host: Host, agent: AgentSettings) -> tuple[Gpu, ...]:
    """The agent's map of its last healthy cycle, which names a GPU that no longer answers; else those that do."""
    known = gpu_map.load(Path(agent.state_dir) / MAP).gpus
    return known or tuple(inventory(host.run(("nvidia-smi", "-q"), 60.0).stdout))


def kept(folder: Path) -> dict[str, str]:
    """The results of an earlier run: small files by name. What is no plain file, or cannot be read, is left out: links
    lead elsewhere, and a pipe would wait for ever."""
    texts: dict[str, str] = {}
    for path in islice(sorted(folder.glob("*")), MOST_KEPT) if folder.is_dir() else ():
        try:
            texts[path.name] = _text(path)
        except OSError as error:
            say(f"{path.name} left out: {error.strerror or error}")
    return texts


def _text(path: Path) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, encoding="utf-8", errors="replace") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is no plain file")
        return file.read(LARGEST_KEPT)


def say(what: str) -> None:
    print(f"sickbay collect: {plain(what)}", file=sys.stderr, flush=True)
