"""What a run knows beforehand, as an Ask: from the settings, the environment of a job, and other nodes' results.

Called by `cli/check`. The names of the options are those the checks look up; a name nobody looks up does no harm.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sickbay import atomic
from sickbay.catalog import Profile
from sickbay.catalog.thresholds import thresholds
from sickbay.checks.signs import Ask
from sickbay.settings import AgentSettings

FROM_JOB = ("NCCL_CONTAINER", "NCCL_TESTS", "NCCL_MPI", "NCCL_ISOLATION_TESTS", "SLURM_JOB_ID", "SLURM_JOB_NODELIST")
NODES = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "HEALTHCHECK_NUM_NODES")  # in this order, as the original (002.8)
MOST_FILES = 20_000
MOST_BYTES = 4 * 1024 * 1024
MOST_PEERS = 10_000  # values of one measure


def ask_for(
    agent: AgentSettings, environ: Mapping[str, str], *, suite: str, at: float, profile: Profile | None = None,
    exclusive: bool = False, peers: Mapping[str, tuple[float, ...]] | None = None,
) -> Ask:  # fmt: skip
    limits = {**thresholds(), "max-retired-pages-sbe": float(agent.max_retired_pages_sbe)}
    nodes = 1 if suite == "quarantine" else nodes_of(environ)
    return Ask(
        profile=profile, at=at, suite=suite, limits=limits, nodes=nodes, peers=peers or {},
        options=options(agent, environ, exclusive),
    )  # fmt: skip


def options(agent: AgentSettings, environ: Mapping[str, str], exclusive: bool) -> dict[str, str]:
    given = {
        "shared-paths": ",".join(agent.shared_paths),
        "dcgm-timeout-s": f"{agent.dcgm_timeout_s:g}",
        "dcgm-l4-timeout-s": f"{agent.dcgm_l4_timeout_s:g}",
        "nccl-timeout-s": f"{agent.nccl_timeout_s:g}",
        "efa-timeout-s": f"{agent.efa_timeout_s:g}",
        "exclusive": "yes" if exclusive else "",
        **{name: environ.get(name, "") for name in FROM_JOB},
    }
    return {name: value for name, value in given.items() if value}


def nodes_of(environ: Mapping[str, str]) -> int:
    """How many nodes the job has, as far as anybody says."""
    for name in NODES:
        text = environ.get(name, "").strip()
        if text.isascii() and text.isdecimal() and 0 < int(text[:9]) < 1_000_000:
            return int(text[:9])
    return 1


# --- other nodes ------------------------------------------------------------------------------------------------------


def peers_in(folder: Path, hostname: str) -> dict[str, tuple[float, ...]]:
    """measure -> what other nodes reached, from their check-*.json anywhere below `folder`. Garbage is passed over."""
    found: dict[str, list[float]] = {}
    for path in _result_files(folder):
        document = _read(path)
        if document is None or document.get("hostname") == hostname:
            continue
        for name, value in _measures(document):
            found.setdefault(name, []).append(value)
    return {name: tuple(values[:MOST_PEERS]) for name, values in found.items()}


def _result_files(folder: Path) -> Iterator[Path]:
    for seen, path in enumerate(folder.rglob("check-*.json")):
        if seen >= MOST_FILES:
            return
        yield path


def _read(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(atomic.read(path, MOST_BYTES) or b"")
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _measures(document: dict[str, Any]) -> Iterator[tuple[str, float]]:
    table = document.get("measures")
    for name, value in table.items() if isinstance(table, dict) else ():
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18:
            yield str(name)[:128], float(value)
