"""COLLECT: one archive with a manifest, whatever the node still answers, in bounded time and size."""

from __future__ import annotations

import base64
import hashlib
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sickbay import evidence
from sickbay.cli.evidence import serials
from sickbay.errors import CheckError, UserError
from sickbay.evidence import archive, gather
from sickbay.evidence.parts import COMMANDS
from sickbay.model import Finding, Gpu, Place, Status
from sickbay.ports import Completed
from sickbay.sim.host import SimHost
from sickbay.sim.world import World
from tests.checks.hosts import TIMED_OUT, SpokenHost, printed

GPU = Gpu("GPU-1", "SN-42", "0000:3b:00", 2)
LOST = Finding("boot-a/1", "agent", "kernel-log", Place("node-1", "0000:3b:00"), Status.FAILED, "xid.79", "lost")
REPORT = b"\x1f\x8b" + bytes(range(256)) * 3


@dataclass
class Sick(SpokenHost):
    """Answers what a test gave it, and makes NVIDIA's report in as many blocks as told."""

    report: bytes = REPORT
    limits: list[float] = field(default_factory=list)

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        self.limits.append(timeout_s)
        if argv[0] == "base64":
            number = int(argv[1][-3:])
            block = self.report[number * gather.BLOCK : (number + 1) * gather.BLOCK]
            return printed(base64.encodebytes(block).decode()) if block else printed("", 1)
        return super().run(argv, timeout_s)


def sick(**answers: Completed) -> Sick:
    told = {
        "mktemp": printed("/var/made\n"), "nvidia-bug-report.sh": printed("done"), "split": printed(""),
        "rm": printed(""), "nvidia-smi": printed("NVSMI"), "dcgmi": printed("{}"), "uname": printed("Linux"),
    }  # fmt: skip
    return Sick({**told, **answers}, lines=[f"[{n}.0] line {n}" for n in range(3_000)])


def collected(host: SpokenHost, folder: Path, **options: Any) -> tuple[dict[str, bytes], dict[str, Any]]:
    path = evidence.collect(host, folder, key="node-1.3/7", findings=[LOST], gpus=[GPU], at=5.0, **options)
    with tarfile.open(path) as packed:
        files = {m.name.partition("/")[2]: packed.extractfile(m).read() for m in packed}  # type: ignore[union-attr]
    return files, json.loads(files.pop("manifest.json"))


def row(manifest: dict[str, Any], wanted: str) -> dict[str, Any]:
    (found,) = [row for row in manifest["files"] if row["wanted"] == wanted]
    return dict(found)


