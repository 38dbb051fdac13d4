"""`python -m sickbay.sim.trainer`: the trainer in real time, without a simulator.

Prints a line per checkpoint interval and the digest at the end. Exit codes: 0 trained to the end, 1 a rank failed,
2 asked for something impossible, 130 interrupted. It must never leave a rank running.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sickbay.errors import SickbayError
from sickbay.sim.trainer import Gang, layout

STEP_S = 3600.0  # a checkpoint interval may take this long before we call it stuck
WATCHDOG_S = 60.0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m sickbay.sim.trainer", description="Train a small model in several processes."
    )
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--workdir", type=Path, required=True, help="where checkpoints and logs go")
    parser.add_argument("--job", default="job")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--checkpoint-every", type=int, default=40, metavar="STEPS")
    parser.add_argument("--step-work", type=int, default=1, metavar="N", help="micro-batches per step and rank")
    parser.add_argument("--resume", action="store_true", help="go on from the newest complete checkpoint")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    args = _arguments(argv)
    try:
        with _gang(args) as gang:
            return _train(gang, args.resume)
    except SickbayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; go on with --resume", file=sys.stderr)
        return 130


def _gang(args: argparse.Namespace) -> Gang:
    return Gang(
        args.workdir,
        args.job,
        args.ranks,
        seed=args.seed,
        total_steps=args.steps,
        checkpoint_every=args.checkpoint_every,
        step_work=args.step_work,
        watchdog_s=WATCHDOG_S,
    )


def _train(gang: Gang, resume: bool) -> int:
    saved = gang.checkpoints() if resume else []
    gang.start(layout.newest_attempt(gang.jobdir) + 1, saved[-1][0] if saved else None)
    print(f"attempt {gang.attempt}: {gang.ranks} ranks from step {gang.step}", flush=True)
    while gang.step < gang.total_steps:
        reached, asked = gang.step, min(gang.checkpoint_every, gang.total_steps - gang.step)
        if gang.grant(asked, STEP_S) < reached + asked:
            return _report_failure(gang)
        print(f"step {gang.step}/{gang.total_steps}, complete checkpoint at {gang.checkpoints()[-1][0]}", flush=True)
    print(f"digest {gang.digest()}")
    return 0


def _report_failure(gang: Gang) -> int:
    for rank, code in gang.exits().items():
        print(f"rank {rank} exit {code}: {(gang.logs(rank, 1) or ['no log'])[0]}", file=sys.stderr)
    print(f"the gang stopped after step {gang.step}; go on with --resume", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
