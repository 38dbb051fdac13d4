"""`sickbay cases` lists, `sickbay case show` tells, and `sickbay case
approve|hold|unhold|abort|retry|examine|reopen` ask.

Nothing here writes a case: what a person asks for goes through wishes.py into a Command.
"""

from __future__ import annotations

from typing import Annotated

import typer

from sickbay.cli.nodes import UNREADABLE, unread_lines
from sickbay.cli.sitting import (
    LOOK_BACK,
    ConfigOption,
    JsonOption,
    Sitting,
    StoreOption,
    WhyOption,
    approval,
    say,
    sit_down,
)
from sickbay.cli.wishes import ask, ask_for_node, to_approve
from sickbay.cli.words import moment, plain, print_json, print_table, span
from sickbay.core.explain import case_story
from sickbay.errors import UserError
from sickbay.model import Case, Command
from sickbay.wire import to_json

CaseArgument = Annotated[str, typer.Argument(metavar="ID", help="The case, e.g. gpu-17.3.")]

app = typer.Typer(add_completion=False, no_args_is_help=True)


def command(
    every: Annotated[bool, typer.Option("--all", help="The ended ones too, newest first.")] = False,
    as_json: JsonOption = False,
    store: StoreOption = "",
    config: ConfigOption = "",
) -> None:
    """Open cases; with --all the ended ones too."""
    with sit_down(store, config) as sitting:
        unread = [one for one in sitting.unread() if one.kind is Case]
        listed = sitting.cases() + (list(sitting.store.history(Case, limit=LOOK_BACK)) if every else [])
        if as_json:
            print_json(to_json(case) for case in listed)
        elif listed or unread:
            lost = [(one.key, UNREADABLE, "", "", "", f"left alone: {one.why}") for one in unread]
            rows = [_cells(case, sitting.now) for case in listed]
            print_table(("case", "phase", "fault", "device", "age", "now"), [*lost, *rows])
            say(*unread_lines(sitting))
        else:
            say(f"No {'' if every else 'open '}cases. {sitting.controller()}")


def _cells(case: Case, now: float) -> tuple[str, ...]:
    faults = ", ".join(dict.fromkeys(diagnosis.fault for diagnosis in case.diagnoses))
    devices = ", ".join(dict.fromkeys(diagnosis.place.device for diagnosis in case.diagnoses if diagnosis.place.device))
    age = span(now - case.opened_at)
    return (case.id, case.phase.value, faults or case.factor or "newcomer", devices, age, _now(case))


def _now(case: Case) -> str:
    """What it is doing or waiting for at this moment."""
    said = ["held by a person"] if case.held else []
    if case.refusal:
        said.append(f"waits: {case.refusal}")
    elif case.pending:
        said.append(f"{case.pending.verb.value} under way")
    elif case.journal:
        said.append(case.journal[-1].why)
    return "; ".join(said)


@app.command()
def show(
    case_id: CaseArgument, as_json: JsonOption = False, store: StoreOption = "", config: ConfigOption = ""
) -> None:
    """Everything about one case, open or ended."""
    with sit_down(store, config) as sitting:
        case, _ = sitting.case(case_id)
        if as_json:
            print_json([to_json(case)])
        else:
            say(*map(plain, [*facts(case), "", *found(case), "", *case_story(case), *_asked(sitting, case)]))


def _asked(sitting: Sitting, case: Case) -> list[str]:
    """Commands about this case that the controller has not taken up yet."""
    wishes = (stored.value for stored in sitting.store.list(Command))
    return [
        f"Asked, not yet taken up: {wish.verb} by {wish.by} at {moment(wish.at)}. {wish.why}"
        for wish in wishes
        if wish.target == case.id
    ]


