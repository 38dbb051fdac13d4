"""The publishers that `agent.publishers` names, ready to be given a lane each. Called once by agent/process.

It must never import what was not asked for: an agent lives on every node, and a client nobody uses is memory.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sickbay.agent.publishers import Publisher
from sickbay.agent.publishers.emf import EmfPublisher
from sickbay.agent.publishers.http import HttpPublisher
from sickbay.agent.publishers.spool import Spool
from sickbay.agent.publishers.stdout import StdoutPublisher
from sickbay.agent.publishers.textfile import TextfilePublisher
from sickbay.agent.reload import Config

if TYPE_CHECKING:
    from sickbay.kube.objects import NodeObject

OnNode = Callable[["NodeObject"], None]


def publishers_of(config: Config, node: str, folder: Path, on_node: OnNode) -> list[Publisher]:
    settings = config.settings.agent
    made: dict[str, Callable[[], Publisher]] = {
        "stdout": StdoutPublisher,
        "http": lambda: HttpPublisher(
            settings.ingest_url, Spool(folder / "spool", settings.spool_mb << 20), token_file=settings.token_file,
            ca_file=settings.ca_file,
        ),
        "textfile": lambda: TextfilePublisher(settings.textfile_dir),
        "emf": lambda: EmfPublisher(node),
        "kubernetes": lambda: _kubernetes(config, node, folder, on_node),
    }  # fmt: skip
    return [made[name]() for name in settings.publishers]


def _kubernetes(config: Config, node: str, folder: Path, on_node: OnNode) -> Publisher:
    """Mode, label, taint and condition_owner are looked up each time they are needed: people edit them while we run."""
    from sickbay.agent.publishers.kubernetes import KubernetesPublisher, Where
    from sickbay.kube.access import find_access
    from sickbay.kube.api import Api
    from sickbay.kube.names import keys

    settings = config.settings.kubernetes
    api = Api(find_access(settings.kubeconfig, settings.context), name="sickbay-agent")
    where = Where(api, node, keys(settings.prefix), folder)
    return KubernetesPublisher(where, lambda: config.settings.agent, on_node=on_node)
