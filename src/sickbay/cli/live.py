"""The live view of `sickbay demo`: fleet, jobs, open cases, the newest journal lines, in any terminal from 80 x 24.

Draws a sim.tour.show.Show and paces it; decides nothing. On Ctrl-C the terminal is given back, a short summary is
printed and the exit code is 0. Where there is no terminal it prints the journal line by line instead.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.text import Text

from sickbay.catalog import load
from sickbay.cli.words import plain, span
from sickbay.core.explain import PHASE_WORDS, headline
from sickbay.model import RECOVERY_WORDS, Case, JobPhase, Phase, Recovery, RecoveryPhase
from sickbay.sim.hardware import SimNode
from sickbay.sim.jobs import SimJob
from sickbay.sim.tour.engine import need_numpy
from sickbay.sim.tour.show import Line, Show
from sickbay.sim.tour.stage import clock
from sickbay.sim.trainer import Nursery

FRAME_S = 0.25
COLUMNS = 16  # nodes in a row of the grid

# letter, style, words: what a node's cell shows. Letters say it too, for those who see no colours.
WORKING = ("w", "green", "working")
IDLE = (".", "bright_black", "idle")
GATE = ("g", "cyan", "new machine")
AWAY = ("x", "bold red", "no answer")
CLOSED = ("c", "yellow", "closed by others")
STATES: dict[Phase, tuple[str, str, str]] = {
    Phase.SUSPECTED: ("s", "yellow", "suspected"),
    Phase.WAITING: ("s", "yellow", "suspected"),
    Phase.CORDONING: ("h", "yellow", "no new work"),
    Phase.HOLDING: ("h", "yellow", "no new work"),
    Phase.DRAINING: ("d", "bold yellow", "being emptied"),
    Phase.COLLECTING: ("e", "magenta", "evidence"),
    Phase.QUEUED: ("q", "magenta", "queued"),
    Phase.REPAIRING: ("T", "bold magenta", "treated"),
    Phase.VERIFYING: ("v", "bold blue", "verified"),
    Phase.RETURNING: ("v", "bold blue", "verified"),
    Phase.CANCELLING: ("h", "yellow", "no new work"),
    Phase.ESCALATED: ("!", "bold white on red", "person asked"),
}
LEGEND = (WORKING, IDLE, *dict.fromkeys(STATES.values()), GATE, AWAY)


def watch(seed: int, workdir: Path, *, speed: float, seconds: float | None) -> None:
    """Until Ctrl-C, or for so many real seconds."""
    need_numpy()
    with Nursery() as nursery, closing(Show(seed, workdir, nursery, time.time())) as show:
        began = time.monotonic()
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the terminal is given back
        try:
            (_draw if sys.stdout.isatty() else _print)(show, speed, seconds)
        except KeyboardInterrupt:
            pass  # the way to stop it
        finally:
            signal.signal(signal.SIGTERM, before)
        sys.stdout.write("\n".join(summary(show, time.monotonic() - began)) + "\n")


def frames(show: Show, speed: float, seconds: float | None) -> Iterator[None]:
    """Let time pass, a frame at a time. A slow machine shows a slower fleet, never a jump."""
    end = None if seconds is None else time.monotonic() + seconds
    while end is None or time.monotonic() < end:
        due = time.monotonic() + FRAME_S
        show.advance(speed * FRAME_S)
        yield
        time.sleep(max(0.0, due - time.monotonic()))


def _draw(show: Show, speed: float, seconds: float | None) -> None:
    console = Console(highlight=False)
    with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        live.update(View(show, speed), refresh=True)
        for _ in frames(show, speed, seconds):
            live.update(View(show, speed), refresh=True)


def _print(show: Show, speed: float, seconds: float | None) -> None:
    told = 0
    sys.stdout.write(f"No terminal here, so the journal line by line; {where(show)}\n")
    for _ in frames(show, speed, seconds):
        fresh, told = show.store.told - told, show.store.told
        for line in list(show.store.lines)[-fresh:] if fresh else ():
            sys.stdout.write(plain(line.plain()) + "\n")
        sys.stdout.flush()


def where(show: Show) -> str:
    return f"look closer: sickbay cases --store {show.store.path}"


def summary(show: Show, seconds: float) -> list[str]:
    ettr, live = show.ettr(), show.cases()
    restarts = sum(len(job.attempts) - 1 for job in show.world.jobs.values())
    virtual = show.world.now - show.world.clock.start
    return [
        f"{span(virtual)} of a fleet's life in {span(seconds)}.",
        f"{show.store.ended} cases ended, {len(live)} open; {restarts} restarts of jobs;"
        + (f" ETTR {ettr:.3f}." if ettr is not None else " no ETTR yet."),
        "One by one, each with its expected ending: sickbay demo --headless",
    ]


class View:
    """One frame, cut to the size of the terminal."""

    def __init__(self, show: Show, speed: float) -> None:
        self.show, self.speed = show, speed

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = console.size
        lines = self.lines(width, height)
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        yield Group(*lines[:height])

    def lines(self, width: int, height: int) -> list[Text]:
        jobs, cases = self.show.jobs(), self.show.cases()
        top = [self._title(), *self._fleet(cases), Text("Jobs", style="bold"), *self._jobs(jobs)]
        left = max(4, height - len(top) - 3)
        room = min(max(len(cases), 1), max(2, left // 2))
        middle = [self._cases_title(cases), *self._cases(cases, room)]
        journal = self._journal(max(1, height - len(top) - len(middle) - 2))
        foot = Text(f"Ctrl-C ends it; {where(self.show)}", style="bright_black")
        return [*top, *middle, Text("Journal", style="bold"), *journal, foot]

    def _title(self) -> Text:
        world, ettr = self.show.world, self.show.ettr()
        serving = sum(node.serving() for node in world.nodes.values())
        text = Text("Sickbay", style="bold green")
        text.append(f"  {_date(world.now)} {clock(world.now)[:5]} (x{self.speed:.0f})", style="default")
        text.append(f"  {serving} of {len(world.nodes)} nodes in service", style="default")
        text.append(f"  ETTR {ettr:.3f}" if ettr is not None else "  ETTR -", style="bold")
        return text

    # -- the fleet

    def _fleet(self, cases: list[Case]) -> list[Text]:
        by_node = {case.node: case for case in cases}
        cells = [cell(node, by_node.get(node.name)) for node in self.show.world.nodes.values()]
        rows = []
        for n in range(0, len(cells), COLUMNS):
            row = Text()
            for letter, style, _ in cells[n : n + COLUMNS]:
                row.append(letter, style=style).append(" ")
            rows.append(row.append(" "))
        for n, (letter, style, words) in enumerate(LEGEND):
            rows[n % len(rows)].append(letter, style=style).append(f" {words:<14}", style="bright_black")
        for row in rows:
            row.rstrip()
        return rows

    # -- jobs

    def _jobs(self, jobs: list[SimJob]) -> list[Text]:
        known = self.show.recoveries()
        return [self._job(job, known.get(job.id)) for job in jobs] or [Text("  none", style="bright_black")]

    def _job(self, job: SimJob, recovery: Recovery | None) -> Text:
        words, style = job_state(job, recovery)
        step, real = job.step(self.show.world.now), job.id in self.show.engines
        text = Text(f"  {job.id:<11}{len(job.nodes):>3} nodes  attempt {job.attempt:<3}step {step:>5}  ")
        text.append(words, style=style)
        return text.append(f"  {len(job.nodes)} real processes" if real else "", style="bright_black")

    # -- cases

    def _cases_title(self, cases: list[Case]) -> Text:
        return Text(f"Open cases ({len(cases)}; {self.show.store.ended} ended)", style="bold")

    def _cases(self, cases: list[Case], room: int) -> list[Text]:
        if not cases:
            return [Text("  none: every node is well", style="bright_black")]
        shown = cases if len(cases) <= room else cases[-(room - 1) :]
        lines = [self._case(case) for case in reversed(shown)]
        if len(shown) < len(cases):
            lines.append(Text(f"  and {len(cases) - len(shown)} older ones", style="bright_black"))
        return lines

    def _case(self, case: Case) -> Text:
        _, style, _ = STATES[case.phase]
        text = Text(f"  {plain(case.factor or case.node):<11}")
        text.append(case_words(case), style=style)
        return text.append(f"  {plain(headline(case.diagnoses, load()))}", style="default")

    # -- journal

    def _journal(self, room: int) -> list[Text]:
        return [_journal_line(line) for line in list(self.show.store.lines)[-room:]]


def cell(node: SimNode, case: Case | None) -> tuple[str, str, str]:
    """What the grid shows of a node: its case first, then what the platform says."""
    if case is not None and not case.newcomer:
        return STATES[case.phase]
    if not node.ready or not node.present:
        return AWAY
    if node.gate or case is not None:
        return GATE
    if node.others:
        return CLOSED
    return WORKING if node.job else IDLE


def case_words(case: Case) -> str:
    if case.phase is Phase.REPAIRING and case.rung is not None:
        return f"{PHASE_WORDS[case.phase]}: {case.rung.value.replace('_', ' ').lower()}"
    if case.phase in (Phase.QUEUED, Phase.WAITING) and "approval" in case.refusal:
        return "waiting for a person's approval"
    return PHASE_WORDS[case.phase]


def job_state(job: SimJob, recovery: Recovery | None) -> tuple[str, str]:
    if recovery is None and job.live:
        return "starting", "green"
    if recovery is None:
        return ("finished", "green") if job.phase is JobPhase.SUCCEEDED else ("given up; see the journal", "red")
    good = recovery.phase is RecoveryPhase.RUNNING and job.live
    return RECOVERY_WORDS[recovery.phase], "green" if good else "bold yellow"


def _journal_line(line: Line) -> Text:
    text = Text(f"  {clock(line.at)} ", style="bright_black")
    text.append(plain(line.who), style="cyan")
    return text.append(f" {plain(line.text)}", style="default")


def _date(at: float) -> str:
    return time.strftime("%a %d %b", time.gmtime(at))