def facts(case: Case) -> list[str]:
    """The case's columns, one a line."""
    ladder = [rung.verb.value + (" (tried)" if rung.verb in case.rungs_tried else "") for rung in case.plan.rungs]
    lines = {
        "case": case.id,
        "node": f"{case.node} (instance {case.instance or 'unknown'}, pool {case.pool})",
        "phase": case.phase.value + (", held" if case.held else "") + (", cancelled" if case.cancelled else ""),
        "opened": moment(case.opened_at),
        "ladder": ", ".join(ladder) or "none: it is only examined",
        "verified with": ", ".join(case.plan.verify_with),
        "approved": ", ".join(verb.value for verb in case.approved),
        "waits": case.refusal,
        "evidence": case.evidence,
        "jobs hurt": ", ".join(case.jobs_hurt),
    }
    return [f"{name:<14} {value}" for name, value in lines.items() if value]


def found(case: Case) -> list[str]:
    """What was found, each diagnosis with its part and its quoted lines."""
    lines = []
    for diagnosis in case.diagnoses:
        where = diagnosis.place.device or "the whole node"
        seen = f"seen {moment(diagnosis.at)}, confidence {diagnosis.confidence:.0%}"
        lines.append(f"- {diagnosis.fault} ({diagnosis.code or 'no code'}) on {where}, {seen}")
        lines += [f"  GPU serial number: {diagnosis.part}"] if diagnosis.part else []
        lines += [f"  > {quote}" for quote in diagnosis.because]
    return lines


@app.command()
def approve(
    case_id: CaseArgument,
    verb: Annotated[str, typer.Option("--verb", help="Which one; else the next that needs it.")] = "",
    why: WhyOption = "",
    store: StoreOption = "",
    config: ConfigOption = "",
) -> None:
    """Let a case go on with a treatment that waits for a person (REPLACE, by default)."""
    with sit_down(store, config) as sitting:
        case = _open(sitting, case_id)
        chosen = to_approve(case, approval(config, case.pool), verb)
        say(*ask(sitting, case, "approve", why, {"verb": chosen.value}))


@app.command()
def hold(case_id: CaseArgument, why: WhyOption = "", store: StoreOption = "", config: ConfigOption = "") -> None:
    """Freeze a case where it is."""
    _ask_about(case_id, "hold", why, store, config)


@app.command()
def unhold(case_id: CaseArgument, why: WhyOption = "", store: StoreOption = "", config: ConfigOption = "") -> None:
    """Let a held case go on."""
    _ask_about(case_id, "unhold", why, store, config)


@app.command()
def abort(case_id: CaseArgument, why: WhyOption = "", store: StoreOption = "", config: ConfigOption = "") -> None:
    """End a case: take our marks off the node and leave it to you."""
    _ask_about(case_id, "abort", why, store, config)


@app.command()
def retry(case_id: CaseArgument, why: WhyOption = "", store: StoreOption = "", config: ConfigOption = "") -> None:
    """Begin an escalated case's ladder anew."""
    _ask_about(case_id, "retry", why, store, config)


@app.command()
def examine(case_id: CaseArgument, why: WhyOption = "", store: StoreOption = "", config: ConfigOption = "") -> None:
    """Check the node of an escalated case, without treating it, and return it if it is well."""
    _ask_about(case_id, "examine", why, store, config)


@app.command()
def split(case_id: CaseArgument, why: WhyOption = "", store: StoreOption = "", config: ConfigOption = "") -> None:
    """End a case about many nodes that are away together: those still away are treated one by one."""
    _ask_about(case_id, "split", why, store, config)


@app.command()
def reopen(
    node: Annotated[str, typer.Argument(metavar="NODE", help="A node whose case was let go.")],
    why: WhyOption = "",
    store: StoreOption = "",
    config: ConfigOption = "",
) -> None:
    """End the quiet time of a node: what still stands against it opens a case at once."""
    with sit_down(store, config) as sitting:
        say(*ask_for_node(sitting, node, why))


def _ask_about(case_id: str, verb: str, why: str, store: str, config: str) -> None:
    with sit_down(store, config) as sitting:
        say(*ask(sitting, _open(sitting, case_id), verb, why, {}))


def _open(sitting: Sitting, case_id: str) -> Case:
    case, live = sitting.case(case_id)
    if not live:
        raise UserError(f"Case {case.id} has ended ({case.phase.value}); it can be shown, not changed.")
    return case
