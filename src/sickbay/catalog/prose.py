"""Catalog columns as sentences, for `sickbay explain` and the runbooks: one wording in both places. Pure."""

from __future__ import annotations

from sickbay.catalog import Catalog, Code
from sickbay.model import Fault, Severity, When

WHENS = {
    When.NOW: "at once: the work on it is lost already",
    When.CHECKPOINT: "after the job has been asked to save, or its time for that is up",
    When.IDLE: "when the job on it has ended; nothing is evicted",
}
CLEARERS = {
    "reset": "a GPU reset, or any boot after the finding",
    "boot": "a boot after the finding",
    "ready": "the node itself, by being ready again",
    "operator": "a person, and nothing else",
}


def cleared_by(fault: Fault) -> str:
    kind, _, check = fault.cleared_by.partition(":")
    what = f"a later pass of the {check} check" if kind == "pass" else CLEARERS[kind]
    return f"{what}, not counted until {fault.settle_s:.0f} s after a boot" if fault.settle_s else what


def ladder(catalog: Catalog, fault: Fault) -> str:
    rungs = catalog.ladders.get(fault.ladder, ())
    if rungs:
        return " -> ".join(f"{rung.verb} (up to {rung.timeout_s / 60:.0f} min)" for rung in rungs)
    return "none: checks only" if fault.treats else "none: no node is touched"


def confirmed(fault: Fault, code: Code | None = None) -> str:
    times = (code.confirm if code else 0) or fault.confirm
    return "the first finding" if times == 1 else f"{times} findings in a row"


def severity_of(fault: Fault, code: Code) -> Severity:
    return fault.severity if code.severity is None else code.severity


def when_of(fault: Fault, code: Code) -> When:
    return code.when or fault.when
