"""`sickbay nodes`: every node the store remembers, and what is the matter with each. Reads only."""

from __future__ import annotations

from sickbay.cli.sitting import ConfigOption, JsonOption, Sitting, StoreOption, say, sit_down
from sickbay.cli.words import moment, plain, print_json, print_table, span
from sickbay.core import absence, quiet, suspicion
from sickbay.model import Case, NodeRecord, Pause
from sickbay.ports import Unread

UNREADABLE = "unreadable"  # the state of what nobody can read, and so nobody touches
UNATTENDED = "unattended"  # of what the controller leaves alone, for it met an error of its own

UNKNOWN = "unknown"  # somebody has paused it; there is no record of such a node
STRAY = "stray"  # it carries a mark of ours, and nobody has a record of that case


def command(store: StoreOption = "", config: ConfigOption = "", as_json: JsonOption = False) -> None:
    """The nodes we know, and what is the matter with each.

    A node nobody ever complained about is not in the store and not in this list.
    """
    with sit_down(store, config) as sitting:
        found = rows(sitting)
        if as_json:
            print_json(found)
            return
        say(*headlines(sitting), "")
        print_table(("node", "state", "case", "fault", "since", "remarks"), [_cells(row, sitting.now) for row in found])


def rows(sitting: Sitting) -> list[dict[str, object]]:
    """One per node, in the order of their names."""
    records = sitting.records()
    cases = {case.node: case for case in sitting.cases()}
    paused = {pause.scope.removeprefix("node:"): pause for pause in sitting.pauses() if pause.scope.startswith("node:")}
    unread, alone = unread_nodes(sitting), unattended_nodes(sitting)
    ledger = sitting.ledger()
    strays = {node: mark for node, mark in ledger.strays.items() if node not in cases} if ledger else {}
    known = {name for name in records if not _is_no_node(name)}
    names = sorted(known | cases.keys() | paused.keys() | unread.keys() | alone.keys() | strays.keys())
    rows = [_row(name, records.get(name), cases.get(name), paused.get(name), unread.get(name)) for name in names]
    for row in rows:
        record = records.get(str(row["node"]))
        row["quiet_until"] = _quiet_until(sitting, record) if not row["case"] else None
        row["suspicion"] = "; ".join(suspicion.told(record, sitting.watch())) if record else ""
        row["stray"] = strays.get(str(row["node"]), "")
        if row["stray"] and not row["unreadable"]:
            row["state"] = STRAY
        row["unattended"] = alone.get(str(row["node"]), "")
        if row["unattended"] and not row["unreadable"]:
            row["state"] = UNATTENDED
    return rows


def _is_no_node(name: str) -> bool:
    """What remembers the numbers of cases about something that many share."""
    return name == absence.NAME or "=" in name


def _quiet_until(sitting: Sitting, record: NodeRecord | None) -> float | None:
    """The wall time up to which what is latched opens no case."""
    if record is None or not record.quiet:
        return None
    until = max((sitting.wall(quiet.until(record, latch)) for latch in record.latched), default=0.0)
    return until if until > sitting.now else None


def unread_nodes(sitting: Sitting) -> dict[str, Unread]:
    """Nodes that are left alone because what we know of them cannot be read."""
    records = {one.key: one for one in sitting.unread() if one.kind is NodeRecord}
    return records | {one.key.rpartition(".")[0]: one for one in sitting.unread() if one.kind is Case}


def unattended_nodes(sitting: Sitting) -> dict[str, str]:
    """Nodes that the controller leaves alone because of an error of its own, and which."""
    ledger = sitting.ledger()
    found = ledger.unattended.items() if ledger else ()
    why = "{}; nothing is done about it, see the controller's log"
    return {who.removeprefix("node "): why.format(error) for who, error in found if who.startswith("node ")}


def _row(
    node: str, record: NodeRecord | None, case: Case | None, pause: Pause | None, unread: Unread | None
) -> dict[str, object]:
    worst = max(case.diagnoses, key=lambda diagnosis: diagnosis.severity, default=None) if case else None
    return {
        "node": node,
        "state": UNREADABLE if unread else case.phase.value if case else _standing(record),
        "case": case.id if case else "",
        "pool": case.pool if case else "",
        "fault": worst.fault if worst else "",
        "device": worst.place.device if worst else "",
        "since": case.opened_at if case else None,
        "held": bool(case and case.held),
        "waits": case.refusal if case else "",
        "unreadable": f"{unread.name} in {unread.where}: {unread.why}" if unread else "",
        "paused": (pause.why or "paused") if pause else "",
        "suspicion": "",
        "latched": [latch.fault for latch in record.latched] if record else [],
        "cases_before": len(record.past) if record else 0,
    }


def _standing(record: NodeRecord | None) -> str:
    """In one word, without an open case: is anything held against it?"""
    if record is None:
        return UNKNOWN
    if record and any(doubt.strikes for doubt in record.doubts):
        return "suspect"
    return "latched" if record and record.latched else "well"


def _cells(row: dict[str, object], now: float) -> tuple[str, ...]:
    since = row["since"]
    age = span(now - since) if isinstance(since, float) else ""
    return (str(row["node"]), str(row["state"]), str(row["case"]), str(row["fault"]), age, "; ".join(_remarks(row)))


def _remarks(row: dict[str, object]) -> list[str]:
    said = [
        f"{word}: {row[word]}" for word in ("unreadable", "unattended", "waits", "paused", "suspicion") if row[word]
    ]
    if row["stray"]:
        said.append(
            f"carries our mark of {row['stray']}, of which there is no record: if it still stands in a minute, it gets "
            "a case of its own"
        )
    if row["held"]:
        said.append("held by a person")
    if row["latched"] and not row["case"]:
        said.append(f"still latched: {', '.join(map(str, row['latched']))}")  # type: ignore[call-overload]
    if isinstance(until := row["quiet_until"], float):
        said.append(f"left in peace until {moment(until)}: sickbay case reopen {row['node']}")
    return said


def headlines(sitting: Sitting) -> list[str]:
    """What is true of the whole fleet: is anybody working, is anything stopped."""
    ledger = sitting.ledger()
    lines = [sitting.controller()]
    if ledger and ledger.breaker:
        lines.append(f"The breaker is open, nothing new is disrupted: {plain(ledger.breaker)}")
    for pause in sitting.pauses():
        until = f"until {moment(pause.until)}" if pause.until is not None else "until somebody resumes it"
        lines.append(plain(f"Paused: {pause.scope}, {until}, by {pause.by}: {pause.why or 'no reason given'}"))
    return [*lines, *unread_lines(sitting)]


def unread_lines(sitting: Sitting) -> list[str]:
    """One for each record that cannot be read, with what to do about it."""
    return [plain(f"Cannot be read: {one.name} in {one.where}: {one.why}{or_remove(one)}") for one in sitting.unread()]


def or_remove(one: Unread) -> str:
    return f". Or remove it: {one.removal}" if one.removal else ""
