"""What must be so before a DCGM diagnostic may run: an engine that answers, and for level 4 GPUs that nobody uses.

`dcgm_diag` calls it. What it finds in the way is "could not run", never a fault of a GPU (the originals fail the node).
It stops only services that it starts again in every ending, kills nothing, and never touches the fabric manager.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sickbay.checks.dcgm_errors import engine_dead
from sickbay.checks.signs import Ask, Sign, quote
from sickbay.model import Status
from sickbay.ports import Completed, Host

QUICK_S = 30.0
START_S = 60.0
TRIES = 5  # looks, a second apart, for an engine that was just started
EXPORTERS = ("dcgm-exporter.service", "nvidia-dcgm-exporter.service")  # both names are in use (originals 002.7)
APPS = ("nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader")
MIG = ("nvidia-smi", "--query-gpu=index,mig.mode.current", "--format=csv,noheader")
_NO_MIG = frozenset({"disabled", "n/a", "not supported"})


def exclusive(ask: Ask) -> bool:
    """Has the caller the node for itself? Only then may an engine be started that was not running."""
    return ask.suite == "quarantine" or ask.options.get("exclusive", "").lower() in ("1", "yes", "true")


def seconds(ask: Ask, option: str, otherwise: float) -> float:
    try:
        return max(1.0, float(ask.options.get(option, otherwise)))
    except ValueError:
        return otherwise


# -- the engine -------------------------------------------------------------------------------------------------------


def engine(host: Host, *, may_start: bool) -> dict[str, Completed]:
    """Does it answer? What was asked and done, in order; the last entry is the newest answer."""
    asked = {"discovery": _discovery(host)}
    if may_start and dead(asked["discovery"]):
        asked["start"] = _start(host)
        asked["discovery again"] = _discovery(host)
        for _ in range(TRIES):
            if not dead(asked["discovery again"]):
                break
            host.run(("sleep", "1"), 5.0)
            asked["discovery again"] = _discovery(host)
    return asked


def _discovery(host: Host) -> Completed:
    return host.run(("dcgmi", "discovery", "-l"), QUICK_S)


def _start(host: Host) -> Completed:
    """By its service where there is one, otherwise by itself, as the originals do (002.4)."""
    done = host.run(("systemctl", "start", "nvidia-dcgm.service"), START_S)
    return done if done.code == 0 else host.run(("nv-hostengine",), START_S)


def dead(done: Completed) -> bool:
    return bool(done.code) and engine_dead(done.code, f"{done.stdout}\n{done.stderr}")


def silent(done: Completed) -> bool:
    """Dead, or it hangs: a diagnostic could only wait."""
    return done.timed_out or dead(done)


# -- level 4 ----------------------------------------------------------------------------------------------------------


def look(host: Host) -> dict[str, Completed]:
    return {"compute-apps": host.run(APPS, QUICK_S), "mig": host.run(MIG, QUICK_S)}


def refusal(outputs: Mapping[str, Completed]) -> Sign | None:
    """Why the diagnostic was not run; None if nothing stood in the way (or nobody looked). Pure."""
    apps, mig = outputs.get("compute-apps"), outputs.get("mig")
    if apps is None or mig is None:
        return None
    if unreadable := next((done for done in (apps, mig) if done.code != 0), None):
        said = "level 4 was not run: nvidia-smi does not say whether the GPUs are free"
        return _refused("dcgm.not-run", said, f"{unreadable.stdout}\n{unreadable.stderr}")
    if running := [line for line in apps.stdout.splitlines() if line.split(",")[0].strip().isdecimal()]:
        said = f"level 4 was not run: {len(running)} process(es) use the GPUs"
        return _refused("dcgm.gpus-in-use", said, apps.stdout)
    modes = [_mode(line) for line in mig.stdout.splitlines() if line.split(",")[0].strip().isdecimal()]
    if not modes or any(mode not in _NO_MIG for mode in modes):
        said = (
            "level 4 was not run: MIG is on" if "enabled" in modes else "level 4 was not run: MIG's state is unreadable"
        )
        return _refused("dcgm.mig-on" if "enabled" in modes else "dcgm.not-run", said, mig.stdout)
    return None


def _mode(line: str) -> str:
    return line.rpartition(",")[2].strip().strip("[]").strip().lower()


def _refused(code: str, said: str, shown: str) -> Sign:
    return Sign(code, said, evidence=quote(*shown[:4_000].splitlines(), most=3), status=Status.UNKNOWN)


@contextmanager
def exporters_stopped(host: Host) -> Iterator[dict[str, Completed]]:
    """The exporters' services, stopped meanwhile: they hold the counters that the tests need. Restored in every ending.

    An exporter that is no service of this host (a container's) is left alone: what we cannot restore we do not stop.
    """
    done: dict[str, Completed] = {}
    stopped: list[str] = []
    try:
        for service in EXPORTERS:
            if host.run(("systemctl", "is-active", "--quiet", service), QUICK_S).code == 0:
                stopped.append(service)  # before the stop: one that we gave up waiting for may still have happened
                done[f"stop {service}"] = host.run(("systemctl", "stop", service), START_S)
        yield done
    finally:
        for service in stopped:
            done[f"start {service}"] = host.run(("systemctl", "start", service), START_S)


def left_behind(outputs: Mapping[str, Completed]) -> list[Sign]:
    """Services that we stopped and that did not start again: somebody must know."""
    return [
        Sign(
            "dcgm.exporter-not-restored",
            f"{name.removeprefix('start ')} was stopped for the test and did not start again; start it by hand",
            evidence=quote(done.stderr[:400], done.stdout[:400]),
        )
        for name, done in outputs.items()
        if name.startswith("start ") and done.code != 0
    ]
