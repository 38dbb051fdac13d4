"""The command `sickbay`: one literal table of sub-commands, each living in its own file, imported only when asked for.

`main` is called by the `sickbay` script and by `python -m sickbay`. It turns whatever goes wrong into an exit code and
a sentence (README, "Exit codes"); it must never print a traceback for a mistake of the person who typed the command,
and must never import a sub-command that was not asked for, so that one broken file cannot take `sickbay pause` away.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from sickbay import __version__
from sickbay.errors import SickbayError

if TYPE_CHECKING:
    import typer

UNABLE = 2  # could not do what was asked: bad usage, unreadable input, unknown id
INTERRUPTED = 130  # 128 + SIGINT, as shells count
READER_GONE = 141  # 128 + SIGPIPE: `sickbay cases | head`; not 1, which says "something found"


class Row(NamedTuple):
    """Where a sub-command lives ("module:attribute": a function, or a typer app) and its line in the help."""

    target: str
    help: str
    unable: int = UNABLE  # exit code for "could not do what was asked", where 2 means something else


COMMANDS: dict[str, Row] = {
    "demo": Row("sickbay.cli.demo:command", "A simulated fleet that breaks and heals before your eyes."),
    "diagnose": Row("sickbay.cli.diagnose:command", "Say what is wrong, from logs and tool output you have."),
    "explain": Row("sickbay.cli.explain:command", "What a code such as xid.79 means, what we do, and who says so."),
    "check": Row("sickbay.cli.check:command", "Run the health checks on this machine.", unable=126),
    "nodes": Row("sickbay.cli.nodes:command", "The nodes we know, and what is the matter with each."),
    "cases": Row("sickbay.cli.cases:command", "Open cases; with --all the ended ones too."),
    "case": Row("sickbay.cli.cases:app", "One case: show, approve, hold, unhold, abort, retry, examine, split."),
    "job": Row("sickbay.cli.job:app", "One job: restart it elsewhere though some of its nodes cannot be reached."),
    "why": Row("sickbay.cli.why:command", "The story of a job or a node, in sentences."),
    "pause": Row("sickbay.cli.pause:pause", "Hands off the fleet, a pool or a node; works with the controller down."),
    "resume": Row("sickbay.cli.pause:resume", "End a pause."),
    "evidence": Row("sickbay.cli.evidence:command", "One archive about a case, ready for a vendor ticket."),
    "collect": Row("sickbay.cli.collect:command", "On a node: gather the evidence about it into one archive."),
    "node": Row(
        "sickbay.cli.node:app", "`acknowledge` a node; and what our Jobs run on one: check, collect, reset, reboot."
    ),
    "inject": Row("sickbay.cli.inject:command", "Rehearse a fault; refused unless agent.allow_inject is on."),
    "sweep": Row("sickbay.cli.sweep:command", "Kubernetes: level-2 diagnostics on idle nodes, oldest-swept first."),
    "quarantine": Row("sickbay.cli.quarantine:command", "Kubernetes: burn in one node that is out of service."),
    "config": Row("sickbay.cli.config:app", "Check the settings, or show each with where it came from."),
    "controller": Row("sickbay.cli.controller:command", "Run the controller."),
    "token": Row("sickbay.cli.token:command", "The token with which one node's agent may report to this controller."),
    "agent": Row("sickbay.cli.agent:main", "Run the agent of this node; `agent clear` ends latched verdicts."),
    "npd-check": Row("sickbay.cli.npd_check:main", "Answer node-problem-detector from the agent's last verdict."),
    "sim": Row("sickbay.cli.sim:app", "Simulated fleets: run, compare, check, mutants."),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit the process with its code."""
    sys.exit(_flush(_run(list(sys.argv[1:] if argv is None else argv))))


def _run(args: list[str]) -> int:
    try:
        if args == ["--version"]:  # answered before typer is imported
            print(f"sickbay {__version__}")
        elif args[:1] == ["npd-check"]:  # each minute on each node, within 100 ms: nothing of ours but this one file
            return int(load(COMMANDS["npd-check"].target)(args[1:]))
        elif args[:1] == ["agent"]:  # for months on each node: typer would be a quarter of its memory
            return int(load(COMMANDS["agent"].target)(args[1:]))
        else:
            build(args[0] if args else "")(args=args, prog_name="sickbay")
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):
            return READER_GONE
        return _unable(args) if _misused(stop) else _code(stop.code)
    except SickbayError as error:
        print(f"sickbay: {error}", file=sys.stderr)
        return _unable(args)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return READER_GONE
    return 0


def _unable(args: list[str]) -> int:
    row = COMMANDS.get(args[0]) if args else None
    return row.unable if row else UNABLE


def _misused(stop: SystemExit) -> bool:
    """Did it end because an option is wrong? By the error's name: some releases of typer bring their own click."""
    return "UsageError" in (kind.__name__ for kind in type(stop.__context__).__mro__)


def _code(code: object) -> int:
    return code if isinstance(code, int) else int(code is not None)


def build(wanted: str) -> typer.Typer:
    """The whole command with only `wanted` imported; the others are names, for the help and for "did you mean"."""
    import typer

    app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.callback()(_root)
    for name, row in COMMANDS.items():
        _add(app, name, row.help, load(row.target) if name == wanted else _not_imported)
    return app


def _root() -> None:
    """Keeps GPU clusters training. A fresh install only observes. `sickbay --version` says which one this is."""


def _not_imported() -> None:
    raise AssertionError("a command that was not asked for cannot run")


def _add(app: typer.Typer, name: str, help_line: str, target: Any) -> None:
    import typer

    if isinstance(target, typer.Typer):
        app.add_typer(target, name=name, help=help_line)
    else:
        app.command(name, short_help=help_line)(target)


def load(target: str) -> Any:
    """The object behind "module:attribute". A missing one is our mistake, not the user's: it raises."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def _flush(code: int) -> int:
    """Meet a closed pipe here, where it can be answered, and not in the interpreter's shutdown."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None  # nobody reads: the interpreter must not flush it again
        return READER_GONE
    return code
