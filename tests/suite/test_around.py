"""What stands around a run: which checks, whether the node is free, where results go, what other nodes reached."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from sickbay.errors import UserError
from sickbay.settings import AgentSettings
from sickbay.suite import folder, reservation, table
from sickbay.suite.asking import ask_for, nodes_of, peers_in
from sickbay.suite.exclusive import busy, refusal
from tests.checks.hosts import MISSING, TIMED_OUT, SpokenHost, printed

NOW = 1_000_000.0


# --- which checks -----------------------------------------------------------------------------------------------------


def test_the_suites_are_the_original_s_and_one_more() -> None:
    """originals 002.1"""
    assert set(table.SUITES) == {"lightweight", "intensive", "prolog", "quarantine"}
    assert table.suite("intensive").checks == ("dcgm-l4", "nccl-allreduce", "efa-loopback")
    numbered = [name for name in table.suite("lightweight").first if name != "kernel-log"]
    assert numbered == ["nvidia-smi", "dcgm-l2", "efa-enumeration", "topology"]


def test_a_prolog_runs_dcgm_only_when_told() -> None:
    """originals 002.11: checks 0 and 2 by default, 0, 1 and 2 with GPU_HEALTHCHECK_PROLOG_ENABLE_DCGM=1"""
    assert "dcgm-l2" not in table.suite("prolog").checks
    assert "dcgm-l2" in table.suite("prolog", prolog_dcgm=True).checks


@pytest.mark.parametrize("word", ["4", "dcgm-l4", "4-dcgm-diag-l4", " DCGM-L4 "])
def test_a_check_goes_by_number_name_or_the_original_s_name(word: str) -> None:
    assert table.single([word]).checks == ("dcgm-l4",)


def test_a_wrong_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match="Did you mean dcgm-l4"):
        table.single(["dcgm-4"])
    with pytest.raises(UserError, match="Did you mean quarantine"):
        table.suite("quarantene")


# --- is it free? ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "\n", "No running processes found\n"])
def test_no_process_is_idle(text: str) -> None:
    assert busy(SpokenHost({"nvidia-smi": printed(text)})) == ""


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (SpokenHost({"nvidia-smi": printed("4711, python\n4712, [Not Found]\n")}), "2 processes on the GPUs (python)"),
        (SpokenHost({"nvidia-smi": MISSING}), "nvidia-smi is not here"),
        (SpokenHost({"nvidia-smi": TIMED_OUT}), "does not say"),
        (SpokenHost({"nvidia-smi": printed("", 9)}), "does not say"),
    ],
)
def test_in_use_or_unreadable_is_not_idle(host: SpokenHost, said: str) -> None:
    assert said in busy(host)


def test_in_managed_mode_only_a_reserved_node_is_free(tmp_path: Path) -> None:
    idle = SpokenHost({"nvidia-smi": printed("")})

    def why(mode: str, given: bool = False) -> str:
        return refusal(idle, mode=mode, state_dir=str(tmp_path), now=NOW, given=given)

    assert why("standalone") == ""
    assert "not reserved" in why("managed")
    assert why("managed", given=True) == ""
    reservation.reserve(tmp_path, "node-1.4", NOW + 60)
    assert why("managed") == ""
    reservation.release(tmp_path)
    assert "not reserved" in why("managed")


def test_a_reservation_does_not_free_a_node_in_use(tmp_path: Path) -> None:
    reservation.reserve(tmp_path, "node-1.4", NOW + 60)
    host = SpokenHost({"nvidia-smi": printed("1, python\n")})
    assert "1 process on the GPUs" in refusal(host, mode="managed", state_dir=str(tmp_path), now=NOW)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '{"by": "", "until": 1000060}', '{"by": "c", "until": 999999}',
        '{"by": "c", "until": 9e99}', '{"by": "c", "until": "1000060"}', '{"by": "c", "until": NaN}', "[" * 9000,
    ],
)  # fmt: skip
def test_what_is_no_reservation_reserves_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / reservation.FILE).write_text(text)
    assert reservation.reserved(tmp_path, NOW) is None


# --- where results go -------------------------------------------------------------------------------------------------


def test_the_default_folder_is_named_after_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """originals 002.1"""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert folder.default_folder({"SLURM_JOB_ID": "77"}, 5.0) == tmp_path / "gpu-healthcheck-77"
    assert folder.default_folder({}, 5.9) == tmp_path / "gpu-healthcheck-5"
    assert folder.default_folder({"SLURM_JOB_ID": "../../etc"}, 5.0).parent == tmp_path


def test_a_folder_of_ours_is_for_us_alone(tmp_path: Path) -> None:
    made = folder.made(tmp_path / "a", ours=True)
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert folder.made(made, ours=True) == made


def test_a_link_a_file_or_somebody_else_s_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "there")
    (tmp_path / "file").write_text("x")
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    for name in ("link", "file", "open"):
        with pytest.raises(UserError, match="--results-dir"):
            folder.made(tmp_path / name, ours=True)


def test_somebody_else_s_folder_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    (tmp_path / "his").mkdir(mode=0o700)
    os.chown(tmp_path / "his", 12345, 12345)
    with pytest.raises(UserError, match="somebody else"):
        folder.made(tmp_path / "his", ours=True)


def test_a_folder_a_person_named_may_be_anything_we_can_write_to(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    assert folder.made(tmp_path / "link", ours=False)
    assert folder.made(tmp_path / "a" / "b", ours=False).is_dir()


def test_artefacts_stay_in_the_folder(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    folder.keep(inside, {"../out.txt": "a", "/etc/x": "b", "..": "c", "": "d", "ecc-status.csv": "e\ud800"})
    assert sorted(path.name for path in inside.iterdir()) == ["ecc-status.csv", "out.txt", "x"]
    assert not (tmp_path / "out.txt").exists()


def test_a_result_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write(tmp_path, "summary.json", {"status": "PASS"})

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        folder.write(tmp_path, "summary.json", {"status": "FAIL"})
    assert json.loads((tmp_path / "summary.json").read_text()) == {"status": "PASS"}
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


# --- what is known beforehand -----------------------------------------------------------------------------------------


def test_settings_and_the_job_reach_the_checks() -> None:
    agent = AgentSettings(shared_paths=("/fsx", "/home"), dcgm_l4_timeout_s=7200, max_retired_pages_sbe=40)
    ask = ask_for(agent, {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "4"}, suite="intensive", at=NOW, exclusive=True)
    assert ask.options["shared-paths"] == "/fsx,/home"
    assert ask.options["dcgm-l4-timeout-s"] == "7200"
    assert ask.options["exclusive"] == "yes"
    assert ask.options["SLURM_JOB_ID"] == "7"
    assert (ask.nodes, ask.limits["max-retired-pages-sbe"]) == (4, 40.0)


def test_a_quarantined_node_is_tested_alone() -> None:
    assert ask_for(AgentSettings(), {"SLURM_NNODES": "4"}, suite="quarantine", at=NOW).nodes == 1


@pytest.mark.parametrize("text", ["", "zwei", "-1", "0", "²", "9" * 400])
def test_a_senseless_number_of_nodes_is_passed_over(text: str) -> None:
    assert nodes_of({"SLURM_NNODES": text}) == 1
    assert nodes_of({"SLURM_NNODES": text, "HEALTHCHECK_NUM_NODES": "3"}) == 3


def test_figures_of_other_nodes_are_gathered_from_their_results(tmp_path: Path) -> None:
    for node, value in (("a", 440.0), ("b", 441.5), ("me", 300.0)):
        (tmp_path / node).mkdir()
        document = {"hostname": node, "measures": {"busbw": value, "bad": "x", "yes": True}}
        (tmp_path / node / "check-5-nccl-allreduce.json").write_text(json.dumps(document))
    (tmp_path / "check-garbage.json").write_text("{")
    (tmp_path / "check-list.json").write_text("[1]")
    assert {name: sorted(values) for name, values in peers_in(tmp_path, "me").items()} == {"busbw": [440.0, 441.5]}
