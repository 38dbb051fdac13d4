"""Check 5: do the GPUs add up right, and as fast as on other nodes? NCCL's all_reduce_perf, within a node or, by srun,
between many.

Deep: it occupies GPUs and network. Bandwidth is compared with the fleet (checks/peers) and measured twice before it
counts; the original suite's minima exceed the hardware. What several nodes do together never accuses one of them. On
Kubernetes nccl_job says which Job does the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sickbay.checks.nccl_text import Run, parse
from sickbay.checks.peers import outlier
from sickbay.checks.signs import Ask, Check, Reading, Sign, quote, unusable
from sickbay.model import Status
from sickbay.ports import Completed, Host

LIMIT_S = 1_800.0  # of one run, as the original suite
OWN_LIMIT_S = 2 * LIMIT_S + 60
MEASURE = "busbw_gbs"
# On the PATH, in the image of the originals (where it is not on the PATH, 002.12 #16), and where people build it.
PLACES = (
    "all_reduce_perf", "/opt/nccl-tests/build/all_reduce_perf", "/usr/local/nccl-tests/build/all_reduce_perf",
    "/usr/local/bin/all_reduce_perf",
)  # fmt: skip
IN_IMAGE = PLACES[1]
ACROSS = ("NCCL_DEBUG=INFO", "FI_PROVIDER=efa", "FI_EFA_USE_DEVICE_RDMA=1")
WITHIN = ("NCCL_DEBUG=WARN",)


def collect(host: Host, ask: Ask) -> Reading:
    """One run, and a second where the first leaves a doubt."""
    gpus = ask.expected_gpus or (ask.profile.gpus if ask.profile else 0)
    if not gpus:
        return Reading(Completed(None, "", "how many GPUs the node has is not known"))
    if gpus * ask.nodes < 2:
        return Reading(Completed(0, "", ""), files={"gpus": str(gpus)})
    first = _run(host, ask, gpus)
    outputs = {"first": first}
    if not (first.missing or first.timed_out) and _doubtful(first, ask):
        outputs["again"] = _run(host, ask, gpus)
    return Reading(first, outputs=outputs, files={"gpus": str(gpus)})


def _run(host: Host, ask: Ask, gpus: int) -> Completed:
    limit = ask.number("nccl-timeout-s", LIMIT_S)
    if ask.nodes > 1:
        return host.run(across(ask, gpus), limit)
    done = Completed(None, "", "", missing=True)
    for place in (ask.options["NCCL_TESTS"],) if ask.options.get("NCCL_TESTS") else PLACES:
        done = host.run(("env", *WITHIN, place, *_sizes(ask), "-g", str(gpus)), limit)
        if not _absent(done):
            break
    return done


def _absent(done: Completed) -> bool:
    """`env` itself is there, so what it cannot start shows as 127 (or 126), as in a shell."""
    return done.missing or done.code in (126, 127)


def _sizes(ask: Ask) -> tuple[str, ...]:
    return ("-b", "8", "-e", ask.options.get("nccl-max-size", "1G"), "-f", "2")


def across(ask: Ask, gpus: int) -> tuple[str, ...]:
    """The command between nodes under Slurm. The test must be built with MPI=1, else each node tests itself."""
    image = enroot(ask.options.get("NCCL_CONTAINER", ""))
    place = ask.options.get("NCCL_TESTS") or (IN_IMAGE if image else PLACES[0])
    argv = ["srun", f"--nodes={ask.nodes}", "--ntasks-per-node=1", f"--mpi={ask.options.get('NCCL_MPI', 'pmix')}"]
    if job := ask.options.get("SLURM_JOB_ID"):
        argv.append(f"--jobid={job}")
    if listed := ask.options.get("SLURM_JOB_NODELIST"):
        argv.append(f"--nodelist={listed}")
    if image:
        argv.append(f"--container-image={image}")
    return (*argv, "env", *ACROSS, place, *_sizes(ask), "-g", str(gpus))


def enroot(image: str) -> str:
    """docker://registry/path:tag -> registry#path:tag, the only form in which enroot finds another registry's image."""
    name = image.removeprefix("docker://")
    registry, slash, path = name.partition("/")
    foreign = bool(slash) and ("." in registry or ":" in registry) and "#" not in name and bool(registry)
    return f"{registry}#{path}" if foreign else name


def _doubtful(done: Completed, ask: Ask) -> bool:
    run = parse(f"{done.stdout}\n{done.stderr}")
    return (
        done.code != 0
        or not run.finished
        or bool(run.wrong)
        or _slow(run.busbw(ask.limits["nccl-large-bytes"]), ask) != ""
    )


def _slow(busbw: float | None, ask: Ask) -> str:
    """Why it is slow, in words; "" if it is not, or there is nothing to compare it with."""
    if busbw is None:
        return ""
    others = ask.peers.get(MEASURE, ()) if ask.nodes == 1 else ()
    if len(others) >= ask.limits["peer-least"]:
        return outlier(busbw, others, mads=ask.limits["peer-mads"], at_least=int(ask.limits["peer-least"])) or ""
    least = ask.profile.nccl_local_min_gbs if ask.profile and ask.nodes == 1 else 0.0
    return f"{busbw:.4g} is below {least:g}, which fleets expect of this type" if busbw < least else ""


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    if "first" not in reading.outputs:
        return [_not_run(reading)]
    if (blind := _blind(reading.outputs["first"], ask)) is not None:
        return [blind]
    runs = [parse(f"{done.stdout}\n{done.stderr}") for done in reading.outputs.values()]
    if any(run.wrong for run in runs):
        return [_wrong(runs, ask)]
    last, ended = runs[-1], list(reading.outputs.values())[-1]
    if (blind := _blind(ended, ask)) is not None:
        return [blind]
    if not last.finished or ended.code != 0:
        return [_failed(ended, last, ask)]
    if ask.nodes > 1 and (apart := _apart(last, reading, ask)) is not None:
        return [apart]
    return [*_bandwidth(runs, ask), *_network(last, ask)]


