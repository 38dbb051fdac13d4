"""Where `sickbay evidence` looks: never where a record says. Of a controller in a cluster, through the API server.

The API server's proxy refuses loopback addresses, so the far end is a server of ours that answers as it would."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from sickbay.cli.evidence_source import ControllersEvidence, source
from sickbay.controller.evidence_room import handed_out
from sickbay.errors import ApiError, EvidenceError
from sickbay.evidence.folder import FolderEvidence
from sickbay.evidence.keeping import name_of
from sickbay.kube.api import Api
from sickbay.kube.objects import PodObject
from sickbay.settings import Settings

NAME = name_of("gpu-17.3/4")


class Far:
    """An API server with two controllers' pods; each answers from its own volume."""

    def __init__(self, volumes: dict[str, FolderEvidence]) -> None:
        self.volumes, self.asked, self.closed = volumes, list[str](), 0

    def list(self, path: str, kind: type[PodObject], **params: str) -> list[PodObject]:
        assert "component=controller" in params["labelSelector"]
        found = [PodObject() for _ in self.volumes]
        for pod, name in zip(found, self.volumes, strict=True):
            pod.metadata.name = name
        return found

    def request(self, method: str, path: str) -> bytes:
        self.asked.append(f"{method} {path}")
        _, _, after = path.partition("/pods/")
        pod, _, page = after.partition("/proxy")
        status, body = handed_out(self.volumes[pod], page) or (404, b"no page")
        if status != 200:
            raise ApiError(status, "NotFound", body.decode())
        return body

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Far]:
    api = Far({"a": FolderEvidence(tmp_path / "a"), "b": FolderEvidence(tmp_path / "b")})
    yield api
    assert api.closed


def asking(far: Far) -> ControllersEvidence:
    return ControllersEvidence(Settings(), lambda settings: cast(Api, far))


def test_the_controller_that_has_it_hands_it_out(far: Far) -> None:
    kept = far.volumes["b"].put(NAME, b"kernel log")
    assert asking(far).get(kept) == b"kernel log"
    assert f"GET /api/v1/namespaces/sickbay/pods/b/proxy/evidence/{NAME}/{kept.sha256}/10" in far.asked


def test_where_nobody_has_it_another_way_is_named(far: Far) -> None:
    kept = far.volumes["a"].put(NAME, b"kernel log")
    with pytest.raises(EvidenceError, match=r"no controller hands it out .*kubectl exec -n sickbay"):
        asking(far).get(replace(kept, sha256="0" * 64))


def test_where_no_controller_runs_that_is_said(far: Far) -> None:
    kept = far.volumes["a"].put(NAME, b"kernel log")
    far.volumes.clear()
    with pytest.raises(EvidenceError, match="no controller of Sickbay runs in namespace sickbay"):
        asking(far).get(kept)


def test_a_folder_beside_the_store_is_looked_in_and_settings_say_the_rest(tmp_path: Path) -> None:
    kept = FolderEvidence(tmp_path / "evidence").put(NAME, b"kernel log")
    beside = source(str(tmp_path / "sickbay.db"), "")
    assert beside is not None
    assert beside.get(kept) == b"kernel log"
    config = tmp_path / "sickbay.toml"
    config.write_text(f"data_dir = {json.dumps(str(tmp_path))}\n")
    by_settings = source("", str(config))
    assert by_settings is not None
    assert by_settings.get(kept) == b"kernel log"
    config.write_text('store = "kubernetes"\n')
    assert isinstance(source("", str(config)), ControllersEvidence)
    config.write_text('[evidence]\nstore = "none"\n')
    assert source("", str(config)) is None
