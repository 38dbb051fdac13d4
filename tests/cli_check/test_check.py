"""`sickbay check` as a person, a prolog or a program runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sickbay.suite import reservation
from tests.checks.test_nvidia_smi import text
from tests.cli_check.node import Bench

XID_79 = "NVRM: Xid (PCI:0000:10:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
IN_USE = 'case "$*" in *compute-apps*) echo "4711, python"; exit 0;; esac'


def test_a_healthy_check_is_a_pass_and_exit_code_0(bench: Bench) -> None:
    said = bench.check("--check", "0")
    assert said.code == 0
    assert "PASS" in said.out
    assert bench.result("check-0-nvidia-smi.json")["status"] == "PASS"
    assert bench.result("summary.json")["status"] == "PASS"
    assert bench.result("summary.json")["instance_type"] == "simulated-8"


def test_a_lost_gpu_fails_and_says_what_to_do(bench: Bench) -> None:
    bench.kernel(XID_79)
    said = bench.check("--check", "kernel-log", "--check", "0")
    assert said.code == 1
    assert "REBOOT" in said.out
    assert "fallen off the bus" in said.out
    assert "What to do:" in said.out
    assert "sickbay explain xid.79" in said.out
    assert said.out.rstrip().splitlines()[-1].startswith("FAIL: 1 of 2 checks failed")
    written = bench.result("check-kernel-log.json")
    assert (written["status"], written["severity"]) == ("FAIL", "REBOOT")


def test_a_failure_survives_a_warning_of_the_same_run(bench: Bench) -> None:
    """originals 002.12 #1: the file of check 0 ended as WARN/MONITOR when persistence mode was off too."""
    cards = [{"failed": "Yes", "persistence": "Disabled"}, *[{"persistence": "Disabled"}] * 7]
    bench.tool("nvidia-smi", text(*cards), script='case "$*" in *compute-apps*) exit 0;; esac')
    assert bench.check("--check", "nvidia-smi").code == 1
    written = bench.result("check-0-nvidia-smi.json")
    assert (written["status"], written["severity"]) == ("FAIL", "ISOLATE")
    assert "persistence" in written["details"].lower()


def test_five_of_eight_gpus_are_no_pass(bench: Bench) -> None:
    """originals 002.12 #3"""
    bench.tool("nvidia-smi", text(*[{}] * 5))
    assert bench.check("--check", "0").code == 1


def test_a_missing_tool_is_unknown_and_never_a_pass(bench: Bench) -> None:
    (bench.folder / "bin" / "nvidia-smi").unlink()
    said = bench.check("--check", "0")
    assert said.code == 124
    assert "UNKNOWN" in said.out
    written = bench.result("check-0-nvidia-smi.json")
    assert (written["status"], written["unknown"], written["severity"]) == ("SKIP", True, "")
    assert written["details"].startswith("could not look:")


def test_a_prolog_says_loudly_that_it_is_blind_and_drains_nobody(bench: Bench) -> None:
    (bench.folder / "bin" / "nvidia-smi").unlink()
    said = bench.check("--prolog")
    assert said.code == 0
    assert "could not look" in said.out
    assert any(line.startswith("UNKNOWN 0-nvidia-smi") for line in bench.logged)
    assert bench.result("summary.json")["status"] == "UNKNOWN"


def test_a_prolog_fails_fast(bench: Bench) -> None:
    bench.tool("nvidia-smi", text(*[{}] * 5))
    said = bench.check("--suite", "prolog")
    assert said.code == 1
    assert "Not run, because an earlier one failed: kernel-log" in said.out
    assert bench.result("summary.json")["completed_checks"] == 1


def test_a_tool_that_hangs_is_cut_at_the_time_limit(bench: Bench) -> None:
    """originals 002.12 #11"""
    bench.tool("nvidia-smi", script="sleep 60")
    began = time.monotonic()
    said = bench.check("--check", "0", "--timeout", "0.5")
    assert said.code == 124
    assert "did not answer in time" in said.out
    assert time.monotonic() - began < 15


def test_json_is_one_document(bench: Bench) -> None:
    said = bench.check("--check", "0", "--json")
    document = json.loads(said.out)
    assert document["status"] == "PASS"
    assert document["results"][0]["check"] == "0-nvidia-smi"
    assert document["results_dir"] == str(bench.folder / "results")


def test_a_dry_run_touches_nothing(bench: Bench) -> None:
    bench.tool("nvidia-smi", script=f"touch {bench.folder}/touched")
    said = bench.check("--suite", "intensive", "--dry-run")
    assert said.code == 0
    assert "dcgm-l4" in said.out
    assert "2 h 30 min" in said.out
    assert not (bench.folder / "touched").exists()
    assert not (bench.folder / "results").exists()
    assert json.loads(bench.check("--dry-run", "--json").out)["suite"] == "lightweight"


