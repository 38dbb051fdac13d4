"""`sickbay sim`: simulated fleets with the real brain in them. run, compare, check, mutants, partitions.

Composition of worlds, brains and policies; the counting is sim/report.py's. Needs no cluster and touches none.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sickbay.sim.arms import originals, ours, settings_of
from sickbay.sim.report import Report
from sickbay.sim.workload import Scene

if TYPE_CHECKING:
    from sickbay.sim.compare import Trial

app = typer.Typer(no_args_is_help=True, help="Simulated fleets: run, compare, check, mutants, partitions.")

SeedOption = Annotated[int, typer.Option("--seed", help="Same seed, same run, byte for byte.")]
NodesOption = Annotated[int, typer.Option("--nodes", help="Nodes of 8 GPUs.")]
DaysOption = Annotated[float, typer.Option("--days", help="Simulated days.")]
PolicyOption = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", help="A settings file; else every verb is allowed.")
]
PresetOption = Annotated[str, typer.Option("--preset", help="Fault rates: llama3, rsc1, rsc2 or noisy.")]
JobsOption = Annotated[str, typer.Option("--jobs", help="Mix of jobs: one, mix, small or none.")]
ScaleOption = Annotated[float, typer.Option("--scale", help="Times the preset's fault rate.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object.")]


@app.command()
def partitions(
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Nodes of 8 GPUs.")] = 64,
    place: Annotated[
        str, typer.Option("--place", help="What is cut off: a share of the fleet anywhere, one rack or one pool of it.")
    ] = "share",
    witness: Annotated[
        bool, typer.Option("--witness", help="The provider says of a machine that does not answer whether it runs.")
    ] = False,
    kind: Annotated[str, typer.Option("--kind", help="Only these: control, data, both, power, with commas.")] = "",
    share: Annotated[str, typer.Option("--share", help="Only these shares, in percent, with commas.")] = "",
    length: Annotated[str, typer.Option("--length", help="Only these lengths, in minutes, with commas.")] = "",
) -> None:
    """Cut a healthy fleet's nodes off in every way, for every length: what was done to them, judged.

    Ends with 1 if anything is beyond the bar, and says what.
    """
    from sickbay.sim import partitions as cuts

    raise typer.Exit(cuts.table(cuts.chosen(nodes, kind, share, length, place, witness=witness)))


@app.command()
def run(
    seed: SeedOption = 0,
    nodes: NodesOption = 256,
    days: DaysOption = 7.0,
    policy: PolicyOption = None,
    preset: PresetOption = "llama3",
    jobs: JobsOption = "one",
    scale: ScaleOption = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Run a fleet for some virtual days under the real brain, and say what it cost."""
    result = ours(Scene(seed, nodes, days, preset, jobs, scale), settings_of(policy))
    print(json.dumps(result.as_dict(), indent=2) if as_json else "\n".join(rows(result)))


@app.command()
def compare(
    seed: SeedOption = 0,
    nodes: NodesOption = 256,
    days: DaysOption = 7.0,
    policy: PolicyOption = None,
    preset: PresetOption = "llama3",
    jobs: JobsOption = "one",
    scale: ScaleOption = 1.0,
    as_json: JsonOption = False,
    seeds: Annotated[
        int,
        typer.Option("--seeds", min=0, help="Many seeds instead of one: the table of all presets and mixes, judged."),
    ] = 0,
    first: Annotated[int, typer.Option("--first", help="With --seeds: the first seed.")] = 0,
    presets: Annotated[str, typer.Option("--presets", help="With --seeds: only these, with commas.")] = "",
    mixes: Annotated[str, typer.Option("--mixes", help="With --seeds: only these mixes of jobs, with commas.")] = "",
    processes: Annotated[int, typer.Option("--processes", min=1, help="With --seeds: how many side by side.")] = 2,
) -> None:
    """The same seed under our policy and under the originals': what each cost, side by side.

    With --seeds N: useful GPU-hours against the originals and against nobody, for each preset and mix of jobs, paired
    by seed. Ends with 1 if the bar does not hold.
    """
    if seeds:
        raise typer.Exit(_compare_cells(first, seeds, presets, mixes, processes, policy, as_json))
    scene, settings = Scene(seed, nodes, days, preset, jobs, scale), settings_of(policy)
    both = ours(scene, settings), originals(scene)
    if as_json:
        print(json.dumps({r.policy: r.as_dict() for r in both}, indent=2))
    else:
        print("\n".join(side_by_side(*both)))


def _compare_cells(
    first: int, seeds: int, presets: str, mixes: str, processes: int, policy: Path | None, as_json: bool
) -> int:
    from sickbay.sim import compare as cells

    chosen = cells.cells(presets.split(",") if presets else cells.PRESETS, mixes.split(",") if mixes else cells.MIXES)
    found = cells.compare(chosen, first, seeds, processes, settings_of(policy), _tell_trial)
    print(cells.as_json(found) if as_json else "\n".join(cells.rows(found)))
    return 0 if found.holds else 1


def _tell_trial(trial: Trial) -> None:
    got = ", ".join(f"{who} {hours:,.0f}" for who, hours in trial.useful.items())
    where = f"{trial.cell.preset} {trial.cell.jobs} seed {trial.seed}"
    print(
        f"{where}: {trial.faults} faults, useful GPU-hours: {got} ({trial.seconds:.0f} s)", file=sys.stderr, flush=True
    )


