"""`sickbay node check|collect|reset|reboot|signal`: what our Jobs run on a node. People have `check` and `collect`.

`sickbay node acknowledge` is a person's word about a node, from anywhere: nothing is held against it any more.

Started in a container by platforms/kubernetes/node_jobs (and by whatever starts work on a node elsewhere). The root of
the machine is at agent.host_root; the answer goes into the termination message (--log), compact and bounded, so that it
needs neither rights nor network. The exit code is 0 whenever there is an answer: what it says is for the controller to
judge. A SIGTERM still leaves an answer, in which the rest is UNKNOWN.
"""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn, TextIO

import msgspec
import typer

from sickbay import atomic, evidence
from sickbay.agent import events
from sickbay.catalog import load as load_catalog
from sickbay.checks import BY_NAME
from sickbay.cli.check_run import MAP, identity
from sickbay.cli.collect import QUICK, known_gpus
from sickbay.cli.sitting import ConfigOption, StoreOption, WhyOption, sit_down
from sickbay.cli.sitting import say as shown
from sickbay.errors import SickbayError, UserError
from sickbay.hosts.linux import LinuxHost
from sickbay.identity import gpu_map
from sickbay.identity.versions import versions
from sickbay.model import Finding, Place, Status
from sickbay.platforms.kubernetes import parcel
from sickbay.platforms.kubernetes.answer import Answer, encode, pack
from sickbay.platforms.kubernetes.verify import LIGHT
from sickbay.ports import Host
from sickbay.settings import Settings
from sickbay.suite import reservation
from sickbay.suite.asking import ask_for
from sickbay.suite.exclusive import refusal
from sickbay.suite.mark import marked, set_mark
from sickbay.suite.result import CheckResult, Whose
from sickbay.suite.runner import Manner, run_suite
from sickbay.suite.table import Suite, check_named
from sickbay.treatments import signals
from sickbay.treatments.reboot import reboot as reboot_machine
from sickbay.treatments.reset import Order, Resetting

CONFIG = "/etc/sickbay/sickbay.toml"  # mounted from the ConfigMap, where there is one
TERMINATION_LOG = "/dev/termination-log"
EVIDENCE = "evidence"  # folder in the state folder
COLLECT_S = 240.0
SPARE_S = 300.0  # a reservation outlives the work by so much

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

KeyOption = Annotated[str, typer.Option("--answers", metavar="KEY", help="The action this answers.")]
LogOption = Annotated[str, typer.Option("--log", metavar="FILE", help="Where the answer goes.")]
LimitOption = Annotated[float, typer.Option("--limit", metavar="SECONDS", help="For all of it.")]
BootOption = Annotated[str, typer.Option("--boot", metavar="ID", help="Only in this boot; else nothing is done.")]


@dataclass(frozen=True, slots=True)
class Bench:
    """Where the work is done: the machine and its settings. Tests and the testbed put another one here."""

    host: Host
    settings: Settings
    log: Path | None = None  # in the place of --log
    out: TextIO | None = None  # in the place of the standard output, which is the pod's log
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep

    @property
    def state_dir(self) -> Path:
        return Path(self.settings.agent.state_dir)


BENCH: ContextVar[Bench | None] = ContextVar("bench", default=None)


def bench() -> Bench:
    given = BENCH.get()
    if given is not None:
        return given
    from sickbay.settings_load import load

    settings = load(CONFIG if Path(CONFIG).is_file() else None).settings
    agent = settings.agent
    host = LinuxHost(agent.node_name or socket.gethostname(), kmsg=agent.kmsg, root=agent.host_root)
    return Bench(host, settings)


# --- a person's word --------------------------------------------------------------------------------------------------


@app.command()
def acknowledge(
    node: Annotated[str, typer.Argument(metavar="NODE", help="A node that is latched or under suspicion.")],
    why: WhyOption = "",
    store: StoreOption = "",
    config: ConfigOption = "",
) -> None:
    """Say that a node is well: its verdicts and suspicions end, and condemned GPUs in it are pardoned."""
    from sickbay.cli import wishes

    with sit_down(store, config) as sitting:
        shown(*wishes.acknowledge(sitting, node, why))


# --- check ------------------------------------------------------------------------------------------------------------


