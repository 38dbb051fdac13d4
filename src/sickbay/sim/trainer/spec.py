"""What one rank needs to know, from the Gang to the rank, as one line of JSON.

Written by gang.py, read by rank.py. It must never hold anything that differs between two runs of the same seed,
except the port and the token of this attempt's meeting place.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Spec:
    jobdir: str
    job: str
    rank: int
    ranks: int
    attempt: int
    seed: int
    total_steps: int
    checkpoint_every: int
    step_work: int  # micro-batches per step
    keep: int  # complete checkpoints kept on disk
    resume: str  # directory name of the checkpoint to start from, "" = seeded initial weights
    from_step: int
    raise_at: int  # the step at which this rank's user code divides by zero, 0 = never
    port: int
    token: str  # a stranger, or a rank of an older attempt, does not know it
    watchdog_s: float

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def read_spec(text: str) -> Spec:
    return Spec(**json.loads(text))
