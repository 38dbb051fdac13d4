"""One run of `sickbay check`, put together: the host, who it is, what is asked, where results go, who watches.

Called by `cli/check` with a wish that was found possible. It composes; it must never judge.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sickbay import atomic
from sickbay.catalog import Catalog, Profile, load
from sickbay.catalog.profile_file import read_profiles
from sickbay.checks import BY_NAME
from sickbay.cli import check_report as report
from sickbay.cli.check_progress import Ticker
from sickbay.errors import UserError
from sickbay.hosts.linux import LinuxHost
from sickbay.identity import gpu_map
from sickbay.identity.machine import instance_type, profile_of
from sickbay.ports import Host
from sickbay.settings import AgentSettings, Settings
from sickbay.suite import folder as results
from sickbay.suite.asking import ask_for, peers_in
from sickbay.suite.exclusive import refusal
from sickbay.suite.mark import marked, set_mark
from sickbay.suite.result import CheckResult, Whose, exit_code, summary
from sickbay.suite.runner import Manner, run_suite
from sickbay.suite.table import Suite

MAP = "gpu-map.json"  # in the state folder: the agent's map of its last healthy cycle


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for."""

    suite: Suite
    settings: Settings
    limit_s: float
    exclusive: bool = False
    folder: str = ""
    fleet: str = ""

    @property
    def lenient(self) -> bool:
        """A prolog: the scheduler has given us the node, and drains it for any code but 0."""
        return self.suite.name == "prolog"


def run(wish: Wish, environ: Mapping[str, str], *, as_json: bool, verbose: bool, host: LinuxHost | None = None) -> int:
    """Look, write the files, say what was found; returns the exit code."""
    agent, at = wish.settings.agent, time.time()
    host = host or _host(agent)
    _refuse(wish, host)
    folder = _folder(wish, environ, at)
    catalog = load().with_overrides(wish.settings.severity_overrides)
    who = identity(host, agent, catalog)
    whose = Whose(host.name, who.kind or "unknown", at)
    found = _looked(wish, environ, host, catalog, who, whose, folder)
    summed = summary(whose, wish.suite.name, len(wish.suite.checks), found, str(folder))
    results.write(folder, "summary.json", summed)
    told = report.Told(
        wish.suite, found, summed, catalog, who.kind, who.why, who.profile is not None, host.left_behind()
    )
    report.print_json(told) if as_json else report.print_words(told, verbose=verbose)
    if wish.lenient:
        report.log_prolog(told)
    return exit_code(found, lenient=wish.lenient)


def _host(agent: AgentSettings) -> LinuxHost:
    return LinuxHost(agent.node_name or socket.gethostname(), kmsg=agent.kmsg, root=agent.host_root)


def mark(wish: Wish) -> None:
    """--mark-treated"""
    agent = wish.settings.agent
    lines = set_mark(_host(agent), Path(agent.state_dir), time.time())
    print(f"The {lines} kernel lines of this boot so far count as treated: `sickbay check` reads on from here.")


def _refuse(wish: Wish, host: Host) -> None:
    """Asked for deep checks and nothing else will do: then better nothing than half of it (originals 002.12 #15)."""
    deep = [name for name in wish.suite.checks if BY_NAME[name].deep]
    if wish.suite.must and deep and (why := _refusal(wish, host)):
        raise UserError(
            f"{', '.join(deep)} would disturb whoever uses this node, and {why}. Nothing was run. "
            "If the node is yours, say --exclusive."
        )


def _refusal(wish: Wish, host: Host) -> str:
    agent = wish.settings.agent
    if wish.exclusive:
        return ""
    return refusal(host, mode=agent.mode, state_dir=agent.state_dir, now=time.time(), given=wish.lenient)


def _folder(wish: Wish, environ: Mapping[str, str], at: float) -> Path:
    if wish.folder:
        return results.made(Path(wish.folder).expanduser(), ours=False)
    return results.made(results.default_folder(environ, at), ours=True)


def _looked(
    wish: Wish, environ: Mapping[str, str], host: Host, catalog: Catalog, who: Identity, whose: Whose, folder: Path
) -> list[CheckResult]:
    agent = wish.settings.agent
    ticker = Ticker(sys.stderr)

    def progress(name: str, ended: CheckResult | None) -> None:
        ticker.turn(name if ended is None else "")
        if ended is not None:  # at once: what was found survives whatever happens to the rest of the run
            results.write(folder, f"check-{ended.check}.json", ended.document())

    ask = ask_for(
        agent, environ, suite=wish.suite.name, at=whose.at, profile=who.profile, exclusive=wish.exclusive,
        peers=peers_in(Path(wish.fleet), host.name) if wish.fleet else None,
    )  # fmt: skip
    ask = replace(ask, cursor=marked(Path(agent.state_dir)))
    manner = Manner(
        limit_s=wish.limit_s, refusal=lambda: _refusal(wish, host), progress=progress,
        keep=lambda _, kept: results.keep(folder, kept),
    )  # fmt: skip
    gpus = gpu_map.load(Path(agent.state_dir) / MAP).gpus
    with ticker:
        return run_suite(host, wish.suite, catalog, ask=ask, whose=whose, gpus=gpus, manner=manner)


@dataclass(frozen=True, slots=True)
class Identity:
    """What type of machine this is; `why`: who says so, or why nobody does."""

    kind: str
    why: str
    profile: Profile | None


def identity(host: Host, agent: AgentSettings, catalog: Catalog) -> Identity:
    own: tuple[Profile, ...] = ()
    if agent.profiles_file:
        try:
            with atomic.named(Path(agent.profiles_file)) as file:
                own = read_profiles(file.read().decode("utf-8"), agent.profiles_file)
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"agent.profiles_file {agent.profiles_file} cannot be read: {error}") from None
    kind, why = instance_type(host, agent.instance_type, profiles=own)
    return Identity(kind, why, profile_of(kind, catalog, own) if kind else None)
