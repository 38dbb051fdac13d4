"""The taint `unhealthy=true:NoSchedule` of standalone mode: put when the node fails, lifted when it is well again.

Only what this agent put is lifted: a sweep's, a quarantine's or a person's taint of the same name stays, and that is
said (originals 002.12 #5). Whose it is stands in the state folder, because an agent's restart must not make it a
stranger's. Called by agent/publishers/kubernetes.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from sickbay import atomic
from sickbay.kube import taints
from sickbay.kube.api import Api
from sickbay.kube.objects import NodeObject, Taint

FILE = "taint.json"


class OwnTaint:
    def __init__(self, api: Api, node: str, key: str, folder: Path) -> None:
        self._api, self._name, self.key, self._file = api, node, key, folder / FILE

    def is_on(self, node: NodeObject) -> bool:
        return taints.find_taint(node, self.key) >= 0

    @property
    def command(self) -> str:
        """How a person lifts it."""
        return f"kubectl taint nodes {self._name} {self.key}-"

    def put(self, node: NodeObject) -> NodeObject:
        """Written down before it is done: one that is ours and not known to be would stay for ever."""
        if self.is_on(node):
            return node
        atomic.write(self._file, msgspec.json.encode({"node": self._name, "key": self.key}))
        return taints.put_taint(self._api, node, Taint(self.key, "NoSchedule", "true"))

    def lift(self, node: NodeObject) -> tuple[NodeObject, str]:
        """The node as it is then, and why the taint is still on it ("" if it is not)."""
        if self.is_on(node) and not self._file.exists():
            return node, (
                f"the checks pass, but the taint {self.key} was not put by this agent (a sweep, a quarantine or a "
                f"person did), so it stays. To lift it: {self.command}"
            )
        node = taints.lift_taint(self._api, node, self.key)
        self._file.unlink(missing_ok=True)
        return node, ""
