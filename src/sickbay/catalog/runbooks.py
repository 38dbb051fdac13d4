"""Runbooks from the catalog: one page per fault, and an index. `python -m sickbay.catalog.runbooks docs/runbooks`.

The pages are committed, and a test holds them equal to what this file makes: edit the catalog, never a page.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from sickbay.catalog import Catalog, Code, load
from sickbay.catalog import prose as say
from sickbay.model import Fault

INDEX = "README.md"
GENERATED = "<!-- Made from src/sickbay/catalog by `python -m sickbay.catalog.runbooks docs/runbooks`; do not edit. -->"
KINDS = {
    "hardware": "Hardware",
    "infrastructure": "Infrastructure",
    "application": "Programs",
    "instrument": "Instruments",
    "configuration": "Settings",
    "inform": "Notes and gates",
}


def pages(catalog: Catalog) -> dict[str, str]:
    """File name -> text, for every page and the index."""
    books = {f"{fault.name}.md": _page(fault, catalog) for fault in catalog.faults.values()}
    return {INDEX: _joined(_index(catalog)), **books}


def write(catalog: Catalog, folder: Path) -> list[Path]:
    """Write all pages, remove pages of faults that are gone; returns what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = pages(catalog)
    for old in folder.glob("*.md"):
        if old.name not in wanted and GENERATED in old.read_text(encoding="utf-8"):
            old.unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in wanted]


def _joined(lines: Iterator[str]) -> str:
    return "\n".join(lines) + "\n"


def _index(catalog: Catalog) -> Iterator[str]:
    yield from ("# Runbooks", "", GENERATED, "")
    yield "One page for each fault Sickbay knows. `sickbay explain CODE` prints the same for a single code."
    for kind, title in KINDS.items():
        faults = [fault for fault in catalog.faults.values() if fault.kind == kind]
        yield from ("", f"## {title}", "", "| fault | what | severity | when |", "|---|---|---|---|")
        for fault in faults:
            when = fault.when if fault.treats else "never treated"
            yield f"| [{fault.name}]({fault.name}.md) | {fault.title} | {fault.severity.name} | {when} |"


def _page(fault: Fault, catalog: Catalog) -> str:
    return _joined(_page_lines(fault, catalog))


def _page_lines(fault: Fault, catalog: Catalog) -> Iterator[str]:
    yield from (f"# {fault.title}", "", GENERATED, "", f"Fault `{fault.name}` ({fault.kind}).")
    yield from ("", "## What it means", "", fault.meaning)
    yield from ("", "## How we see it", "")
    yield from _seen(fault, catalog)
    yield from ("", "## What Sickbay does", "", catalog.actions[fault.name], "")
    yield from _does(fault, catalog)
    yield from ("", "## What a person does", "", fault.advice)
    if fault.treats:
        yield from ("", *_commands())
    yield from ("", "## Sources", "")
    yield from (f"- {source}" for source in fault.sources)


def _seen(fault: Fault, catalog: Catalog) -> Iterator[str]:
    codes = [code for code in catalog.codes.values() if code.fault == fault.name]
    if not codes:
        yield "No instrument prints it; Sickbay concludes it from several findings."
        return
    yield from ("| code | name | meaning | source |", "|---|---|---|---|")
    for code in codes:
        yield f"| `{code.code}` | {code.title} | {_meaning(fault, code)} | {code.source} |"


def _meaning(fault: Fault, code: Code) -> str:
    """The code's meaning, and where it is judged otherwise than its fault."""
    own = [f"severity {code.severity.name}"] if code.severity not in (None, fault.severity) and code.severity else []
    own += [f"when {code.when}"] if code.when and code.when is not fault.when else []
    own += [f"believed on {say.confirmed(fault, code)}"] if code.confirm not in (0, fault.confirm) else []
    return code.meaning + (f" ({', '.join(own)})" if own else "")


def _does(fault: Fault, catalog: Catalog) -> Iterator[str]:
    yield f"- severity: {fault.severity.name}"
    yield f"- ladder: {say.ladder(catalog, fault)}"
    if fault.treats:
        yield f"- when: {fault.when}, {say.WHENS[fault.when]}"
        yield f"- believed on {say.confirmed(fault)}"
        yield f"- cleared by {say.cleared_by(fault)}"
        yield f"- back in service after: {', '.join(fault.verify_with)}"
        yield f"- how sure a single finding makes us: {fault.confidence:.0%}"


def _commands() -> tuple[str, ...]:
    return (
        "```sh",
        "sickbay cases                 # find the case",
        "sickbay case show ID          # its story, and what it waits for",
        "sickbay evidence ID           # one archive for the vendor's ticket",
        "sickbay case approve|hold|retry|abort ID",
        "```",
    )


def main(argv: Sequence[str]) -> int:
    if len(argv) != 1:
        print("usage: python -m sickbay.catalog.runbooks FOLDER", file=sys.stderr)
        return 2
    print(f"{len(write(load(), Path(argv[0])))} pages in {argv[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
