"""Do the nodes of one job run the same software? What differs between them is named, once, and never acted on.

A gang whose ranks differ in driver, NCCL or EFA hangs or slows down in ways that look like broken hardware. Pure;
called by controller/jobs.py when a job's attempt begins, and again when a node of it tells another version.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sickbay.model import Entry, Notice, Recovery

# Factor (Node.factors) -> what people call it. In the order in which they are told.
COMPARED: Mapping[str, str] = {
    "driver": "GPU driver",
    "cuda": "CUDA",
    "nccl": "NCCL",
    "efa": "EFA software",
    "vbios": "GPU VBIOS",
    "kernel": "Linux kernel",
}
EVENT = "VERSIONS"
JOURNAL_MAX = 128
NAMED = 6  # nodes named in one sentence; the rest are counted
TOLD_MOST = 4  # different sets told about one attempt: after that a roll-out is going on, and everybody knows


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One factor: what most nodes have, and who has something else."""

    factor: str
    usual: str
    odd: tuple[tuple[str, tuple[str, ...]], ...]  # (version, its nodes), most nodes first


def compare(factors: Mapping[str, Mapping[str, str]]) -> tuple[Mismatch, ...]:
    """What differs between these nodes (name -> its factors). A node that does not say a version differs in nothing."""
    found = (_compare_one(name, factors) for name in COMPARED)
    return tuple(mismatch for mismatch in found if mismatch is not None)


def _compare_one(factor: str, factors: Mapping[str, Mapping[str, str]]) -> Mismatch | None:
    if len({said.get(factor, "") for said in factors.values()}) < 2:
        return None  # as good as always, and a gang may have thousands of nodes
    by_version: dict[str, list[str]] = defaultdict(list)
    for node in _alike(factor, factors):
        if version := factors[node].get(factor, ""):
            by_version[version].append(node)
    if len(by_version) < 2:
        return None
    ordered = sorted(by_version.items(), key=lambda item: (-len(item[1]), item[0]))
    return Mismatch(factor, ordered[0][0], tuple((version, tuple(sorted(nodes))) for version, nodes in ordered[1:]))


def _alike(factor: str, factors: Mapping[str, Mapping[str, str]]) -> Iterable[str]:
    """A VBIOS belongs to a board: it is compared only between nodes of the job's commonest instance type."""
    if factor != "vbios":
        return factors
    kinds = Counter(said.get("instance-type", "") for said in factors.values())
    usual = min(kinds, key=lambda kind: (-kinds[kind], kind), default="")
    return [node for node, said in factors.items() if said.get("instance-type", "") == usual]


def sentence(mismatch: Mismatch) -> str:
    """ "NCCL: most nodes have 2.27.3, but gpu-4 has 2.21.5"."""
    words = COMPARED[mismatch.factor]
    parts = [f"{_names(nodes)} {'has' if len(nodes) == 1 else 'have'} {version}" for version, nodes in mismatch.odd[:3]]
    more = f" and {len(mismatch.odd) - 3} further versions" if len(mismatch.odd) > 3 else ""
    return f"{words}: most nodes have {mismatch.usual}, but {', '.join(parts)}{more}"


def _names(nodes: tuple[str, ...]) -> str:
    named = ", ".join(nodes[:NAMED])
    return named if len(nodes) <= NAMED else f"{named} and {len(nodes) - NAMED} more"


def noted(recovery: Recovery, mismatches: tuple[Mismatch, ...], at: float) -> Recovery:
    """With a line in its journal and a message about what differs; as it was if that was told about this attempt."""
    if not mismatches:
        return recovery
    attempt = f"attempt {recovery.attempt} "
    why = f"{attempt}runs on unlike nodes: " + "; ".join(sentence(m) for m in mismatches)
    told = [e.why for e in recovery.journal if e.event == EVENT]
    if why in told or sum(t.startswith(attempt) for t in told) >= TOLD_MOST:
        return recovery
    entry = Entry(recovery.step, EVENT, at, "sickbay", why, recovery.phase.value)
    journal = (*recovery.journal, entry)
    if len(journal) > JOURNAL_MAX:
        journal = (*journal[:8], *journal[9:])
    key = f"{recovery.job}/{recovery.attempt}/versions/{recovery.step}.{len(told)}"
    return replace(recovery, journal=journal, notices=(*recovery.notices, _notice(recovery.job, mismatches, key, at)))


def _notice(job: str, mismatches: tuple[Mismatch, ...], key: str, at: float) -> Notice:
    body = [
        f"The nodes of {job} do not run the same software. Nothing is done about it.",
        *(sentence(m) + "." for m in mismatches),
        "Ranks that differ may hang or run slowly in ways that look like broken hardware. Bring the odd nodes to the "
        "version of the others before you look for a fault.",
    ]
    return Notice(key, "info", f"{job}: its nodes run different versions", "\n".join(body), "", at)
