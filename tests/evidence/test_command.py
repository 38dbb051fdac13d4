"""`sickbay collect`: the archive of this machine, with progress on stderr and its path on stdout."""

from __future__ import annotations

import json
import os
import tarfile
import threading
from pathlib import Path

import pytest

from sickbay.cli import collect
from sickbay.identity import gpu_map
from sickbay.model import Gpu
from sickbay.settings import AgentSettings
from sickbay.sim.host import SimHost
from sickbay.sim.world import World

GPU = Gpu("GPU-1", "SN-42", "0000:3b:00", 2)


def names(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as packed:
        return {m.name.partition("/")[2]: packed.extractfile(m).read() for m in packed}  # type: ignore[union-attr]


def host() -> SimHost:
    world = World(3, 1)
    (node,) = world.nodes.values()
    world.illness.strike("gpu_lost_79", node, 2)
    return SimHost(world, node)


def test_the_archive_has_findings_versions_and_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "dcgm-l2-raw.json").write_text("{}")
    agent = AgentSettings(state_dir=str(tmp_path / "state"))
    files = names(collect.gathered(host(), agent, tmp_path / "out", tmp_path / "results"))
    assert files["kept/dcgm-l2-raw.json"] == b"{}"
    assert "xid.79" in {row["code"] for row in json.loads(files["findings.json"])}
    assert "nvidia-smi -q" in capsys.readouterr().err


def test_a_gpu_that_no_longer_answers_still_has_its_serial(tmp_path: Path) -> None:
    gpu_map.save(tmp_path / collect.MAP, gpu_map.GpuMap((GPU,), "boot-a", 1.0))
    files = names(collect.gathered(host(), AgentSettings(state_dir=str(tmp_path)), tmp_path / "out", None))
    assert [gpu["serial"] for gpu in json.loads(files["identity.json"])["gpus"]] == ["SN-42"]


def test_only_plain_files_of_the_results_come_along_and_a_pipe_holds_nobody_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "secret").write_text("not yours")
    results = tmp_path / "results"
    results.mkdir()
    (results / "plain.json").write_text("{}")
    (results / "link.json").symlink_to(tmp_path / "secret")
    os.mkfifo(results / "pipe.json")
    (results / "folder.json").mkdir()
    found: dict[str, str] = {}
    reading = threading.Thread(target=lambda: found.update(collect.kept(results)), daemon=True)
    reading.start()
    reading.join(10.0)
    assert found == {"plain.json": "{}"}
    said = capsys.readouterr().err
    assert all(f"{name}.json left out" in said for name in ("link", "pipe", "folder"))


def test_of_a_large_result_only_the_beginning_comes_along(tmp_path: Path) -> None:
    (tmp_path / "large.json").write_text("x" * (collect.LARGEST_KEPT + 1))
    assert len(collect.kept(tmp_path)["large.json"]) == collect.LARGEST_KEPT
