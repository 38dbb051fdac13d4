"""A small data-parallel trainer of our own: real processes, a real all-reduce, real checkpoints, driven step by step.

Called by sim/ and the demo through `Gang`; `python -m sickbay.sim.trainer` runs one without a simulator.
Importing this package must never import numpy: only the process that trains needs it.

    Gang --grant, SIGKILL, SIGSTOP--> ranks, forked by one Nursery process <--all-reduce over loopback TCP--> rank 0
"""

from __future__ import annotations

from sickbay.sim.trainer.gang import Gang
from sickbay.sim.trainer.layout import DamagedCheckpoint, Fenced
from sickbay.sim.trainer.nursery import Nursery

__all__ = ["DamagedCheckpoint", "Fenced", "Gang", "Nursery"]
