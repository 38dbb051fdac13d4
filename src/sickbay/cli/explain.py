"""`sickbay explain CODE`: what a code means, what we do about it, and who says so. Reads the catalog, nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from textwrap import fill

import typer

from sickbay.catalog import Catalog, Code, load
from sickbay.catalog import prose as say
from sickbay.errors import UserError
from sickbay.model import Fault

WIDTH = 100
LONGEST_CODE = 80  # anything longer is no code, and is not searched for or printed back whole
OTHERS = {"xid": "NVIDIA's bucket", "dcgm": "One peer's map, which we do not follow blindly"}
NUMBERED = re.compile(r"(s?xid)?[\s.:#_-]*(\d+)(?:[\s.:]+([0-9a-z][0-9a-z-]*))?", re.IGNORECASE)


def command(code: list[str] = typer.Argument(help="xid.79, XID 79, 79, sxid.20034, a DCGM name, a fault")) -> None:  # noqa: B008
    """Say what a code or a fault means, what we do about it, and the source."""
    typer.echo(explain(" ".join(code)))


def explain(code: str, catalog: Catalog | None = None) -> str:
    """The page about a code or a fault. UserError, with the nearest names, if there is none."""
    known = catalog or load()
    name = _named(code, known)
    if name in known.codes:
        return "\n".join(_code_page(known.codes[name], known))
    if name in known.faults:
        return "\n".join(_fault_page(known.faults[name], known))
    raise UserError(_unknown(code, known))


def _named(typed: str, catalog: Catalog) -> str:
    """What a person typed, as the catalog spells it: "XID 79", "79" and "Xid: 79" are xid.79."""
    text = typed.strip()[:LONGEST_CODE]
    numbered = NUMBERED.fullmatch(text)
    if numbered:
        kind, number, variant = numbered.groups()
        return _numbered((kind or "").lower(), int(number), (variant or "").lower(), catalog)
    for guess in (text, text.lower(), f"dcgm.{text.upper()}", f"dcgm.DCGM_FR_{text.upper()}", _dcgm(text)):
        if guess in catalog.codes or guess in catalog.faults:
            return guess
    return text


def _numbered(kind: str, number: int, variant: str, catalog: Catalog) -> str:
    if not kind:  # a bare number is an XID, unless only the switches have it
        kind = "sxid" if f"xid.{number}" not in catalog.codes and f"sxid.{number}" in catalog.codes else "xid"
    return f"{kind}.{number}.{variant}" if variant else f"{kind}.{number}"


def _dcgm(text: str) -> str:
    prefix, _, rest = text.partition(".")
    return f"{prefix.lower()}.{rest.upper()}"


def _unknown(typed: str, catalog: Catalog) -> str:
    wanted = _named(typed, catalog)
    names = {name.lower(): name for name in (*catalog.codes, *catalog.faults)}
    near = [names[name] for name in get_close_matches(wanted.lower(), names, n=4, cutoff=0.6)]
    hint = f"did you mean {', '.join(near)}?" if near else "try one like xid.79, dcgm.DCGM_FR_NVLINK_DOWN or gpu-lost"
    return f"no code or fault named {wanted!r} in the catalog (an unlisted code is noted, never treated); {hint}"


def _code_page(code: Code, catalog: Catalog) -> Iterator[str]:
    fault = catalog.faults[code.fault]
    name = f"  ({code.name})" if code.name != code.code.partition(".")[2] else ""
    yield f"{code.code}: {code.title}{name}"
    yield from _part("What it means", code.meaning)
    yield from _part("What we do", code.action)
    yield from _treatment(fault, catalog, code)
    if code.variants:
        yield from _readings(code, catalog)
    yield from _part(f"Fault {fault.name}: {fault.title}", fault.meaning)
    yield from _part("What a person does", fault.advice)
    if code.vendor_action:
        yield from _part(OTHERS.get(code.code.partition(".")[0], "Others say"), code.vendor_action)
    yield from _part("Source", code.source)


def _fault_page(fault: Fault, catalog: Catalog) -> Iterator[str]:
    yield f"{fault.name}: {fault.title}"
    yield from _part("What it means", fault.meaning)
    yield from _part("What we do", catalog.actions.get(fault.name, ""))
    yield from _treatment(fault, catalog, None)
    yield from _part("What a person does", fault.advice)
    seen = [code.code for code in catalog.codes.values() if code.fault == fault.name]
    yield from _part("Seen as", ", ".join(seen) or "nothing prints it; we conclude it ourselves")
    yield from _part("Source", "; ".join(fault.sources))


def _treatment(fault: Fault, catalog: Catalog, code: Code | None) -> Iterator[str]:
    severity = say.severity_of(fault, code) if code else fault.severity
    when = say.when_of(fault, code) if code else fault.when
    yield f"  severity    {severity.name}"
    yield f"  ladder      {say.ladder(catalog, fault)}"
    if fault.treats:
        yield f"  when        {when} ({say.WHENS[when]})"
        yield f"  believed    on {say.confirmed(fault, code)}"
        yield f"  cleared by  {say.cleared_by(fault)}"
        yield f"  verified    with {', '.join(fault.verify_with)}"


def _readings(code: Code, catalog: Catalog) -> Iterator[str]:
    yield ""
    yield "It depends"
    for variant in code.variants:
        fault = catalog.faults[variant.code.fault]
        severity = say.severity_of(fault, variant.code).name
        yield from _wrapped(f"{variant.code.code} -> {fault.name}, {severity}: {variant.code.meaning}")


def _part(title: str, text: str) -> Iterator[str]:
    yield ""
    yield title
    yield from _wrapped(text)


def _wrapped(text: str) -> Iterator[str]:
    yield fill(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
