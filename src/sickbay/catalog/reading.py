"""Reads the catalog's TOML files and refuses a broken row in plain words: which file, which row, what is wrong.

Called once per process by `sickbay.catalog.load`, and by tests with files of their own. It must stay quick (the command
line waits for it), and must never guess: a missing column, an unknown fault or a row without a source is a ConfigError.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import resources
from typing import Any

from sickbay.catalog import ANY_STATUS, Catalog, Code, NvlinkSub, Profile, Variant
from sickbay.catalog.blame import read_blame
from sickbay.catalog.rows import Row
from sickbay.errors import ConfigError
from sickbay.model import TREATMENTS, Fault, Rung, Severity, Verb, When

FILES = (
    "sources.toml",
    "ladders.toml",
    "faults.toml",
    "xid.toml",
    "sxid.toml",
    "dcgm.toml",
    "signs.toml",
    "nvlink5.toml",
    "profiles.toml",
    "blame.toml",
)
KINDS = ("hardware", "infrastructure", "application", "instrument", "configuration", "inform")
CLEARED_BY = re.compile(r"reset|boot|ready|operator|pass:[a-z0-9][a-z0-9-]*")
FIRST_RUNG = {Severity.RESET: Verb.RESET_GPU, Severity.REBOOT: Verb.REBOOT, Severity.REPLACE: Verb.REPLACE}
READINGS = {"blind": "blind", "setting": "setting"}
FALLBACK = "inform"  # what a code without a row is

SEVERITIES: Mapping[str, Severity] = {member.name: member for member in Severity}
WHENS: Mapping[str, When] = {member.value: member for member in When}

FAULT_COLUMNS = frozenset(Fault.__dataclass_fields__) - {"name"} | {"action"}
CODE_COLUMNS = frozenset(Code.__dataclass_fields__) - {"code"}
VARIANT_COLUMNS = frozenset(("name", "traits", "fault", "severity", "when", "meaning"))
PROFILE_COLUMNS = frozenset(Profile.__dataclass_fields__) - {"type"}


def shipped(file: str) -> str:
    return resources.files("sickbay.catalog").joinpath(file).read_text(encoding="utf-8")


def read_catalog(read: Callable[[str], str] = shipped) -> Catalog:
    """All files into one checked Catalog. `read` returns a file's text; tests pass their own."""
    texts = {file: read(file) for file in FILES}
    files = {file: _parsed(file, text) for file, text in texts.items()}
    sources = _sources(files["sources.toml"])
    ladders = {row.name: _ladder(row, sources) for row in _rows("ladders.toml", files)}
    faults = {row.name: _fault(row, ladders, sources) for row in _rows("faults.toml", files)}
    actions = {row.name: row.text("action") for row in _rows("faults.toml", files)}
    if FALLBACK not in faults:
        raise ConfigError("faults.toml", FALLBACK, "missing", "unknown codes are noted under it, so it must exist")
    return Catalog(
        faults=faults,
        codes={code.code: code for code in _codes(files, faults, actions, sources)},
        ladders=ladders,
        profiles={row.name: profile(row, sources) for row in _rows("profiles.toml", files)},
        nvlink5=tuple(_nvlink5(files["nvlink5.toml"], sources)),
        version=hashlib.sha256("".join(texts.values()).encode()).hexdigest()[:12],
        actions=actions,
        blame=read_blame(Row("blame.toml", "blame", files["blame.toml"]), lambda row: _cited(row, "source", sources)),
    )


