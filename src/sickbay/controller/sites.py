"""Where the nodes live, put together from the settings: platform, clock, store, leader, notifiers. One table each.

Called by controller/app.py and by the command line (`open_store`). Composition only: what is heavy is imported by the
function that needs it, and what is not installed is said in a sentence.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sickbay.controller import presence
from sickbay.controller.leader import FileLeader
from sickbay.core.plan import level
from sickbay.errors import UserError
from sickbay.evidence.keeping import MB, limits_of
from sickbay.kube.api import Api
from sickbay.model import Notice, Verb
from sickbay.ports import Clock, EvidenceStore, Leader, Notifier, Platform, Store
from sickbay.settings import Settings

if TYPE_CHECKING:
    from sickbay.platforms.kubernetes.platform import KubernetesPlatform


@dataclass(frozen=True, slots=True)
class Trial:
    """The fleet of platform "simulated": for trying, and for tests of this process."""

    nodes: int = 64
    seed: int = 0
    speed: float = 1.0  # virtual seconds a second
    preset: str = "noisy"
    scale: float = 20.0  # at 1x a fault every few minutes, or nobody would see anything
    jobs: str = "mix"


@dataclass(frozen=True, slots=True)
class Rivalry:
    """Who else repairs nodes here: in these pools we only watch, and people are told."""

    pools: frozenset[str] = frozenset()
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class Site:
    """The door, the clock that fits it, what else the place offers, and how to leave."""

    platform: Platform
    clock: Clock
    speed: float = 1.0
    close: Callable[[], None] = lambda: None
    rivals: Callable[[], Rivalry] = Rivalry  # ApiError when it cannot be seen: that is not "nobody"
    api: Api | None = None  # of a cluster, for Events
    instance: Callable[[str], str] = lambda node: ""  # the machine of a node, for receivers of the originals' payload
    watch_age: Callable[[], float] | None = None  # seconds since the platform's watch last heard anything
    evidence: EvidenceStore | None = None  # where archives of sick nodes are kept


class RealClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class NamedLeader(Leader, Protocol):
    def holder(self) -> str:
        """Who leads, for the log of one that stands by; "" if nobody knows."""


def data_dir(settings: Settings) -> Path:
    return Path(settings.data_dir).expanduser()


# --- platforms --------------------------------------------------------------------------------------------------------


def _simulated(settings: Settings, trial: Trial) -> Site:
    from sickbay.platforms.simulated.paced import PacedClock, PacedFleet
    from sickbay.sim.workload import Scene, build

    scene = Scene(trial.seed, trial.nodes, preset=trial.preset, scale=trial.scale, jobs=trial.jobs)
    if not 0 < trial.speed <= 10_000:
        raise UserError(f"a speed of {trial.speed:g}: more than 0 and at most 10,000")
    world, _ = build(scene, start=time.time())
    clock = PacedClock(trial.speed)
    evidence = open_evidence(settings)
    fleet = PacedFleet(world, clock, evidence)
    return Site(fleet, clock, trial.speed, fleet.close, evidence=evidence)


def _kubernetes(settings: Settings, trial: Trial) -> Site:
    from sickbay.kube.api import open_api
    from sickbay.platforms.kubernetes.platform import KubernetesPlatform
    from sickbay.platforms.kubernetes.site import site_of

    clock, kube = RealClock(), settings.kubernetes
    api = open_api(kube.kubeconfig, kube.context)
    evidence, most = open_evidence(settings), int(settings.evidence.archive_mb * MB)
    place = site_of(api, kube, clock, settings.cluster, helps_jobs=settings.jobs.enabled, evidence=evidence,
                    archive_bytes=most)  # fmt: skip
    platform = KubernetesPlatform(place, partial(opens_gates, settings))
    return Site(platform, clock, close=platform.close, rivals=lambda: _rivals(platform), api=api,
                instance=platform.eyes.instance, watch_age=platform.eyes.age_s, evidence=evidence)  # fmt: skip


def opens_gates(settings: Settings, pool: str) -> bool:
    """May a newcomer's case take its node out? Where it may not, it could never be examined and returned."""
    return Verb.CORDON in level(settings.policy_for(pool)) & settings.ceilings.get("monitor", frozenset())