@app.command()
def check(
    checks: Annotated[str, typer.Option("--checks", metavar="A,B", help="Names or numbers; light: the light suite.")],
    answers: KeyOption,
    reserve: Annotated[
        str, typer.Option("--reserve", metavar="CASE", help="The node is out of service for this.")
    ] = "",
    suite: Annotated[str, typer.Option("--suite", metavar="NAME", help="As which suite the checks look.")] = "verify",
    limit: LimitOption = 900.0,
    log: LogOption = TERMINATION_LOG,
) -> None:
    """Run checks and leave their findings as the answer."""
    at = bench()
    names = expanded(checks.split(","), at.settings.agent.light_checks)
    number, found, end = last_number(at.state_dir), list[Finding](), time.monotonic() + limit
    with ended_cleanly(), _reserved(at, reserve, limit):
        try:
            for name in names:
                found += examined(at, name, suite, end - time.monotonic(), exclusive=bool(reserve))
        finally:
            spoken = {one.check for one in found}
            rest = [_blind(at, name, "it was stopped before") for name in names if name not in spoken]
            told = _numbered([*found, *rest], number)
            _leave(at, log, pack(answers, at.host.boot_id(), at.wall(), number, told))


def expanded(words: Sequence[str], light: Sequence[str]) -> tuple[str, ...]:
    """Names in order, each once; numbers and the originals' names are understood, `light` is the light suite."""
    asked = [name for word in words for name in (light if word.strip() == LIGHT else (word.strip(),)) if name]
    return tuple(dict.fromkeys(_known(word) for word in asked))


def _known(word: str) -> str:
    try:
        return check_named(word)
    except UserError:
        return word  # its answer will be that there is no such check


def last_number(state_dir: Path) -> int:
    """The agent's counter of findings: ours go on from it, so that what we find counts as later than what it found."""

    class Counter(msgspec.Struct):
        numbers: int = 0

    try:
        return msgspec.json.decode(atomic.read(state_dir / "verdicts.json", 8 << 20) or b"{}", type=Counter).numbers
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return 0


def examined(at: Bench, name: str, suite: str, left_s: float, *, exclusive: bool) -> list[Finding]:
    """One check, within what is left of the time for all of them. A check that does not run is UNKNOWN and says why."""
    if name not in BY_NAME or left_s <= 0:
        return [_blind(at, name, "the time was over" if name in BY_NAME else f"there is no check named {name!r}")]
    agent, host = at.settings.agent, at.host
    catalog = load_catalog().with_overrides(at.settings.severity_overrides)
    who = identity(host, agent, catalog)
    ask = ask_for(agent, {}, suite=suite, at=at.wall(), profile=who.profile, exclusive=exclusive)
    ask = replace(ask, cursor=marked(at.state_dir))
    manner = Manner(
        limit_s=min(agent.check_timeout_s, max(1.0, left_s)),
        refusal=lambda: refusal(host, mode=agent.mode, state_dir=agent.state_dir, now=at.wall()), sleep=at.sleep,
    )  # fmt: skip
    one = Suite("verify", "asked for by the controller", (name,))
    gpus = gpu_map.load(at.state_dir / MAP).gpus
    whose = Whose(host.name, who.kind or "unknown", at.wall())
    results = run_suite(host, one, catalog, ask=ask, whose=whose, gpus=gpus, manner=manner)
    return [finding for result in results for finding in _findings(at, result)]


def _findings(at: Bench, result: CheckResult) -> list[Finding]:
    return list(result.findings) or [_blind(at, result.name, result.details)]


def _blind(at: Bench, check_name: str, why: str) -> Finding:
    return Finding(
        "", "agent", check_name, Place(at.host.name), Status.UNKNOWN, "tool.failed", f"{check_name}: {why}"[:300],
        boot_id=at.host.boot_id(), at=at.wall(),
    )  # fmt: skip


def _numbered(found: Sequence[Finding], number: int) -> list[Finding]:
    return [replace(one, id=f"{one.boot_id}/{number + i}") for i, one in enumerate(found, 1)]


@contextmanager
def _reserved(at: Bench, by: str, limit: float) -> Iterator[None]:
    """The controller's word that this node may be burnt in, for as long as we are at it."""
    if not by:
        yield
        return
    try:
        at.state_dir.mkdir(parents=True, exist_ok=True, mode=0o755)
        reservation.reserve(at.state_dir, by, at.wall() + min(limit + SPARE_S, reservation.LONGEST_S))
        yield
    finally:
        with suppress(OSError):
            reservation.release(at.state_dir)


# --- collect ----------------------------------------------------------------------------------------------------------