# --- deep checks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [("--check", "4"), ("--suite", "intensive"), ("--suite", "quarantine")])
def test_deep_checks_are_refused_on_a_node_in_use(bench: Bench, ask: tuple[str, str]) -> None:
    """originals 002.12 #15: a single check did not enforce exclusivity."""
    bench.settings('mode = "standalone"\n')
    bench.tool("nvidia-smi", script=IN_USE)
    bench.tool("dcgmi", script=f"touch {bench.folder}/touched")
    said = bench.check(*ask)
    assert said.code == 126
    assert "1 process on the GPUs (python)" in said.err
    assert "--exclusive" in said.err
    assert not (bench.folder / "touched").exists()


def test_in_managed_mode_the_controller_must_have_reserved_the_node(bench: Bench) -> None:
    said = bench.check("--check", "4")
    assert said.code == 126
    assert "the controller has not reserved this node" in said.err
    (bench.folder / "state").mkdir()
    reservation.reserve(bench.folder / "state", "bench-1.1", time.time() + 600)
    assert bench.check("--check", "4").code != 126
    assert bench.result("check-4-dcgm-diag-l4.json")["check"] == "4-dcgm-diag-l4"


def test_a_light_suite_leaves_the_deep_check_out_on_a_node_in_use(bench: Bench) -> None:
    """originals 002.12 #8: level 2 ran beside training jobs."""
    bench.settings('mode = "standalone"\n')
    bench.tool("nvidia-smi", text(*[{}] * 8), script=IN_USE)
    bench.tool("dcgmi", script=f"echo $* >> {bench.folder}/dcgmi-asked")
    bench.check()
    written = bench.result("check-1-dcgm-diag-l2.json")
    assert (written["status"], written["unknown"]) == ("SKIP", False)
    asked = bench.folder / "dcgmi-asked"
    assert not asked.exists() or "diag" not in asked.read_text()


# --- what was treated -------------------------------------------------------------------------------------------------


def test_an_old_xid_stops_failing_the_node_once_somebody_says_it_was_treated(bench: Bench) -> None:
    """originals 002.12 #13: after a GPU reset an old Xid kept the node failing."""
    bench.kernel(XID_79)
    assert bench.check("--check", "kernel-log").code == 1
    said = bench.check("--mark-treated")
    assert (said.code, said.out.split()[1]) == (0, "2")
    bench.tool("journalctl", script='case "$*" in *after-cursor=i=1*) exit 0;; esac; exit 1')
    assert bench.check("--check", "kernel-log").code == 0


def test_a_log_that_cannot_be_read_cannot_be_marked(bench: Bench) -> None:
    for tool in ("journalctl", "dmesg"):
        bench.tool(tool, code=1)
    assert bench.check("--mark-treated").code == 126


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--suite", "lightweigth"), "Did you mean lightweight"),
        (("--check", "nvidia-sm"), "Did you mean nvidia-smi"),
        (("--check", "0", "--prolog"), "exclude each other"),
        (("--timeout", "-3"), "above 0"),
        (("--timeout", "nan"), "above 0"),
        (("--fleet", "/no/such/folder"), "no such folder"),
        (("--config", "/no/such/file"), "cannot be read"),
        (("--exlusive",), "No such option"),
    ],
)
def test_a_mistake_is_exit_code_126_which_no_number_of_failures_is(
    bench: Bench, args: tuple[str, ...], said: str
) -> None:
    """originals 002.1: the exit code counts failed checks, so 2 could not also mean a typing error."""
    answer = bench.check(*args)
    assert answer.code == 126
    assert said in answer.err
    assert "Traceback" not in answer.err


def test_figures_are_compared_with_other_nodes(bench: Bench) -> None:
    (bench.folder / "fleet").mkdir()
    assert bench.check("--check", "0", "--fleet", str(bench.folder / "fleet")).code == 0


# --- being ended ------------------------------------------------------------------------------------------------------


def test_told_to_end_it_ends_what_it_started(bench: Bench) -> None:
    """A prolog's time limit must not leave a diagnostic burning on the GPUs."""
    bench.tool(
        "nvidia-smi",
        script=f"echo $$ > {bench.folder}/pid.new; mv {bench.folder}/pid.new {bench.folder}/pid; sleep 300",
    )
    argv = [sys.executable, "-m", "sickbay", "check", "--check", "0", "--config", str(bench.folder / "sickbay.toml")]
    argv += ["--results-dir", str(bench.folder / "results")]
    running = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pid = int(_waited_for(bench.folder / "pid"))
    running.send_signal(signal.SIGTERM)
    assert running.wait(20) == 143
    _until(lambda: _is_dead(pid), "it outlived the one who started it")  # killed; a busy machine buries late


def _waited_for(path: Path) -> str:
    _until(path.exists, "it never started")
    return path.read_text()


def _until(holds: Callable[[], bool], else_said: str) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, else_said
        time.sleep(0.01)


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_without_root_or_gpu_it_still_answers(bench: Bench) -> None:
    """A new user on a laptop: honest, readable, no traceback."""
    for name in os.listdir(bench.folder / "bin"):
        (bench.folder / "bin" / name).unlink()
    said = bench.check("--suite", "lightweight", "-v")
    assert "Traceback" not in said.out + said.err
    assert said.out.rstrip().splitlines()[-1].split(":")[0] in ("UNKNOWN", "FAIL")
    assert "PASS" not in next(line for line in said.out.splitlines() if line.startswith("nvidia-smi"))
