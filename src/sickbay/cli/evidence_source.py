"""Where `sickbay evidence` finds what was collected: beside the store's file, where the settings say, or with a
controller in a cluster, through the API server.

It must never take a place from a case: a record says which archive, the person's own settings say where archives are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sickbay.cli.sitting import CLUSTER, settings_for
from sickbay.controller.evidence_room import page_of
from sickbay.errors import ApiError, EvidenceError
from sickbay.evidence.folder import FolderEvidence
from sickbay.evidence.keeping import checked
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import PodObject
from sickbay.model import Archive
from sickbay.ports import EvidenceStore
from sickbay.settings import Settings

OURS = "app.kubernetes.io/name=sickbay,app.kubernetes.io/component=controller"
MOST = 64 << 20  # bytes of an archive, whatever a record says


def source(store: str, config: str) -> EvidenceStore | None:
    """For the store that a person means (--store, --config)."""
    from sickbay.controller.sites import open_evidence

    if store and store != CLUSTER:
        return FolderEvidence(Path(store).expanduser().parent / "evidence")
    settings = settings_for(config, store)
    if settings.store == CLUSTER and settings.evidence.store == "folder" and not settings.evidence.folder:
        return ControllersEvidence(settings)
    return open_evidence(settings)


class ControllersEvidence:
    """ports.EvidenceStore, to be read only: the volume of a controller that runs in a cluster."""

    trouble = ""

    def __init__(self, settings: Settings, opened: Callable[[Settings], Api] | None = None) -> None:
        self._settings, self._opened = settings, opened or _api

    def put(self, name: str, data: bytes) -> Archive:
        raise EvidenceError("only the controller keeps archives")

    def prune(self) -> int:
        return 0

    def get(self, archive: Archive) -> bytes:
        """From whichever controller has it."""
        api, space = self._opened(self._settings), self._settings.kubernetes.namespace
        try:
            return checked(archive, self._found(api, space, archive))
        except ApiError as error:
            raise EvidenceError(f"the controllers in namespace {space} are not shown: {error}") from error
        finally:
            api.close()

    def _found(self, api: Api, space: str, archive: Archive) -> bytes:
        said = []
        for pod in api.list(names.pods(space), PodObject, labelSelector=OURS):
            try:
                page = f"{names.pod(space, pod.metadata.name)}/proxy{page_of(archive)}"
                return api.request("GET", page)[:MOST]
            except ApiError as error:
                said.append(f"{pod.metadata.name}: {error.said.strip()[:200]}")
        raise EvidenceError(_nowhere(archive, space, said))


def _nowhere(archive: Archive, space: str, said: list[str]) -> str:
    how = f"kubectl exec -n {space} deploy/sickbay-controller -- sickbay evidence CASE -o - fetches it by another way"
    if not said:
        return f"{archive.name}: no controller of Sickbay runs in namespace {space}"
    return f"{archive.name}: no controller hands it out ({'; '.join(said)}); {how}"


def _api(settings: Settings) -> Api:
    from sickbay.kube.api import open_api

    return open_api(settings.kubernetes.kubeconfig, settings.kubernetes.context)