@app.command()
def collect(
    answers: KeyOption,
    limit: LimitOption = COLLECT_S,
    most: Annotated[int, typer.Option("--most", metavar="BYTES", help="Of the archive.")] = 0,
    log: LogOption = TERMINATION_LOG,
) -> None:
    """Gather the evidence about this node into one archive in the state folder, print it, and answer what it is."""
    from sickbay.checks import run as checks_run

    at = bench()
    said = Answer(answers, at.host.boot_id(), at.wall(), error="it was stopped before the archive was whole")
    with ended_cleanly():
        try:
            found = checks_run.run(at.host, QUICK, load_catalog(), at=at.wall())
            path = evidence.collect(
                at.host, at.state_dir / EVIDENCE, key=answers, findings=[one for one in found if one.code],
                gpus=known_gpus(at.host, at.settings.agent), at=at.wall(), versions=versions(at.host), limit_s=limit,
                most_packed=most,
            )  # fmt: skip
            said = _handed_over(at, answers, path, most)
        except SickbayError as error:
            said = Answer(answers, at.host.boot_id(), at.wall(), error=str(error))
        finally:
            _leave(at, log, said)


def _handed_over(at: Bench, key: str, path: Path, most: int) -> Answer:
    """Printed into the pod's log, where the controller fetches it; unasked (no `most`) it only stays here."""
    said = Answer(key, at.host.boot_id(), at.wall(), did=str(path))
    data = atomic.read(path, most) if most else None
    if data is None:
        return said
    parcel.printed(data, at.out or sys.stdout)
    return msgspec.structs.replace(said, sha256=hashlib.sha256(data).hexdigest(), size=len(data))


# --- treatments -------------------------------------------------------------------------------------------------------


@app.command()
def reset(
    answers: KeyOption,
    boot: BootOption,
    device: Annotated[str, typer.Option("--device", metavar="PCI", help="One GPU; else all of them.")] = "",
    expected: Annotated[int, typer.Option("--expected", metavar="N", help="GPUs there must be afterwards.")] = 0,
    log: LogOption = TERMINATION_LOG,
) -> None:
    """Reset a GPU: free it, reset, wait for the fabric, put everything back."""
    at = bench()
    one = Resetting(
        at.host, at.state_dir, Order(answers, boot, device, expected), wall=at.wall, sleep=at.sleep, say=say
    )
    said = Answer(answers, at.host.boot_id(), at.wall(), error="not reset: it was stopped in the middle")
    with ended_cleanly():
        try:
            ended = one.run()
            said = _answer(at, answers, ended.done, ended.said)
            if ended.done:
                _dealt_with(at, one.devices, answers)
        finally:
            _leave(at, log, said)


def _dealt_with(at: Bench, devices: tuple[str, ...], key: str) -> None:
    """What a reset clears is cleared: for the agent (its verdicts) and for later checks (the kernel log's mark)."""
    try:
        set_mark(at.host, at.state_dir, at.wall())
        events.drop(at.state_dir, events.Event("reset", devices, by=key, why="reset by Sickbay", at=at.wall()))
    except (SickbayError, OSError) as error:
        say(f"the agent was not told of the reset: {error}")


@app.command()
def reboot(answers: KeyOption, boot: BootOption, log: LogOption = TERMINATION_LOG) -> None:
    """Reboot this machine if it is still in the boot named by --boot."""
    at = bench()
    with ended_cleanly():
        ended = reboot_machine(at.host, boot)
        _leave(at, log, _answer(at, answers, ended.done, ended.said))


@app.command("signal")
def signal_pods(
    answers: KeyOption,
    pod: Annotated[list[str], typer.Option("--pod", metavar="UID", help="Of this pod; may be given again.")],
    name: Annotated[str, typer.Option("--signal", metavar="NAME", help="USR1 or USR2.")] = "USR1",
    log: LogOption = TERMINATION_LOG,
) -> None:
    """Ask the processes of these pods that wait for a signal to save; no others get it."""
    at = bench()
    with ended_cleanly():
        ended = signals.send(at.host, pod, name)
        _leave(at, log, _answer(at, answers, ended.done, ended.said))


def _answer(at: Bench, key: str, done: bool, said: str) -> Answer:
    now = at.host.boot_id(), at.wall()
    return Answer(key, *now, did=said) if done else Answer(key, *now, error=said)


# --- the answer -------------------------------------------------------------------------------------------------------


def _leave(at: Bench, log: str, answer: Answer) -> None:
    """Written in place: the kubelet has made the file and mounted it, and it cannot be replaced."""
    path = at.log or Path(log)
    data = encode(answer)
    try:
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            with suppress(OSError):
                os.fsync(file.fileno())
    except OSError as error:
        raise UserError(f"the answer could not be written to {path}: {error.strerror}; it was: {data!r}") from error


def say(what: str) -> None:
    print(f"sickbay node: {what}", file=sys.stderr, flush=True)


@contextmanager
def ended_cleanly() -> Iterator[None]:
    """Told to end, we end what we started and still answer. In a thread (the testbed) nobody sends signals."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
