"""`sickbay agent`: the shell on a node, in the foreground, until SIGTERM; `sickbay agent clear`: an operator's word.

`sickbay.cli` calls `main` before typer is imported, because an agent lives on every node for months and typer would be
a quarter of its memory. Everything else is agent/process's. It must never import more than the agent itself needs.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from sickbay.cli.person import person
from sickbay.errors import SickbayError, UserError
from sickbay.ports import Host
from sickbay.settings import AgentSettings

UNABLE = 2


def main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(list(argv))
    try:
        return _clear(args) if args.action == "clear" else _run(args)
    except SickbayError as error:
        print(f"sickbay: {error}", file=sys.stderr)
        return UNABLE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sickbay agent",
        description="Follow the kernel log, run the light checks, latch verdicts and report them. SIGTERM ends it "
        "cleanly and clears nothing. `sickbay agent clear` ends latched verdicts by an operator's word.",
    )
    parser.add_argument("action", nargs="?", choices=("run", "clear"), default="run", metavar="run|clear")
    parser.add_argument(
        "--config", default="", metavar="PATH", help="settings: a file, or a folder of key files (a mounted ConfigMap)"
    )
    parser.add_argument("--device", default="", metavar="PCI", help="clear: only verdicts on this GPU, as 0000:3b:00")
    parser.add_argument("--why", default="", metavar="TEXT", help="clear: your reason; it is logged with your name")
    parser.add_argument("--sim", action="store_true", help="look at a simulated healthy node instead of this machine")
    return parser


def _run(args: argparse.Namespace) -> int:
    from sickbay.agent import process
    from sickbay.agent.reload import Config
    from sickbay.log import set_up_log

    config = Config(args.config)
    settings = config.settings
    set_up_log(settings.log_level)
    for remark in config.remarks:
        logging.getLogger("sickbay").warning("settings: %s", remark)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    root = settings.agent.host_root
    options = process.Options(argv_prefix=("chroot", root) if root != "/" else ())
    return process.run(config, _simulated() if args.sim else _real(settings.agent), stop, options)


def _real(settings: AgentSettings) -> Host:
    from sickbay.hosts.linux import LinuxHost

    name = settings.node_name or os.uname().nodename
    return LinuxHost(name, kmsg=settings.kmsg, root=settings.host_root)


def _simulated() -> Host:
    from sickbay.sim.host import SimHost
    from sickbay.sim.world import World

    world = World(1, 1)
    return SimHost(world, next(iter(world.nodes.values())))


def _clear(args: argparse.Namespace) -> int:
    from sickbay.agent.events import Event, drop
    from sickbay.agent.reload import Config

    if not args.why.strip():
        raise UserError('`sickbay agent clear` needs a reason: --why "reseated GPU 3"')
    folder = Path(Config(args.config).settings.agent.state_dir).expanduser()
    if not folder.is_dir():
        raise UserError(f"There is no agent's state in {folder}; say --config PATH if yours is elsewhere.")
    try:
        drop(folder, Event("clear", (args.device,) if args.device else (), person(os.environ), args.why.strip()[:400]))
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}; try with the agent's rights") from None
    print("Asked. A running agent clears within a second; one that is down, when it next starts.")
    print("What is still wrong will be found again by the next check.")
    return 0