def test_the_manifest_lists_every_file_with_its_check_sum(tmp_path: Path) -> None:
    files, manifest = collected(sick(), tmp_path)
    listed = {row["file"]: row["sha256"] for row in manifest["files"] if row["file"]}
    assert listed == {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    assert (manifest["node"], manifest["boot_id"], manifest["action"], manifest["at"]) == (
        "node-1",
        "boot-a",
        "node-1.3/7",
        5.0,
    )


def test_the_kernel_window_is_the_newest_lines(tmp_path: Path) -> None:
    files, manifest = collected(sick(), tmp_path, kernel_lines=10)
    assert files["kernel.log"].decode().splitlines()[0] == "[2990.0] line 2990"
    assert row(manifest, "kernel.log")["truncated"] is True


def test_a_vendors_ticket_can_be_made_of_it(tmp_path: Path) -> None:
    files, _ = collected(sick(), tmp_path, versions={"driver": "580.1"})
    assert serials(files["identity.json"]) == ["- GPU 2 at 0000:3b:00: serial SN-42, GPU-1"]
    assert json.loads(files["identity.json"])["versions"] == {"driver": "580.1"}
    assert json.loads(files["findings.json"])[0]["code"] == "xid.79"


def test_nvidias_report_is_fetched_whole_and_removed(tmp_path: Path) -> None:
    host = sick()
    host.report = bytes(range(256)) * (gather.BLOCK // 128)  # two blocks
    files, manifest = collected(host, tmp_path)
    assert files["nvidia-bug-report.log.gz"] == host.report
    assert row(manifest, "nvidia-bug-report.log.gz")["truncated"] is False
    assert "nvidia-bug-report.sh --safe-mode --output-file /var/made/nvidia-bug-report.log" in host.asked
    assert host.asked[-1] == "rm -rf /var/made"


def test_a_tool_that_is_missing_or_hangs_is_written_down(tmp_path: Path) -> None:
    answers = {"nvidia-smi -q": TIMED_OUT, "lspci": Completed(None, "", "no such command", missing=True)}
    files, manifest = collected(sick(**answers), tmp_path)
    assert row(manifest, "nvidia-smi/q.txt")["timed_out"] is True
    assert row(manifest, "pci/lspci-nvidia.txt")["missing"] is True
    assert not {"nvidia-smi/q.txt", "pci/lspci-nvidia.txt"} & set(files)
    assert "nvidia-smi/topo.txt" in files


def test_a_host_that_breaks_everywhere_still_gives_an_archive(tmp_path: Path) -> None:
    class Broken(SpokenHost):
        def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
            raise OSError("no more processes")

        def read(self, path: str) -> str | None:
            raise OSError("input/output error")

        def kernel_lines(self, cursor: str) -> tuple[list[str], str]:
            raise CheckError("no kernel log here")

        def boot_id(self) -> str:
            raise OSError("gone")

    files, manifest = collected(Broken(), tmp_path)
    assert {"identity.json", "findings.json"} <= set(files)
    assert "no kernel log here" in row(manifest, "kernel.log")["note"]


def test_all_of_it_together_has_one_time_limit(tmp_path: Path) -> None:
    now = iter(range(0, 100_000, 40))
    host = sick()
    _, manifest = collected(host, tmp_path, limit_s=300.0, clock=lambda: float(next(now)))
    assert row(manifest, "nvidia-bug-report.log.gz")["note"] == gather.NO_TIME
    assert max(host.limits) <= 300.0
    assert len(host.asked) < len(COMMANDS)


def test_pieces_that_are_too_large_are_cut_and_say_so(tmp_path: Path) -> None:
    files, manifest = collected(sick(**{"nvidia-smi -q": printed("x" * (gather.MOST_PART + 5))}), tmp_path)
    assert len(files["nvidia-smi/q.txt"]) == gather.MOST_PART
    assert row(manifest, "nvidia-smi/q.txt")["truncated"] is True


def test_the_whole_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_BYTES", 5_000)
    files, manifest = collected(sick(**{"nvidia-smi -q": printed("x" * 10_000)}), tmp_path)
    assert sum(map(len, files.values())) <= 5_000
    assert any(row["truncated"] for row in manifest["files"])


def test_what_earlier_checks_kept_comes_along_under_harmless_names(tmp_path: Path) -> None:
    files, _ = collected(sick(), tmp_path, kept={"dcgm-l2-raw.json": "{}", "../../etc/passwd": "x"})
    assert files["kept/dcgm-l2-raw.json"] == b"{}"
    assert not any(".." in Path(name).parts for name in files)


def test_no_environment_is_collected() -> None:
    words = {word for asked in COMMANDS for word in asked.argv}
    assert not words & {"env", "printenv", "set"}
    assert not [word for word in words if "environ" in word]


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = evidence.collect(sick(), tmp_path, key="k", findings=[], gpus=[], at=0.0)
    assert path.stat().st_mode & 0o077 == 0
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_is_said_in_plain_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Cannot write"):
        evidence.collect(sick(), tmp_path / "file", key="k", findings=[], gpus=[], at=0.0)


def test_a_simulated_host_is_collected_like_a_real_one(tmp_path: Path) -> None:
    world = World(3, 1)
    (node,) = world.nodes.values()
    world.illness.strike("gpu_lost_79", node, 2)
    files, _ = collected(SimHost(world, node), tmp_path)  # type: ignore[arg-type]
    assert b"fallen off the bus" in files["kernel.log"]
    assert b"Unable to determine the device handle" in files["nvidia-smi/q.txt"]


def test_an_archive_has_at_most_as_many_bytes_as_it_may_and_says_what_was_cut(tmp_path: Path) -> None:
    """It travels in a pod's log, which a kubelet turns over: NVIDIA's report, which is the longest, is cut first."""
    random = hashlib.shake_256(b"report").digest(3 << 20)
    host = sick()
    host.report = b"\x1f\x8b" + random
    path = evidence.collect(host, tmp_path, key="k", findings=[LOST], gpus=[GPU], at=5.0, most_packed=1 << 20)
    assert 900_000 < path.stat().st_size <= 1 << 20
    files, manifest = collected(host, tmp_path, most_packed=1 << 20)
    cut = {row["wanted"] for row in manifest["files"] if row["truncated"]}
    assert {"nvidia-bug-report.log.gz"} <= cut
    assert b"line 2999" in files["kernel.log"]
