"""`sickbay pause` and `sickbay resume`: hands off the fleet, a pool or a node.

Writes a Pause record into the store, so it works with the controller down. A pause freezes
what is open and begins nothing; it does not undo, and a treatment that was already sent runs to its end.
"""

from __future__ import annotations

from typing import Annotated

import typer

from sickbay.cli.sitting import ConfigOption, Sitting, StoreOption, WhyOption, nearest, say, sit_down
from sickbay.cli.words import duration, moment, plain, span
from sickbay.errors import AlreadyExists, StaleWrite, Unreadable, UserError
from sickbay.model import Pause
from sickbay.ports import Unread

AllOption = Annotated[bool, typer.Option("--all", help="The whole fleet.")]
PoolOption = Annotated[str, typer.Option("--pool", metavar="P", help="One pool.")]
NodeOption = Annotated[str, typer.Option("--node", metavar="N", help="One node.")]
ForOption = Annotated[str, typer.Option("--for", metavar="TIME", help="How long, e.g. 2h; else until you resume.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Also for a node or pool that nobody knows yet.")]

FLEET = "fleet"
TRIES = 5  # two people at once: the later one wins, nobody waits long


def pause(
    fleet: AllOption = False,
    pool: PoolOption = "",
    node: NodeOption = "",
    length: ForOption = "",
    why: WhyOption = "",
    yes: YesOption = False,
    store: StoreOption = "",
    config: ConfigOption = "",
) -> None:
    """Hands off the fleet, a pool or a node; works with the controller down."""
    where = scope(fleet, pool, node)
    seconds = duration(length) if length else None
    with sit_down(store, config) as sitting:
        doubt = unknown(sitting, where, yes)
        say(*doubt, *write(sitting, where, seconds, why))


def resume(
    fleet: AllOption = False,
    pool: PoolOption = "",
    node: NodeOption = "",
    store: StoreOption = "",
    config: ConfigOption = "",
) -> None:
    """End a pause."""
    where = scope(fleet, pool, node)
    with sit_down(store, config) as sitting:
        say(*lift(sitting, where))


def scope(fleet: bool, pool: str, node: str) -> str:
    """The scope's name in the store, from exactly one of the three options."""
    chosen = [FLEET] * fleet + [f"pool:{pool}"] * bool(pool) + [f"node:{node}"] * bool(node)
    if len(chosen) != 1:
        raise UserError("Say which: exactly one of --all, --pool P or --node N.")
    return chosen[0]


def unknown(sitting: Sitting, where: str, yes: bool) -> list[str]:
    """What to say of a name that nobody knows; UserError where every node can be seen and it is none of them."""
    kind, _, name = where.partition(":")
    known = sitting.known()
    names = known.pools if kind == "pool" else known.nodes
    if not name or name in names:
        return []
    meant = nearest(name, sorted(names), "`sickbay nodes` lists those we know.")
    if known.all and not yes:
        raise UserError(
            f"No {kind} {plain(name)} is known; nothing was paused. {meant} With --yes it is paused all the same, for "
            "when it comes."
        )
    ill = "" if known.all else f" (a {kind} where nothing was ever ill is not, so it may well be there)"
    return [f"No {kind} {plain(name)} is known{ill}. {meant}"]


def write(sitting: Sitting, where: str, seconds: float | None, why: str) -> list[str]:
    """Put the pause into the store, over an older one of the same scope, and say what follows from it."""
    until = None if seconds is None else sitting.now + seconds
    _put(sitting, Pause(where, sitting.by, why, sitting.now, until, cluster=sitting.cluster()))
    return [
        f"Paused: {_named(where)}, {_until(until, seconds)}.",
        "Open cases there stay where they are, no node is cordoned, drained or treated and no job restarted. A "
        "treatment already sent runs to its end; `sickbay case abort` still lets a node go.",
        f"{sitting.controller()} `sickbay resume {_option(where)}` ends it.",
    ]


def _put(sitting: Sitting, wanted: Pause) -> None:
    for _ in range(TRIES):
        try:
            there = sitting.store.get(Pause, wanted.scope)
            if there is None:
                sitting.store.create(wanted)
            else:
                sitting.store.commit(wanted, there.version, 0)
            return
        except (AlreadyExists, StaleWrite):
            continue
        except Unreadable as error:
            raise UserError(
                f"There is a pause of {_named(wanted.scope)} that cannot be read, so hands are off already. "
                f"{plain(str(error))}\n`sickbay resume {_option(wanted.scope)}` removes it."
            ) from error
    raise UserError(
        f"Others keep writing the pause of {_named(wanted.scope)}; look with `sickbay nodes`, then try again."
    )


def lift(sitting: Sitting, where: str) -> list[str]:
    """Remove the pause and say what still holds."""
    try:
        there = sitting.store.get(Pause, where) is not None
    except Unreadable:  # whoever may pause may also take back what nobody can read
        there = True
    sitting.store.delete(Pause, where)
    nameless = _lift_nameless(sitting, where)
    done = there or (bool(nameless) and where == FLEET)
    lines = [f"Resumed: {_named(where)}." if done else f"There was no pause of {_named(where)}; nothing changed."]
    lines += nameless
    rest = sitting.pauses()
    lines += [
        f"Still paused: {_named(other.scope)}, {_until(other.until, None)}, by {plain(other.by)}." for other in rest
    ]
    return [*lines, sitting.controller()]


def _lift_nameless(sitting: Sitting, where: str) -> list[str]:
    """A pause that cannot be read and does not even name a scope holds the whole fleet: who resumes that removes it."""
    lost = [one for one in sitting.unread() if one.kind is Pause and not one.key.startswith((FLEET, "pool:", "node:"))]
    if where != FLEET:
        return [
            f"Still paused: the whole fleet, by {plain(_told(one))}. `sickbay resume --all` removes it." for one in lost
        ]
    for one in lost:
        sitting.store.delete(Pause, one.key)
    return [f"Removed: {plain(_told(one))}." for one in lost]


def _told(one: Unread) -> str:
    return f"a pause in {one.where} that cannot be read and names no scope"


def _named(where: str) -> str:
    kind, _, name = where.partition(":")
    return f"{kind} {plain(name)}" if name else "the whole fleet"


def _option(where: str) -> str:
    kind, _, name = where.partition(":")
    return f"--{kind} {plain(name)}" if name else "--all"


def _until(until: float | None, seconds: float | None) -> str:
    if until is None:
        return "until somebody resumes it"
    return f"until {moment(until)}" + (f" ({span(seconds)} from now)" if seconds is not None else "")
