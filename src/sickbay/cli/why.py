"""`sickbay why JOB|NODE`: the story of a job or a node in sentences. Reads only; the wording is core/explain.py's."""

from __future__ import annotations

from typing import Annotated

import typer

from sickbay.cli.cases import found
from sickbay.cli.nodes import or_remove
from sickbay.cli.sitting import LOOK_BACK, ConfigOption, Sitting, StoreOption, nearest, say, sit_down
from sickbay.cli.words import moment, plain
from sickbay.core import quiet, suspicion
from sickbay.core.explain import case_story, recovery_story
from sickbay.errors import UserError
from sickbay.model import Case, Latch, NodeRecord, Recovery

TOLD = 3  # ended cases told in full; older ones are only counted

NameArgument = Annotated[str, typer.Argument(metavar="JOB|NODE", help="A job, a node, or a case id.")]


def command(name: NameArgument, store: StoreOption = "", config: ConfigOption = "") -> None:
    """The story of a job or a node, in sentences."""
    with sit_down(store, config) as sitting:
        say(*map(plain, tell(sitting, name)))


def tell(sitting: Sitting, name: str) -> list[str]:
    """All we know under this name: as a job, as a node, as a case; UserError with the nearest names if nothing."""
    unread = _unread(sitting, name)
    lines = unread + (_job(sitting, name) or _node(sitting, name) or _case(sitting, name))
    if not lines:
        known = nearest(name, sitting.names(), "`sickbay nodes` lists the nodes, `sickbay cases --all` the cases.")
        none = "no case, no job, and no node that anybody ever complained about"
        raise UserError(f"Nothing is known of {plain(name)}: {none}. {known}")
    return lines


def _unread(sitting: Sitting, name: str) -> list[str]:
    """What is known of it and cannot be read: that is why nothing happens to it."""
    about = [one for one in sitting.unread() if name in (one.key, one.key.rpartition(".")[0])]
    return [
        f"{name} is left alone: {one.name} in {one.where} cannot be read. {one.why}{or_remove(one)}" for one in about
    ]


def _job(sitting: Sitting, name: str) -> list[str]:
    live = next((stored for stored in sitting.store.list(Recovery) if stored.value.job == name), None)
    ended = [old for old in sitting.store.history(Recovery, limit=LOOK_BACK) if old.job == name]
    lives = ([live.value] if live else []) + ended
    if not lives:
        return []
    lines = [f"Job {name}: {lives[0].phase.value}", *recovery_story(lives[0])]
    return lines + _cases_told(_that_hurt(sitting, name)[:TOLD])


def _that_hurt(sitting: Sitting, job: str) -> list[Case]:
    """Cases whose drain or fault stopped this job: the cause stands beside the effect."""
    known = [*sitting.cases(), *sitting.store.history(Case, limit=LOOK_BACK)]
    return [case for case in known if job in case.jobs_hurt]


def _node(sitting: Sitting, name: str) -> list[str]:
    record = sitting.records().get(name)
    live = [case for case in sitting.cases() if case.node == name]
    ended = list(sitting.store.history(Case, node=name, limit=LOOK_BACK))
    if record is None and not live and not ended:
        return []
    lines = _standing(sitting, name, live, record) + _cases_told(live + ended[:TOLD])
    if len(ended) > TOLD:
        lines += ["", f"{len(ended) - TOLD} older cases: `sickbay cases --all`."]
    return lines


def _standing(sitting: Sitting, name: str, live: list[Case], record: NodeRecord | None) -> list[str]:
    lines = [f"Node {name}: {live[0].phase.value}, case {live[0].id}." if live else f"Node {name}: no open case."]
    if record and (told := suspicion.told(record, sitting.watch())):
        lines += [f"Under suspicion, and taken last for managed jobs: {clause}." for clause in told]
        lines.append(f"If you know better: sickbay node acknowledge {name}.")
    for latch in record.latched if record and not live else ():
        quoted = f': "{latch.because[0]}"' if latch.because else ""
        lines.append(f"Still held against it: {latch.fault} ({latch.code}) on {latch.place.device or name}{quoted}")
        lines += _left_in_peace(sitting, record, latch) if record else []
    return lines


def _left_in_peace(sitting: Sitting, record: NodeRecord, latch: Latch) -> list[str]:
    """Why no case is open for it, and how to have one."""
    until = sitting.wall(quiet.until(record, latch))
    if not record.quiet or until <= sitting.now:
        return []
    since = record.past[-1].case if record.past else "an earlier case"
    return [
        f"It opens no case until {moment(until)}, because {since} was let go: only the same fault on another boot or "
        f"device would. `sickbay case reopen {record.node}` ends that."
    ]


def _case(sitting: Sitting, name: str) -> list[str]:
    known = [*sitting.cases(), *sitting.store.history(Case, limit=LOOK_BACK)]
    return _cases_told([case for case in known if case.id == name])


def _cases_told(cases: list[Case]) -> list[str]:
    lines: list[str] = []
    for case in cases:
        lines += [
            "",
            f"Case {case.id}, opened {moment(case.opened_at)}, {case.phase.value}",
            *found(case),
            *case_story(case),
        ]
    return lines
