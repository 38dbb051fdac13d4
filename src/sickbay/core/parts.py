"""Which GPU is meant: a part is believed only where it is the node's own, and goes by what is no other part's name too.

Called by core/sight.py, which every finding passes whatever door it came through, core/decide.py and core/obey.py.
Pure. It must never let one node's word stand for a part of another: for one node's token 32 healthy machines of others
were replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from sickbay.core import comebacks
from sickbay.core.frozen import replace
from sickbay.core.turn import Turn
from sickbay.model import Command, Finding, Gpu, Node, Status, Verb

Carriers = Mapping[str, tuple[str, ...]]  # serial or UUID -> the nodes that show it now

NO_NAMES = frozenset({"na", "none", "null", "unknown", "notsupported", "unknownerror", "gpuislost"})


@lru_cache(maxsize=65_536)
def is_name(text: str) -> bool:
    """Zeros and "[N/A]" are what boards print that have no number, and every one of them prints the same."""
    bare = "".join(c for c in text.lower().removeprefix("gpu-") if c.isalnum())
    return bool(bare.strip("0")) and bare not in NO_NAMES


def name_of(gpu: Gpu, node: Node, carriers: Carriers) -> str:
    """Its serial, else its UUID; "" where neither tells it from every other part."""
    return next((name for name in (gpu.serial, gpu.uuid) if _is_one_parts(name, node, carriers)), "")


def _is_one_parts(name: str, node: Node, carriers: Carriers) -> bool:
    return _is_one(name, node.name, carriers) and sum(name in (gpu.serial, gpu.uuid) for gpu in node.gpus) <= 1


def _is_one(name: str, node: str, carriers: Carriers) -> bool:
    """A name, and no other node shows it."""
    return is_name(name) and all(other == node for other in carriers.get(name, ()))


def believed(findings: Iterable[Finding], node: Node, carriers: Carriers) -> tuple[Finding, ...]:
    """What was found, each with a part of this node or with none."""
    return tuple([_with_its_part(finding, node, carriers) for finding in findings])


def _with_its_part(finding: Finding, node: Node, carriers: Carriers) -> Finding:
    if finding.status is Status.OK or not (finding.part or finding.place.device):
        return finding
    part = _part(finding, node, carriers)
    return finding if part == finding.part else replace(finding, part=part)


def _part(finding: Finding, node: Node, carriers: Carriers) -> str:
    """By the node's own map of GPUs. Where none is known, any name that no other node shows."""
    if not node.gpus:
        return finding.part if _is_one_parts(finding.part, node, carriers) else ""
    gpu = _meant(finding, node)
    return name_of(gpu, node, carriers) if gpu is not None else ""


def _meant(finding: Finding, node: Node) -> Gpu | None:
    """Where several print one number, or this one has none, the address decides."""
    mine = [gpu for gpu in node.gpus if finding.part and finding.part in (gpu.serial, gpu.uuid)]
    if len(mine) == 1:
        return mine[0]
    there = next((gpu for gpu in node.gpus if gpu.pci == finding.place.device), None)
    nameless = there is not None and not is_name(finding.part) and not is_name(there.serial)
    return there if nameless or there in mine else None


def disown(turn: Turn) -> None:
    """No machine leaves with a part that another node shows: that one may have been silent when the part was named.
    Once its REPLACE begins, its own parts may be seen elsewhere: under the name of its successor."""
    case = turn.case
    if case is None or Verb.REPLACE in case.rungs_tried or comebacks.awaits_successor(case):
        return
    carriers = turn.s.carriers
    theirs = {d.part for d in case.diagnoses if d.part and not _is_one(d.part, case.node, carriers)}
    if theirs:
        own = tuple(replace(d, part="") if d.part in theirs else d for d in case.diagnoses)
        turn.case = replace(case, diagnoses=own)


def pardon(turn: Turn, command: Command) -> None:
    """A person's word about a node is also about the condemned parts in it, and for good: else the next boot accused it
    again of the same part, and nobody could end that."""
    node, case = turn.s.node, turn.case
    here = {name for gpu in (node.gpus if node else ()) for name in (gpu.serial, gpu.uuid)}
    here |= {d.part for d in case.diagnoses} if case else set()
    why = f"{command.by}: {command.why or 'no reason given'}"
    turn.pardon += tuple((part, why) for part in sorted(here & turn.s.condemned.keys()))