@app.command()
def check(
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many.")] = 300,
    first: Annotated[int, typer.Option("--first", min=0, help="The first seed.")] = 0,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes side by side.")] = 2,
    weather: Annotated[
        str, typer.Option("--weather", help="What befalls the fleet beside faults: borne, all, none, or a,b,c.")
    ] = "borne",
    soak: Annotated[
        bool, typer.Option("--soak", help="Draw the very long settings too; a seed may take long.")
    ] = False,
    all_checkers: Annotated[
        bool, typer.Option("--all-checkers", help="Count what is said about holes that are known and still open.")
    ] = False,
) -> None:
    """Seeded runs with misbehaving doors, clocks and leaders, judged by the world's truth."""
    from sickbay.sim.check import check_seeds

    raise typer.Exit(check_seeds(first, seeds, jobs, weather, soak=soak, all_checkers=all_checkers))


@app.command()
def mutants(
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Seeds for each mutant.")] = 64,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes side by side.")] = 2,
    named: Annotated[str, typer.Option("--only", help="Those whose name or whose own checker holds this word.")] = "",
    remember: Annotated[
        bool, typer.Option("--remember", help="Note what killed each, so that the next run looks there first.")
    ] = False,
) -> None:
    """Break the brain and the doors on purpose, one rule at a time: every mutant must be caught."""
    from sickbay.sim.mutants import run_mutants

    raise typer.Exit(run_mutants(seeds, jobs, named, keep=remember))


# --- words ------------------------------------------------------------------------------------------------------------


def rows(r: Report) -> list[str]:
    """A run for people."""
    lines = [f"{r.nodes:,} nodes, {r.days:g} days, seed {r.seed}: {r.faults} faults struck", ""]
    lines += [f"  {name:<34}{value}" for name, value in [*_figures(r).items(), *_case_figures(r).items()]]
    speed = f"{r.node_days_per_s:,.0f} node-days a second ({r.seconds:.1f} s"
    lines += ["", f"  {speed}{f', {r.turns:,} turns' if r.turns is not None else ''})", f"  trace {r.digest}"]
    return lines


def _figures(r: Report) -> dict[str, str]:
    treated = ", ".join(f"{verb} {count}" for verb, count in sorted(r.treatments.items())) or "none"
    return {
        "ETTR": "not measured" if r.ettr is None else f"{r.ettr:.2%}",
        "useful GPU-hours": f"{r.useful_gpu_hours:,.0f}",
        "GPU-hours lost by jobs": f"{r.gpu_hours_lost:,.0f}",
        "GPU-hours of nodes out of service": f"{r.gpu_hours_out:,.0f}",
        "interruptions of jobs": f"{r.interruptions:,} (and {r.user_code_attempts} user-code attempts excluded)",
        "steps computed twice": f"{r.lost_steps:,}",
        "restarts from corrupt checkpoints": f"{r.corrupt_restarts}",
        "nodes taken out of service": f"{r.disruptions}",
        "  of those with nothing wrong": f"{r.wrong_disruptions}",
        "treatments": treated,
        "returned while still sick": f"{r.returned_sick}",
        "a person called to a job": f"{r.people_called}",
        "nodes exchanged by hand": f"{r.exchanged_by_hand}",
        "jobs resubmitted by their owner": f"{r.resubmitted}",
    }


def _case_figures(r: Report) -> dict[str, str]:
    if r.cases is None or r.mttr is None or r.relapse is None:
        return {}
    parts = ", ".join(f"{part} {_span(s)}" for part, s in r.mttr.parts_s.items())
    more = f"; {r.mttr.censored} censored, at least {_span(r.mttr.censored_at_least_s)}" if r.mttr.censored else ""
    rate, back = r.false_disruption_rate, r.relapse
    return {
        "cases by ending": ", ".join(f"{end} {count}" for end, count in r.cases.items()) or "none",
        "MTTR": f"{_span(r.mttr.mean_s)} over {r.mttr.cases} cases ({parts}){more}" if r.mttr.cases else f"none{more}",
        "relapse within 7 days": f"{back.relapsed} of {back.resolved} resolved ({back.censored} too young to tell)",
        "false-disruption rate": "not measured" if rate is None else f"{rate:.1%}",
    }


def _span(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6_000 else f"{seconds / 3600:.1f} h"


def side_by_side(a: Report, b: Report) -> list[str]:
    """Two runs in two columns, and whatever the second one did better, said aloud."""
    left, right = _figures(a), _figures(b)
    lines = [f"{a.nodes:,} nodes, {a.days:g} days, seed {a.seed}", "", f"  {'':<34}{a.policy:<46}{b.policy}"]
    lines += [f"  {name:<34}{left[name]:<46}{right[name]}" for name in left]
    better = [words for words, wins in _where_second_wins(a, b) if wins]
    return [*lines, "", f"{b.policy} did better in: {', '.join(better) or 'nothing that is counted here'}."]


def _where_second_wins(a: Report, b: Report) -> list[tuple[str, bool]]:
    less: list[tuple[str, Any, Any]] = [
        ("GPU-hours lost by jobs", a.gpu_hours_lost, b.gpu_hours_lost),
        ("GPU-hours out of service", a.gpu_hours_out, b.gpu_hours_out),
        ("interruptions", a.interruptions, b.interruptions),
        ("steps computed twice", a.lost_steps, b.lost_steps),
        ("restarts from corrupt checkpoints", a.corrupt_restarts, b.corrupt_restarts),
        ("nodes taken out", a.disruptions, b.disruptions),
        ("wrong disruptions", a.wrong_disruptions, b.wrong_disruptions),
        ("returned while sick", a.returned_sick, b.returned_sick),
        ("calls to people", a.people_called, b.people_called),
        ("nodes exchanged by hand", a.exchanged_by_hand, b.exchanged_by_hand),
        ("jobs resubmitted", a.resubmitted, b.resubmitted),
    ]
    return [("ETTR", (b.ettr or 0.0) > (a.ettr or 0.0)), *((name, theirs < our) for name, our, theirs in less)]
