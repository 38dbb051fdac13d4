"""`sickbay inject --sim KIND`: a simulated host falls ill, and the real checks say what they see. Hurts nobody.

Called by `cli/inject`. The host prints what the real tools would print, so this is what an operator would read.
"""

from __future__ import annotations

from difflib import get_close_matches

from sickbay.catalog import load
from sickbay.checks import run as checks_run
from sickbay.cli.words import plain
from sickbay.errors import InputError
from sickbay.model import Finding, Status
from sickbay.sim.faults import kinds
from sickbay.sim.host import SimHost
from sickbay.sim.world import World

CHECKS = ("kernel-log", "nvidia-smi", "dcgm-health", "dcgm-l2")
LATER_S = 60.0  # some illnesses take a moment to show


def show(kind: str, gpu: int) -> None:
    if kind in ("?", "list"):
        for name, row in kinds().items():
            print(f"{name:<26} {row.title}")
        return
    if kind not in kinds():
        near = get_close_matches(kind, list(kinds()), n=2, cutoff=0.4)
        meant = f"did you mean {' or '.join(near)}?" if near else "`--sim ?` lists them"
        raise InputError(f"--sim {plain(kind)}: no such illness; {meant}")
    found = struck(kind, gpu)
    print(f"Simulated host, GPU {gpu}: {kinds()[kind].title}. What the checks say:")
    for finding in found:
        print(f"  {finding.check:<12} {finding.status:<9} {finding.severity.name:<8} {finding.code or '-'}")
        print(f"               {plain(finding.reason)}")
    if not any(f.code and f.status is not Status.OK for f in found):
        print("Nothing: this one shows only under load, or in a job.")


def struck(kind: str, gpu: int) -> list[Finding]:
    world = World(seed=7, nodes=1)
    (node,) = world.nodes.values()
    if not 0 <= gpu < len(node.gpus):
        raise InputError(f"--gpu {gpu}: the simulated host has GPUs 0 to {len(node.gpus) - 1}")
    world.illness.strike(kind, node, gpu, dormant=False)
    world.run_until(world.now + LATER_S)
    host = SimHost(world, node)
    return checks_run.run(host, CHECKS, load(), expected_gpus=node.expected, at=world.now, gpus=node.gpu_map)
