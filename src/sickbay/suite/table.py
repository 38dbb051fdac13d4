"""Which checks a suite has. One row a suite; `cli/check` and the agent read it. Knowledge of a check is not here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from sickbay.checks import ALL, BY_NAME
from sickbay.errors import UserError


@dataclass(frozen=True, slots=True)
class Suite:
    """`first` in order; where `fail_fast`, the first that fails ends them. `then` run in any case: they take seconds,
    and what they see belongs to the evidence. `must`: a deep check that may not run is a refusal, otherwise a SKIP."""

    name: str
    meaning: str
    first: tuple[str, ...]
    then: tuple[str, ...] = ()
    fail_fast: bool = False
    must: bool = False

    @property
    def checks(self) -> tuple[str, ...]:
        return (*self.first, *self.then)


EXTRAS = (
    "nvlink-errors", "gpu-slowdown", "pcie", "dcgm-health", "infiniband", "efa-counters", "peermem", "stuck-processes",
    "local-disks", "disk-space", "shared-storage", "host-memory", "clock", "instance-events",
)  # fmt: skip

# Numbers and order of 0-6 as in the original suite (002.1); its check 0 also read the kernel log.
LIGHT = ("nvidia-smi", "kernel-log", "dcgm-l2", "efa-enumeration", "topology")
PROLOG = ("nvidia-smi", "kernel-log", "efa-enumeration", "gpu-processes")
PROLOG_DCGM = ("nvidia-smi", "kernel-log", "dcgm-l2", "efa-enumeration", "gpu-processes")

SUITES: Mapping[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite("lightweight", "what every node should pass at any time", LIGHT, EXTRAS, fail_fast=True),
        Suite("intensive", "hours of burn-in: the node must be free", ("dcgm-l4", "nccl-allreduce", "efa-loopback"),
              must=True),
        Suite("prolog", "seconds before a job starts", PROLOG, fail_fast=True),
        Suite("quarantine", "everything, for a node that is out of service",
              ("nvidia-smi", "kernel-log", "efa-enumeration", "topology", "gpu-processes", *EXTRAS, "dcgm-l4",
               "efa-loopback", "gpu-matmul", "gpu-speed", "nccl-allreduce"), must=True),
    )
}  # fmt: skip
DEFAULT = "lightweight"


def suite(name: str, *, prolog_dcgm: bool = False) -> Suite:
    """The suite of this name as it can run here: a check that this build does not have is left out."""
    if name not in SUITES:
        raise UserError(f"There is no suite {name!r}. {_meant(name, SUITES)}")
    found = SUITES[name]
    first = PROLOG_DCGM if name == "prolog" and prolog_dcgm else found.first
    known = (tuple(check for check in checks if check in BY_NAME) for checks in (first, found.then))
    first, then = known
    return Suite(found.name, found.meaning, first, then, found.fail_fast, found.must)


def single(words: Iterable[str]) -> Suite:
    """Checks asked for one by one, by name, by number or by the original's own name ("4-dcgm-diag-l4")."""
    names = tuple(dict.fromkeys(check_named(word) for word in words))
    return Suite("single", "checks asked for by name", names, must=True)


def check_named(word: str) -> str:
    by_word = {str(check.number): check.name for check in ALL if check.number is not None}
    by_word |= {check.file: check.name for check in ALL if check.file} | {name: name for name in BY_NAME}
    found = by_word.get(word.strip().lower())
    if found is None:
        raise UserError(f"There is no check {word!r}. {_meant(word, by_word)}")
    return found


def _meant(word: str, known: Iterable[str]) -> str:
    names = list(known)
    close = get_close_matches(word.lower(), names, n=2, cutoff=0.5)
    return f"Did you mean {' or '.join(close)}?" if close else f"There are: {', '.join(sorted(names))}."