def _parsed(file: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as why:
        raise ConfigError(file, "the whole file", f"not TOML: {why}", "correct the line it names") from None


def _rows(file: str, files: Mapping[str, Mapping[str, Any]]) -> Iterator[Row]:
    for name, data in files[file].items():
        if not isinstance(data, dict):
            raise ConfigError(file, name, "not a table", f"write [{name}] and its columns below")
        yield Row(file, name, data)


def _sources(data: Mapping[str, Any]) -> Mapping[str, str]:
    for key, text in data.items():
        if not isinstance(text, str) or not text:
            raise ConfigError("sources.toml", key, "not text", "say where the fact can be found")
    return data


def _cited(row: Row, key: str, sources: Mapping[str, str]) -> tuple[str, ...]:
    """The full text of each source a row names; every row must name one."""
    value = row.data.get(key)
    keys = [value] if isinstance(value, str) else value
    if not isinstance(keys, list) or not keys:
        raise row.wrong(key, "no source", "cite a key of sources.toml; a fact without a source is not kept")
    for name in keys:
        if name not in sources:
            raise row.wrong(key, f"{name!r} is not in sources.toml", "add it there, or cite one that is")
    return tuple(sources[name] for name in keys)


def _ladder(row: Row, sources: Mapping[str, str]) -> tuple[Rung, ...]:
    row.only(frozenset({"source", "why", "rungs"}))
    _cited(row, "source", sources)
    rungs = tuple(_rung(row, item) for item in row.data.get("rungs", ()))
    order = [TREATMENTS.index(rung.verb) for rung in rungs]
    if not rungs or order != sorted(set(order)):
        raise row.wrong("rungs", "empty, repeated or not weakest first", "the order is " + ", ".join(TREATMENTS))
    return rungs


def _rung(row: Row, item: Any) -> Rung:
    match item:
        case [str(verb), int(timeout_s)] if verb in TREATMENTS and timeout_s > 0:
            return Rung(Verb(verb), float(timeout_s))
    raise row.wrong("rungs", f"not a rung: {item!r}", 'write ["REBOOT", 1800], a treatment and its seconds')


def _fault(row: Row, ladders: Mapping[str, tuple[Rung, ...]], sources: Mapping[str, str]) -> Fault:
    row.only(FAULT_COLUMNS)
    fault = Fault(
        name=row.name,
        title=row.text("title"),
        kind=row.word("kind", {kind: kind for kind in KINDS}),
        severity=row.word("severity", SEVERITIES),
        when=row.word("when", WHENS),
        ladder=row.text("ladder", ""),
        cleared_by=row.text("cleared_by"),
        settle_s=float(row.number("settle_s")),
        verify_with=row.texts("verify_with"),
        confidence=float(row.number("confidence")),
        meaning=row.text("meaning"),
        advice=row.text("advice"),
        sources=_cited(row, "sources", sources),
        confirm=row.whole("confirm", 1),
        treats=row.flag("treats"),
    )
    _check_fault(row, fault, ladders)
    return fault


def _check_fault(row: Row, fault: Fault, ladders: Mapping[str, tuple[Rung, ...]]) -> None:
    if not CLEARED_BY.fullmatch(fault.cleared_by):
        words = "reset | boot | ready | pass:<check> | operator"
        raise row.wrong("cleared_by", f"{fault.cleared_by!r} is not known", words)
    if not 0 < fault.confidence <= 1:
        raise row.wrong("confidence", f"{fault.confidence} is out of range", "above 0, at most 1")
    if fault.confirm < 1:
        raise row.wrong("confirm", "below 1", "findings in a row before it is believed, at least 1")
    if fault.ladder and fault.ladder not in ladders:
        raise row.wrong("ladder", f"{fault.ladder!r} is not in ladders.toml", "one of " + ", ".join(ladders))
    if fault.ladder and not fault.treats:
        raise row.wrong("ladder", "a fault that treats nothing has a ladder", 'treats = true, or ladder = ""')
    if fault.ladder and ladders[fault.ladder][0].verb is not FIRST_RUNG.get(fault.severity):
        raise row.wrong("severity", f"{fault.severity.name} is not the ladder's first rung", "let the two agree")
    if fault.treats and not fault.verify_with:
        raise row.wrong("verify_with", "empty", "name the checks that must pass before the node returns")


def _codes(
    files: Mapping[str, Mapping[str, Any]],
    faults: Mapping[str, Fault],
    actions: Mapping[str, str],
    sources: Mapping[str, str],
) -> Iterator[Code]:
    seen: set[str] = set()
    for row in _code_rows(files):
        code = _code(row, faults, actions, sources)
        for one in (code, *(variant.code for variant in code.variants)):
            if one.code in seen:
                raise row.wrong("", f"{one.code} is there twice", "keep one row for a code")
            seen.add(one.code)
            yield one


def _code_rows(files: Mapping[str, Mapping[str, Any]]) -> Iterator[Row]:
    for prefix in ("xid", "sxid", "dcgm"):
        for row in _rows(f"{prefix}.toml", files):
            yield Row(row.file, f"{prefix}.{row.name}", row.data)
    for instrument in _rows("signs.toml", files):
        for name, data in instrument.data.items():
            if not isinstance(data, dict):
                raise instrument.wrong(name, "not a table", f"write [{instrument.name}.{name}] and its columns below")
            yield Row("signs.toml", f"{instrument.name}.{name}", data)


def _code(row: Row, faults: Mapping[str, Fault], actions: Mapping[str, str], sources: Mapping[str, str]) -> Code:
    row.only(CODE_COLUMNS)
    fault = _known_fault(row, row.text("fault"), faults)
    code = Code(
        code=row.name,
        name=row.text("name", "") or row.name.partition(".")[2],
        fault=fault,
        meaning=row.text("meaning"),
        action=row.text("action", "") or actions[fault],
        source="; ".join(_cited(row, "source", sources)),
        severity=row.word("severity", SEVERITIES) if "severity" in row.data else None,
        when=row.word("when", WHENS) if "when" in row.data else None,
        vendor_action=row.text("vendor_action", ""),
        title=row.text("title"),
        confirm=row.whole("confirm", 0),
        number=row.whole("number", 0),
        reading=row.word("reading", READINGS) if "reading" in row.data else "",
    )
    variants = row.data.get("variants")
    return replace(code, variants=_variants(row, code, variants, faults, actions)) if variants else code


def _known_fault(row: Row, fault: str, faults: Mapping[str, Fault]) -> str:
    if fault not in faults:
        raise row.wrong("fault", f"{fault!r} is not in faults.toml", "name a fault that is, or add its row there")
    return fault


def _variants(
    row: Row, code: Code, items: Any, faults: Mapping[str, Fault], actions: Mapping[str, str]
) -> tuple[Variant, ...]:
    if not isinstance(items, list):
        raise row.wrong("variants", "not a list of tables", f"write [[{row.name}.variants]]")
    rows = (Row(row.file, f"{row.name}.variants[{number}]", item) for number, item in enumerate(items))
    return tuple(_variant(one, code, faults, actions) for one in rows)


def _variant(row: Row, code: Code, faults: Mapping[str, Fault], actions: Mapping[str, str]) -> Variant:
    row.only(VARIANT_COLUMNS)
    name, fault = row.text("name"), _known_fault(row, row.text("fault"), faults)
    traits = row.data.get("traits")
    if not isinstance(traits, dict) or not traits:
        raise row.wrong("traits", "missing", "name the traits and patterns that select this reading")
    for trait, pattern in traits.items():
        _check_pattern(row, trait, pattern)
    return Variant(
        name=name,
        traits=traits,
        code=replace(
            code,
            code=f"{code.code}.{name}",
            fault=fault,
            meaning=row.text("meaning"),
            action=actions[fault],
            severity=row.word("severity", SEVERITIES) if "severity" in row.data else None,
            when=row.word("when", WHENS) if "when" in row.data else None,
        ),
    )


def _check_pattern(row: Row, trait: str, pattern: Any) -> None:
    """Cheap here; that every shipped pattern compiles is proved by a test, so that loading need not compile them."""
    if not isinstance(pattern, str) or not pattern:
        raise row.wrong(f"traits.{trait}", f"not a pattern: {pattern!r}", "write a regular expression")


def _nvlink5(data: Mapping[str, Any], sources: Mapping[str, str]) -> Iterator[NvlinkSub]:
    table = Row("nvlink5.toml", "rows", data)
    (source, *_) = _cited(table, "source", sources)
    for number, item in enumerate(data.get("rows", ())):
        yield _nvlink_sub(Row("nvlink5.toml", f"rows[{number}]", {}), item, source)


def _nvlink_sub(row: Row, item: Any, source: str) -> NvlinkSub:
    match item:
        case [int(xid), str(unit), str(v1), str(v2), str(status), str(severity), bool(fatal), str(meaning)] if (
            len(v1) == len(v2) == 32 and severity in SEVERITIES
        ):
            bits = ANY_STATUS if status == "any" else int(status, 16)
            return NvlinkSub(xid, unit, v1, v2, bits, SEVERITIES[severity], fatal, meaning, source)
    raise row.wrong("", f"not a decode row: {item!r}", "see the columns at the head of the file")


def profile(row: Row, sources: Mapping[str, str]) -> Profile:
    """Also for the rows of a person's own file (profile_file)."""
    row.only(PROFILE_COLUMNS)
    return Profile(
        type=row.name,
        gpus=row.whole("gpus"),
        gpu_model=row.text("gpu_model"),
        efas=row.whole("efas"),
        nvlink=row.text("nvlink", ""),
        reboot_s=float(row.number("reboot_s")),
        power_cycle_s=float(row.number("power_cycle_s")),
        replace_s=float(row.number("replace_s")),
        source="; ".join(_cited(row, "source", sources)),
        nccl_local_min_gbs=float(row.number("nccl_local_min_gbs", 0.0)),
        efa_loopback_min_gbps=float(row.number("efa_loopback_min_gbps", 0.0)),
        nvmes=row.whole("nvmes", 0),
    )