def _rivals(platform: KubernetesPlatform) -> Rivalry:
    from sickbay.platforms.kubernetes import rivals

    found = rivals.rivals(platform.site)
    platform.rival_pools = rivals.observed_pools(found)
    return Rivalry(platform.rival_pools, tuple(rivals.notices(found, platform.site.clock.now())))


# settings.platform -> its composition. A further platform is one function and one line here.
PLATFORMS: Mapping[str, Callable[[Settings, Trial], Site]] = {
    "simulated": _simulated,
    "kubernetes": _kubernetes,
}


def open_site(settings: Settings, trial: Trial) -> Site:
    if settings.platform not in PLATFORMS:
        raise UserError(f"platform = {settings.platform!r}: there is no such platform; known: {', '.join(PLATFORMS)}")
    return PLATFORMS[settings.platform](settings, trial)


# --- stores -----------------------------------------------------------------------------------------------------------


def _sqlite(settings: Settings) -> Store:
    from sickbay.stores.sqlite import SqliteStore

    file = settings.sqlite
    path = data_dir(settings) / "sickbay.db"
    return SqliteStore(path, settings.cluster, synchronous=file.synchronous, busy_s=file.busy_s)


def _memory(settings: Settings) -> Store:
    from sickbay.stores.memory import MemoryStore

    return MemoryStore(settings.cluster)


def _custom_resources(settings: Settings) -> Store:
    from sickbay.kube.api import open_api
    from sickbay.stores.kubernetes import KubernetesStore

    kube = settings.kubernetes
    return KubernetesStore(open_api(kube.kubeconfig, kube.context), kube.namespace, settings.cluster, owns_api=True)


STORES: Mapping[str, Callable[[Settings], Store]] = {
    "sqlite": _sqlite,
    "kubernetes": _custom_resources,
    "memory": _memory,
}


def open_store(settings: Settings) -> Store:
    if settings.store not in STORES:
        raise UserError(f"store = {settings.store!r}: there is no such store; known: {', '.join(STORES)}")
    return STORES[settings.store](settings)


# --- evidence ---------------------------------------------------------------------------------------------------------


def _folder(settings: Settings) -> EvidenceStore:
    from sickbay.evidence.folder import FolderEvidence

    named = settings.evidence.folder
    folder = Path(named).expanduser() if named else data_dir(settings) / "evidence"
    return FolderEvidence(folder, limits_of(settings.evidence))


def _s3(settings: Settings) -> EvidenceStore:
    from sickbay.evidence.s3 import S3Evidence, client_of

    where = settings.evidence
    if not where.bucket:
        raise UserError("evidence.store is s3, and evidence.bucket names no bucket")
    return S3Evidence(client_of(where), where.bucket, where.prefix, limits_of(where))


EVIDENCE: Mapping[str, Callable[[Settings], EvidenceStore | None]] = {
    "folder": _folder,
    "s3": _s3,
    "none": lambda settings: None,
}


def open_evidence(settings: Settings) -> EvidenceStore | None:
    """None: what is collected stays on the nodes."""
    return EVIDENCE[settings.evidence.store](settings)


# --- one brain at a time ----------------------------------------------------------------------------------------------


def open_leader(settings: Settings) -> NamedLeader:
    """Where the records are, there the lead is decided: two brains on one store must see one lock."""
    if settings.store != "kubernetes":
        return FileLeader(data_dir(settings) / presence.LOCK)
    from sickbay.kube.api import open_api
    from sickbay.kube.lease import LeaseLeader

    kube = settings.kubernetes
    identity = f"{os.environ.get('HOSTNAME') or socket.gethostname()}-{os.getpid()}"
    api = open_api(kube.kubeconfig, kube.context)
    return LeaseLeader(api, kube.namespace, presence.lease_name(settings.cluster), identity, kube.lease_s)


# --- telling people ---------------------------------------------------------------------------------------------------


def open_notifiers(settings: Settings, site: Site) -> list[Notifier]:
    from sickbay.notifiers import notifiers_of

    return notifiers_of(settings, api=site.api, instance=site.instance)
