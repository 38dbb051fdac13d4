"""The life of one rank: meet the others, then step, all-reduce, apply, save, beat, until the last step.

Called by forker.py in a process of its own. It must never read a clock or draw a random number that could reach
the weights: they depend on the seed and the step alone.
"""

from __future__ import annotations

import socket
from pathlib import Path

from sickbay.sim.trainer import layout, mlp, shards
from sickbay.sim.trainer.leash import Leash, say
from sickbay.sim.trainer.lines import Lines
from sickbay.sim.trainer.spec import Spec
from sickbay.sim.trainer.star import Star

FENCED = 71  # exit code of a rank that found a newer attempt


def live(spec: Spec, line: socket.socket, listener: socket.socket | None) -> int:
    """The exit code. What the user's code raises goes up and becomes a traceback in the log."""
    leash = Leash(Lines(line), spec.rank, spec.from_step)
    state = _first_state(spec)
    star = Star(spec, leash, listener)
    start = f"from {spec.resume}" if spec.resume else "from seeded weights"
    say(f"[rank{spec.rank}]: attempt {spec.attempt}, {spec.ranks} ranks, step {spec.from_step} {start}")
    leash.lines.send("up")
    try:
        _train(spec, state, star, leash)
    except layout.Fenced as fenced:
        say(f"[rank{spec.rank}]: fenced: {fenced}")
        return FENCED
    return 0


def _first_state(spec: Spec) -> mlp.State:
    if spec.resume:
        return shards.load_state(Path(spec.jobdir) / spec.resume)
    return mlp.first_state(spec.seed)


def _train(spec: Spec, state: mlp.State, star: Star, leash: Leash) -> None:
    for step in range(spec.from_step + 1, spec.total_steps + 1):
        while not leash.may_go_on(step - 1):
            _save(spec, state, star, step - 1)
            leash.saved(step - 1)
        loss, gradient = _work(spec, state, step)
        state.apply(star.all_reduce(gradient))
        if step % spec.checkpoint_every == 0 or step == spec.total_steps:
            say(f"[rank{spec.rank}]: step {step}/{spec.total_steps} loss {loss:.6f}")
            _save(spec, state, star, step)
        leash.beat(step)


def _work(spec: Spec, state: mlp.State, step: int) -> tuple[float, mlp.Array]:
    """This rank's share of the step. `step_work` micro-batches are added up in order."""
    loss, total = user_step(spec, state, step, 0)
    for part in range(1, spec.step_work):
        more, gradient = user_step(spec, state, step, part)
        loss, total = loss + more, total + gradient
    return loss / spec.step_work, total / spec.step_work


def user_step(spec: Spec, state: mlp.State, step: int, part: int) -> tuple[float, mlp.Array]:
    """Stands for the user's code, with the user's bug when there is one: the same line at the same step every time."""
    x, y = mlp.batch(spec.seed, step, spec.rank, part)
    tokens_in_batch = 0 if step == spec.raise_at else len(x)
    per_token = 1 / tokens_in_batch
    loss, gradient = mlp.gradient(state.weights, x, y)
    return loss * per_token * len(x), gradient


def _save(spec: Spec, state: mlp.State, star: Star, step: int) -> None:
    jobdir, saved = Path(spec.jobdir), (step, spec.attempt)
    layout.refuse_if_fenced(jobdir, spec.attempt)
    mine = shards.save_shard(jobdir / layout.saved_name(saved), spec.rank, spec.ranks, state)
    rows = star.collect(mine)
    if rows:
        layout.write_marker(jobdir, saved, {layout.shard_name(rank): row for rank, row in enumerate(rows)})
        layout.prune(jobdir, spec.keep)
