"""The model: a two-layer network learning a fixed function, with momentum. Tiny, but every number is really trained.

Called by rank.py only, in the rank's process. It must never draw from a global random stream: weights come from the
seed, a batch from (seed, step, rank, micro-batch), so a step repeated after a restart sees the same data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

INPUTS, HIDDEN, BATCH = 8, 32, 16
RATE, MOMENTUM = 0.02, 0.9
SHAPES = ((INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, 1), (1,))
SIZE = sum(int(np.prod(shape)) for shape in SHAPES)

_INIT, _DATA = 1, 2  # separate the two uses of one seed


class State:
    """Everything a step changes: the flat weights and the flat velocity. This is what a checkpoint holds."""

    def __init__(self, weights: Array, velocity: Array) -> None:
        self.weights, self.velocity = weights, velocity

    def apply(self, gradient: Array) -> None:
        self.velocity *= MOMENTUM
        self.velocity -= RATE * gradient
        self.weights += self.velocity


def first_state(seed: int) -> State:
    stream = np.random.Generator(np.random.PCG64([_INIT, seed]))
    return State(stream.standard_normal(SIZE) * 0.3, np.zeros(SIZE))


def batch(seed: int, step: int, rank: int, part: int) -> tuple[Array, Array]:
    stream = np.random.Generator(np.random.PCG64([_DATA, seed, step, rank, part]))
    x = stream.standard_normal((BATCH, INPUTS))
    y = np.sin(x[:, :1]) + x[:, 1:2] * x[:, 2:3]
    return x, y


def gradient(weights: Array, x: Array, y: Array) -> tuple[float, Array]:
    """Mean squared error and its derivative, flat in the order of SHAPES."""
    w1, b1, w2, b2 = _unpack(weights)
    hidden = np.tanh(x @ w1 + b1)
    error = hidden @ w2 + b2 - y
    d_out = error * (2.0 / len(x))
    d_hidden = (d_out @ w2.T) * (1.0 - hidden * hidden)
    parts = (x.T @ d_hidden, d_hidden.sum(axis=0), hidden.T @ d_out, d_out.sum(axis=0))
    return float(np.mean(error * error)), np.concatenate([part.ravel() for part in parts])


def _unpack(flat: Array) -> list[Array]:
    parts, at = [], 0
    for shape in SHAPES:
        size = int(np.prod(shape))
        parts.append(flat[at : at + size].reshape(shape))
        at += size
    return parts
