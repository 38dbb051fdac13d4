"""One rank's part of a checkpoint: its slice of the weights and of the velocity, as .npz.

Called by rank.py to save and load, and by Gang.weights/digest. It must never read a checkpoint without its marker.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np

from sickbay.sim.trainer import layout
from sickbay.sim.trainer.mlp import SIZE, State


def save_shard(directory: Path, rank: int, ranks: int, state: State) -> dict[str, object]:
    """On disk when this returns; the answer is the row for the marker."""
    part = slice(rank * SIZE // ranks, (rank + 1) * SIZE // ranks)
    memory = io.BytesIO()
    np.savez(memory, weights=state.weights[part], velocity=state.velocity[part])
    data = memory.getvalue()
    directory.mkdir(exist_ok=True)
    layout.write_durably(directory / layout.shard_name(rank), data)
    return layout.describe(data)


def load_state(directory: Path) -> State:
    weights, velocity = [], []
    for data in layout.read_shards(directory):
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as shard:
                weights.append(shard["weights"])
                velocity.append(shard["velocity"])
        except (ValueError, KeyError, zipfile.BadZipFile) as error:
            raise layout.DamagedCheckpoint(f"{directory.name}: a shard cannot be read ({error})") from None
    state = State(np.concatenate(weights), np.concatenate(velocity))
    if state.weights.shape != (SIZE,) or state.velocity.shape != (SIZE,):
        raise layout.DamagedCheckpoint(f"{directory.name} holds another model: {state.weights.shape} is not ({SIZE},)")
    return state
