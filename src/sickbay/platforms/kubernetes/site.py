"""What every verb of this platform is given: the API, the settings, our keys and a clock.

Made once by the composition (controller/app, cli). A verb is a function `(site, action) -> Outcome` in the file of its
noun; platform.py has the table. Nothing is remembered between two calls: what happened is read from the API server.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sickbay.kube.api import Api
from sickbay.kube.names import Keys, keys
from sickbay.model import Retry
from sickbay.ports import Clock, EvidenceStore
from sickbay.settings import KubernetesSettings


@dataclass(frozen=True, slots=True)
class Site:
    api: Api
    settings: KubernetesSettings
    clock: Clock
    cluster: str = "default"
    keys: Keys = field(default_factory=keys)
    helps_jobs: bool = True  # settings.jobs.enabled: without it nobody resumes a gang, so nobody may stop one
    evidence: EvidenceStore | None = None  # where COLLECT keeps its archives; None: they stay on the nodes
    archive_bytes: int = 6 << 20  # of one archive

    def server_now(self) -> float:
        """The API server's time, with which its timestamps are compared; never with ours."""
        return self.clock.now() + self.api.ahead_s


AWAITED_S = 10.0


def awaited(node: str) -> Retry:
    """Its object is not there. That is no failure of what is asked: it is registered again within moments, by its
    kubelet or by a person, or its machine is gone, and then its case ends for that reason."""
    return Retry(AWAITED_S, f"there is no node {node}: it is waited for, until it is back or its machine is gone")


def site_of(
    api: Api, settings: KubernetesSettings, clock: Clock, cluster: str = "default", *, helps_jobs: bool = True,
    evidence: EvidenceStore | None = None, archive_bytes: int = 6 << 20,
) -> Site:  # fmt: skip
    return Site(api, settings, clock, cluster, keys(settings.prefix), helps_jobs, evidence, archive_bytes)