def _not_run(reading: Reading) -> Sign:
    if reading.files.get("gpus"):
        return Sign("", "one GPU has nobody to exchange data with: nothing to test", status=Status.OK)
    said = "how many GPUs this node has is not known, so the all-reduce test was not started"
    return Sign("profile.unknown", said, status=Status.UNKNOWN)


def _blind(done: Completed, ask: Ask) -> Sign | None:
    name = "srun" if ask.nodes > 1 else "all_reduce_perf"
    return unusable(Completed(None, "", "", missing=True) if _absent(done) else done, name)


def _wrong(runs: Sequence[Run], ask: Ask) -> Sign:
    bad = max(runs, key=lambda run: run.wrong)
    where = f"between {ask.nodes} nodes" if ask.nodes > 1 else "within this node"
    times = "twice" if all(run.wrong for run in runs) and len(runs) > 1 else "once in two runs"
    said = f"an all-reduce {where} computed {bad.wrong} wrong values ({times}): data is being corrupted silently"
    if ask.nodes > 1:
        said += "; run it on each node alone to find which"
    worst = max(bad.rows, key=lambda row: row.wrong, default=None)
    shown = "" if worst is None else f"size {worst.size}: #wrong {worst.wrong}"
    return Sign("nccl.wrong", said, evidence=quote(shown, *bad.warnings[:2]), status=_shared(ask), count=bad.wrong)


def _shared(ask: Ask) -> Status | None:
    """What many nodes do together is nobody's in particular: watched here, and looked for on each alone."""
    return Status.DEGRADED if ask.nodes > 1 else None


def _failed(done: Completed, run: Run, ask: Ask) -> Sign:
    lines = [line for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
    proof = quote(run.cuda_error, run.system_error, *(run.warnings[-2:] or lines[-2:]))
    if run.cuda_error:
        return Sign(
            "nccl.cuda-error", "the all-reduce test ended with a GPU error, twice", evidence=proof, status=_shared(ask)
        )
    if run.system_error:
        said = "the all-reduce test ended with an error of the system or the network, twice"
        return Sign("nccl.system-error", said, evidence=proof)
    said = f"the all-reduce test ended before it had a result (exit code {done.code}), twice: its set-up, not the GPUs"
    return Sign("tool.failed", said, evidence=proof, status=Status.UNKNOWN)


def _apart(run: Run, reading: Reading, ask: Ask) -> Sign | None:
    """A test built without MPI runs once on every node and says nothing about what is between them."""
    gpus = int(reading.files.get("gpus") or 0)
    if not run.ranks or run.ranks >= ask.nodes * gpus:
        return None
    said = f"{run.ranks} ranks took part, {ask.nodes * gpus} were wanted: all_reduce_perf is not built with MPI=1"
    return Sign("tool.unreadable", said, status=Status.UNKNOWN)


def _bandwidth(runs: Sequence[Run], ask: Ask) -> Iterator[Sign]:
    """The best of the runs; slow only if each of two was."""
    figures = [figure for run in runs if (figure := run.busbw(ask.limits["nccl-large-bytes"])) is not None]
    if not figures:
        yield Sign("tool.unreadable", "no large message was sent, so bandwidth is not known", status=Status.UNKNOWN)
        return
    best = max(figures)
    traits = (
        {f"measure.{MEASURE}": f"{best:.2f}"}
        if ask.nodes == 1
        else {f"measure.{MEASURE}_{ask.nodes}_nodes": f"{best:.2f}"}
    )
    why = _slow(best, ask)
    if not why or len(figures) < 2:
        yield Sign("", f"all-reduce bus bandwidth {best:.1f} GB/s, every value right", status=Status.OK, traits=traits)
        return
    fleet = len(ask.peers.get(MEASURE, ())) >= ask.limits["peer-least"]
    code = "nccl.slow" if fleet else "nccl.below-minimum"
    proof = quote(*(f"run {n}: {figure:.2f} GB/s" for n, figure in enumerate(figures, 1)))
    yield Sign(code, f"all-reduce is slow here, twice: bus bandwidth in GB/s {why}", evidence=proof, traits=traits)


def _network(run: Run, ask: Ask) -> Iterator[Sign]:
    """Between nodes that have EFA, TCP is a mistake in the set-up, and an expensive one."""
    if ask.nodes < 2 or ask.profile is None or not ask.profile.efas or run.efa:
        return
    said = "NCCL used TCP sockets between the nodes, not EFA" if run.socket else "NCCL did not say that it used EFA"
    yield Sign("nccl.not-efa", said, evidence=quote(run.socket))


def keeps(reading: Reading) -> dict[str, str]:
    return {
        f"nccl-allreduce-{name}.txt": f"{done.stdout}\n{done.stderr}"[-1_000_000:]
        for name, done in reading.outputs.items()
    }


CHECK = Check(
    "nccl-allreduce", 5, collect, judge, deep=True, file="5-nccl-allreduce", own_limit_s=OWN_LIMIT_S, keeps=keeps
)
