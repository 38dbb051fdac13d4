"""What of a report is believed, whoever carried it: everything about the node itself, within bounds, and nothing else.

Called with what a node said: by web/letters (posted to the ingest) and kube/results (an annotation that anybody who may
patch the node could have written). Pure. It must never let through a number, a name or a text that would hurt whoever
keeps, sorts or shows it, nor a word about another node.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from sickbay.model import Finding, Place, Report

MOST_FINDINGS = 512
MOST_GPUS = 256
MOST_FACTORS = 64
MOST_TRAITS = 32
MOST_LINES = 16
LONGEST_LINE = 1_000
LONGEST_NAME = 256
LARGEST_NUMBER = 2**53  # what JSON readers agree on

# "<boot id>/<sequence>": core orders findings by the number, so it must be one.
_ID = re.compile(r"[A-Za-z0-9._:+-]{0,128}/[0-9]{1,15}", re.ASCII)
_FACTOR = re.compile(r"[a-z][a-z0-9_.-]{0,47}", re.ASCII)

# Where a machine stands and what it was made from is the platform's to say; two nodes must not claim one rack.
NOT_THE_NODES = frozenset({"rack", "switch", "image", "pool", "domain", "zone", "job"})


class Unbelievable(ValueError):
    """Not what it says it is; the text names the field and what is wrong with it."""


def believed(report: Report, node: str, cluster: str, received_at: float) -> Report:
    """The report with everything a node may not decide set right; Unbelievable if a bound is broken."""
    _bounded(report)
    return replace(
        report,
        node=node,
        cluster=cluster,  # whoever carried it knows; whatever the agent's own settings call it
        findings=tuple(_its_own(finding, node, received_at) for finding in report.findings),
        factors=_its_factors(report.factors),
    )


def _bounded(report: Report) -> None:
    """Every number and name the controller keeps, sorts by or counts with is what it looks like."""
    _demand(0 <= report.sequence <= LARGEST_NUMBER, "sequence", "not a number from 0 to 2^53")
    _demand(math.isfinite(report.at), "at", "not a time")
    _demand(len(report.boot_id) <= 128, "boot_id", "longer than 128 characters")
    _demand(len(report.instance) <= LONGEST_NAME, "instance", f"longer than {LONGEST_NAME} characters")
    _demand(len(report.findings) <= MOST_FINDINGS, "findings", f"more than {MOST_FINDINGS}; send the worst")
    _demand(len(report.gpus) <= MOST_GPUS, "gpus", f"more than {MOST_GPUS}")
    for i, gpu in enumerate(report.gpus):
        short = all(len(text) <= LONGEST_NAME for text in (gpu.uuid, gpu.serial, gpu.pci))
        _demand(short and -1 <= gpu.index <= 4096, f"gpus[{i}]", "not a GPU's identity")
    for i, finding in enumerate(report.findings):
        if not _is_sound(finding):
            _bounded_finding(finding, f"findings[{i}]")


def _is_sound(finding: Finding) -> bool:
    """All of `_bounded_finding` at once and without words: a controller that starts reads a hundred thousand."""
    longest = max(
        len(finding.check), len(finding.code), len(finding.boot_id), len(finding.part), len(finding.answers)
    )  # fmt: skip
    return (
        longest <= LONGEST_NAME and math.isfinite(finding.at) and 0 <= finding.count <= LARGEST_NUMBER
        and len(finding.traits) <= MOST_TRAITS and _ID.fullmatch(finding.id) is not None
    )  # fmt: skip


def _bounded_finding(finding: Finding, where: str) -> None:
    _demand(bool(_ID.fullmatch(finding.id)), f"{where}.id", 'not "<boot id>/<sequence>"')
    for name in ("check", "code", "boot_id", "part", "answers"):
        _demand(len(getattr(finding, name)) <= LONGEST_NAME, f"{where}.{name}", f"longer than {LONGEST_NAME}")
    _demand(math.isfinite(finding.at), f"{where}.at", "not a time")
    _demand(0 <= finding.count <= LARGEST_NUMBER, f"{where}.count", "not a count")
    _demand(len(finding.traits) <= MOST_TRAITS, f"{where}.traits", f"more than {MOST_TRAITS}")


def _its_factors(factors: Mapping[str, str]) -> Mapping[str, str]:
    """Versions are worth comparing, not worth losing a report for: odd ones are left out."""
    fit = {k: v for k, v in factors.items() if _FACTOR.fullmatch(k) and len(v) <= LONGEST_NAME and v.isprintable()}
    return {k: v for k, v in list(fit.items())[:MOST_FACTORS] if k not in NOT_THE_NODES}


def _demand(holds: bool, where: str, wrong: str) -> None:
    if not holds:
        raise Unbelievable(f"the report's {where} is {wrong}")


def _its_own(said: Finding, node: str, received_at: float) -> Finding:
    """An agent speaks as an agent, about its own node. (Made anew field by field: `replace` costs three times that.)"""
    return Finding(
        id=said.id, source="agent", check=said.check, place=Place(node, _plain(said.place.device)), status=said.status,
        code=said.code, reason=_cut(said.reason), evidence=tuple([_cut(line) for line in said.evidence[:MOST_LINES]]),
        severity=said.severity, boot_id=said.boot_id, at=said.at, received_at=received_at,
        answers=said.answers if said.answers and _may_answer(said.answers, node) else "", count=said.count,
        part=said.part, traits=_cut_traits(said.traits) if said.traits else said.traits,
    )  # fmt: skip


def _may_answer(key: str, node: str) -> bool:
    """Its own case's examination ("gpu-17.3/12"), or its share of a job's ("train#9": the place says which node)."""
    case, _, step = key.rpartition("/")
    return (case.rpartition(".")[0] == node and step.isascii() and step.isdigit()) or "#" in key


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_LINE else text[: LONGEST_LINE - 1] + "…"


def _plain(device: str) -> str:
    """A PCI address, a port, a path: whatever it is, one short line."""
    if len(device) <= LONGEST_NAME and device.isprintable():
        return device
    return "".join(c if c.isprintable() else "?" for c in device[:LONGEST_NAME])


def _cut_traits(traits: Mapping[str, str]) -> Mapping[str, str]:
    if all(len(name) <= LONGEST_NAME and len(value) <= LONGEST_LINE for name, value in traits.items()):
        return traits
    return {name[:LONGEST_NAME]: _cut(value) for name, value in traits.items()}
