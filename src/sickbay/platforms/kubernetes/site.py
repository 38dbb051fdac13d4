"""What every verb of this platform is given: the API, the settings, our keys and a clock.

Made once by the composition (controller/app, cli). A verb is a function `(site, action) -> Outcome` in the file of its
noun; platform.py has the table. Nothing is remembered between two calls: what happened is read from the API server.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sickbay.kube.api import Api
from sickbay.kube.names import Keys, keys
from sickbay.ports import Clock
from sickbay.settings import KubernetesSettings


@dataclass(frozen=True, slots=True)
class Site:
    api: Api
    settings: KubernetesSettings
    clock: Clock
    cluster: str = "default"
    keys: Keys = field(default_factory=keys)
    helps_jobs: bool = True  # settings.jobs.enabled: without it nobody resumes a gang, so nobody may stop one

    def server_now(self) -> float:
        """The API server's time, with which its timestamps are compared; never with ours."""
        return self.clock.now() + self.api.ahead_s


def site_of(
    api: Api, settings: KubernetesSettings, clock: Clock, cluster: str = "default", *, helps_jobs: bool = True
) -> Site:
    return Site(api, settings, clock, cluster, keys(settings.prefix), helps_jobs)
