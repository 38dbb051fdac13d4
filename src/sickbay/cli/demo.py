"""`sickbay demo`: a simulated fleet that breaks and heals before your eyes; `--headless` plays the fixed tour instead.

The tour ends with code 0 only if every scene ended as expected. It must never touch a real store or a real node: what
it writes goes to a folder of its own, which is removed at the end unless `--keep` names one.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from time import monotonic
from typing import Annotated

import typer

from sickbay.cli.words import duration as as_seconds
from sickbay.cli.words import plain
from sickbay.errors import UserError
from sickbay.sim.tour import Result, Tour, run_tour

UNEXPECTED = 1  # a scene did not end as it must
WIDTH = 110

Headless = Annotated[bool, typer.Option("--headless", help="Play the fixed tour without a terminal, then report.")]
Seed = Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Same seed, same virtual trace.")]
AsJson = Annotated[bool, typer.Option("--json", help="With --headless: the result as one JSON object.")]
Speed = Annotated[
    float, typer.Option("--speed", min=1.0, max=100_000.0, metavar="X", help="Virtual seconds per real second.")
]
Duration = Annotated[
    str, typer.Option("--duration", metavar="TIME", help="Stop the live view by itself, e.g. 30s; else Ctrl-C does.")
]
Keep = Annotated[str, typer.Option("--keep", metavar="DIR", help="Leave archives, stores and checkpoints in DIR.")]


def command(
    headless: Headless = False, seed: Seed = 7, as_json: AsJson = False, speed: Speed = 240.0, duration: Duration = "",
    keep: Keep = "",
) -> None:  # fmt: skip
    """A simulated fleet of 64 nodes that breaks and heals before your eyes. Ctrl-C stops it."""
    if as_json and not headless:
        raise UserError("--json belongs to the tour: say `sickbay demo --headless --json`")
    with _workdir(keep) as workdir:
        if headless:
            raise typer.Exit(0 if _tour(seed, workdir, as_json).ok else UNEXPECTED)
        from sickbay.cli.live import watch

        watch(seed, workdir, speed=speed, seconds=as_seconds(duration) if duration else None)


@contextmanager
def _workdir(keep: str) -> Iterator[Path]:
    if not keep:
        with tempfile.TemporaryDirectory(prefix="sickbay-") as made:
            yield Path(made)
        return
    path = Path(keep).expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {path}: {error.strerror}; name another folder with --keep") from error
    if any(path.iterdir()):
        raise UserError(f"{path} is not empty; name a new folder with --keep")
    yield path.resolve()


def _tour(seed: int, workdir: Path, as_json: bool) -> Tour:
    from sickbay.cli.evidence import pack

    began = monotonic()
    tour = run_tour(seed, workdir, pack, (lambda _: None) if as_json else _print_scene)
    if as_json:
        sys.stdout.write(json.dumps(tour.as_json(), ensure_ascii=False) + "\n")
    else:
        _print_summary(tour, monotonic() - began)
    return tour


# -- the report in words


def _print_scene(result: Result) -> None:
    mark = "as expected" if result.ok else "NOT AS EXPECTED"
    say = [f"{result.title}  [{result.name}: {mark}]", _wrapped(f"Ending: {result.ending}")]
    if result.ending != result.expected:
        say.append(_wrapped(f"Expected: {result.expected}"))
    say += [_wrapped(f"But not true: {what}") for what, holds in result.claims if not holds]
    say += [_wrapped(f"- {plain(line)}", "      ") for line in result.story]
    if result.facts:
        say.append(_wrapped(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in result.facts.items())))
    sys.stdout.write("\n".join(say) + "\n\n")
    sys.stdout.flush()


def _wrapped(text: str, indent: str = "    ") -> str:
    return fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ", break_long_words=False)


def _print_summary(tour: Tour, seconds: float) -> None:
    good = sum(scene.ok for scene in tour.scenes)
    lines = [
        f"{good} of {len(tour.scenes)} scenes ended as expected, in {seconds:.0f} s.",
        f"ETTR of the night: {tour.ettr:.3f} (share of job time that became steps which survived; docs/metrics.md).",
        f"Virtual trace {tour.digest[:16]}: seed {tour.seed} gives the same again.",
        *(f"Not as expected: {scene.name}" for scene in tour.scenes if not scene.ok),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
