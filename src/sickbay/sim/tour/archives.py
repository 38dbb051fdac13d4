"""The scene about evidence: an archive of every treated node was written before its treatment began."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path

from sickbay.evidence.folder import FolderEvidence
from sickbay.evidence.keeping import name_of
from sickbay.model import Case
from sickbay.ports import EvidenceStore
from sickbay.sim.tour import truth
from sickbay.sim.tour.scene import Scene, Seen
from sickbay.sim.tour.stage import Stage
from sickbay.sim.world import Fact

Pack = Callable[[Case, Path, EvidenceStore], tuple[int, str]]  # cli/evidence.pack: what `sickbay evidence CASE` writes
WANTED = ("kernel.log", "nvidia-smi-q.txt", "identity.json", "findings.txt", "timeline.txt", "ticket.txt")


class EvidenceFirst(Scene):
    name = "evidence-first"
    title = "Evidence is in an archive before each treatment; one command makes a vendor ticket of it"
    expected = "every treated case has an archive from before its first treatment; the ticket archive is complete"
    lasts_min = 0

    def __init__(self, pack: Pack) -> None:
        self.pack = pack

    def begin(self, stage: Stage) -> None:
        return None

    def judge(self, stage: Stage) -> Seen:
        firsts = first_treatments(stage)
        late = [case for case, fact in firsts.items() if not self._kept(stage, case, fact)]
        packed, names, serials = self._ticket(stage)
        missing = [name for name in WANTED if not any(entry.endswith(name) for entry in names)]
        first = "every treated case has an archive from before its first treatment" if firsts and not late else (
            f"no archive in time for {', '.join(late) or 'anybody'}"
        )  # fmt: skip
        second = "the ticket archive is complete" if not missing else f"the ticket archive lacks {', '.join(missing)}"
        seen = Seen(f"{first}; {second}")
        seen.claim("the archive names all eight serials of the node", serials == 8)
        seen.facts = {"treated_cases": len(firsts), "archives": len(firsts) - len(late), "ticket": packed}
        seen.story = [f"Case {case}: evidence kept before {truth.VERB_WORDS[str(f.detail['verb'])]}"
                      for case, f in sorted(firsts.items())]  # fmt: skip
        return seen

    def _kept(self, stage: Stage, case: str, treated: Fact) -> bool:
        """The world saw the collection, earlier; and the archive is there."""
        collected = [f for f in truth.facts(stage.world, "collect", treated.node) if case_of(f) == case]
        if not collected or collected[0].t > treated.t:
            return False
        return (stage.workdir / "evidence" / name_of(str(collected[0].detail["key"]))).is_file()

    def _ticket(self, stage: Stage) -> tuple[str, list[str], int]:
        """What `sickbay evidence` writes about the case of XID 79."""
        cases = [c for c in stage.run.store.history(Case, fault="gpu-lost", limit=50) if c.archive]
        if not cases:
            return "", [], 0
        case = min(cases, key=lambda c: c.opened_at)
        target = stage.workdir / f"{case.id}.tar.gz"
        self.pack(case, target, FolderEvidence(stage.workdir / "evidence"))
        with tarfile.open(target) as tar:
            names = tar.getnames()
            identity = next(name for name in names if name.endswith("identity.json"))
            read = tar.extractfile(identity)
            serials = len(json.load(read)["gpus"]) if read else 0
        return target.name, names, serials


def case_of(fact: Fact) -> str:
    return str(fact.detail["key"]).rsplit("/", 1)[0]


def first_treatments(stage: Stage) -> dict[str, Fact]:
    """case -> its first treatment."""
    firsts: dict[str, Fact] = {}
    for fact in truth.facts(stage.world, "treat-start"):
        firsts.setdefault(case_of(fact), fact)
    return firsts
