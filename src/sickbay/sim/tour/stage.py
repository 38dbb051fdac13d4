"""Where scenes play: a world, the real controller in its virtual time, and one person who answers when asked.

Built by programme.py; scenes use it to cast nodes, submit jobs, strike, and look up what the controller wrote down.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from sickbay.model import Case, Command, Entry, NodeRecord, Notice, Part, Recovery
from sickbay.settings import JobPolicy, Policy, Settings
from sickbay.sim.jobs import JobSpec, RealEngine, SimJob
from sickbay.sim.run import SimRun
from sickbay.sim.world import World

MIDNIGHT = 1_793_664_000.0  # 2026-11-03 00:00 UTC: the tour begins at midnight, so that 3 a.m. is 3 a.m.
APPROVES_AFTER_S = 480.0  # a person reads the notice and decides
LOOKS_EVERY_S = 60.0

# What an operator who trusts it would set: up to replacement, and a person approves each of those.
POLICY = Policy(max_verb="REPLACE", approval=("REPLACE",))
SETTINGS = Settings(cluster="tour", policy=POLICY, jobs=JobPolicy(barren_limit=2))

_KMSG = re.compile(r"\d+,\d+,\d+,[^;\s]*;")


def build_world(seed: int, nodes: int = 64, *, spares: int = 0) -> World:
    """Repairs here do what they say; scenes name the exceptions, so that each ending has one cause."""
    return World(
        seed, nodes - spares, spares=spares, silent_failure=0.0, reboot_hangs=0.0, part_returns=0.0, start=MIDNIGHT
    )


class Stage:
    def __init__(self, world: World, run: SimRun, workdir: Path) -> None:
        self.world, self.run, self.workdir = world, run, workdir
        self.began = world.now
        self._asked: dict[str, float] = {}
        self._cast: set[str] = set()

    # -- time

    @property
    def now(self) -> float:
        return self.world.now

    def after_min(self, minutes: float, act: Callable[[], object]) -> None:
        self.world.after(minutes * 60, lambda: _ignore(act()))

    def play_until(self, when: float) -> None:
        self.run.run_until(when)

    def play_min(self, minutes: float) -> None:
        self.run.run_for(minutes * 60)

    # -- casting

    def take(self, count: int) -> tuple[str, ...]:
        """Idle nodes that are truly well and have played in no scene yet, in order of name."""
        free = [
            n.name for n in self.world.nodes.values()
            if n.serving() and not n.job and not n.spare and n.name not in self._cast
            and self.world.truly_healthy(n.name)
        ]  # fmt: skip
        if len(free) < count:
            raise RuntimeError(f"the stage has {len(free)} idle nodes left and a scene needs {count}")
        self._cast.update(free[:count])
        return tuple(free[:count])

    def submit(self, job: str, count: int, *, engine: RealEngine | None = None, **options: object) -> SimJob:
        spec = JobSpec(job, self.take(count), **options)  # type: ignore[arg-type]
        return self.world.submit(spec, engine)

    # -- what the controller wrote down

    def cases(self, node: str, since: float = 0.0) -> list[Case]:
        """Every case of a node, ended and open, oldest first."""
        ended = [c for c in self.run.store.history(Case, node=node, limit=1000) if c.node == node]
        live = [s.value for s in self.run.store.list(Case) if s.value.node == node]
        return sorted([c for c in (*ended, *live) if c.opened_at >= since], key=lambda c: c.opened_at)

    def recovery(self, job: str) -> Recovery | None:
        live = self.run.store.get(Recovery, job)
        if live is not None:
            return live.value
        return next((r for r in self.run.store.history(Recovery, limit=1000) if r.job == job), None)

    def record(self, node: str) -> NodeRecord | None:
        stored = self.run.store.get(NodeRecord, node)
        return stored.value if stored else None

    def part(self, serial: str) -> Part | None:
        stored = self.run.store.get(Part, serial)
        return stored.value if stored else None

    def notices(self, word: str, since: float = 0.0) -> list[Notice]:
        return [n for n in self.run.mailbox.notices if n.at >= since and (word in n.title or word in n.body)]

    # -- telling

    def story(self, *, nodes: tuple[str, ...] = (), jobs: tuple[str, ...] = (), since: float = 0.0) -> list[str]:
        """The journals of these cases and recoveries as one list of sentences, in the order of what happened."""
        told: list[tuple[float, int, str, Entry]] = []
        for node in nodes:
            told += [(e.at, e.step, node, e) for c in self.cases(node, since) for e in c.journal]
        for job in jobs:
            recovery = self.recovery(job)
            told += [(e.at, e.step, job, e) for e in (recovery.journal if recovery else ())]
        told.sort(key=lambda row: (row[0], row[2], row[1]))
        lines = [f"{clock(at)} {who}: {sentence(entry, who)}" for at, _, who, entry in told if entry.why]
        return [line.replace(f"{self.workdir}/", "") for line in lines]

    # -- the person

    def employ_approver(self, by: str = "dana") -> None:
        """Somebody on call who, asked to approve a replacement, does so some minutes later."""
        self.world.after(LOOKS_EVERY_S, lambda: self._look(by))

    def _look(self, by: str) -> None:
        for stored in self.run.store.list(Case):
            case = stored.value
            if "approval" not in case.refusal:
                continue
            key = f"{case.id}/{case.step}"
            asked = self._asked.setdefault(key, self.now)
            if self.now - asked >= APPROVES_AFTER_S and self.run.store.get(Command, f"approve-{key}") is None:
                self._approve(case, by)
                self._asked[key] = float("inf")
        self.world.after(LOOKS_EVERY_S, lambda: self._look(by))

    def _approve(self, case: Case, by: str) -> None:
        why = "capacity is there; go ahead"
        args = {"verb": "REPLACE"}
        command = Command(f"approve-{case.id}/{case.step}", "approve", case.id, by, why, self.now, args, case.cluster)
        self.run.store.create(command)


def _ignore(_: object) -> None:
    return None


def clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def sentence(entry: Entry, who: str) -> str:
    """One journal line for people: without the kernel's own prefix, and signed when a person said it."""
    text = plain_line(entry.why)
    signed = "" if entry.by in ("", "sickbay", "platform") else f" (said {entry.by})"
    first = text.split(" ", 1)[0]
    is_name = first == who or any(char.isdigit() for char in first)  # node-0014 keeps its letters
    return (text if is_name else text[:1].upper() + text[1:]) + signed


def plain_line(text: str) -> str:
    text = _KMSG.sub("", text)
    return text if len(text) <= 240 else text[:237] + "..."
