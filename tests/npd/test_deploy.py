"""deploy/node-problem-detector: the monitor, the chart's values and the image say what they must, and fetch nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sickbay.cli import npd_check
from sickbay.settings import AgentSettings

from .test_costs import DEPLOY

ROOT = Path(__file__).parents[2]
MONITOR: dict[str, Any] = json.loads((DEPLOY / "gpu-monitor.json").read_text())
VALUES = (DEPLOY / "values.yaml").read_text()
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
STEPS = re.findall(r"^([A-Z]+) ((?:.*\\\n)*.*)$", DOCKERFILE, re.MULTILINE)  # instruction, its (continued) words


def value(key: str) -> str:
    """A scalar of values.yaml by its key's own name; the file names each key once."""
    found = re.findall(rf"^ *{key}: *(.*)$", VALUES, re.MULTILINE)
    assert len(found) == 1, key
    return str(found[0])


def test_the_names_of_the_original_are_kept() -> None:
    assert MONITOR["conditions"] == [{"type": "GPUProblem", "reason": "GPUsAreUp", "message": "gpus are up"}]
    rules = {rule["type"]: rule for rule in MONITOR["rules"]}
    assert set(rules) == {"permanent", "temporary"}
    assert rules["permanent"]["condition"] == "GPUProblem"
    assert {rule["reason"] for rule in rules.values()} == {"GPUsAreDown"}
    assert MONITOR["plugin"] == "custom"
    assert MONITOR["pluginConfig"]["invoke_interval"] == "60s"


def test_the_reason_fits_where_node_problem_detector_cuts() -> None:
    assert MONITOR["pluginConfig"]["max_output_length"] == npd_check.MOST


def test_the_first_answer_after_a_start_is_the_permanent_rules_own() -> None:
    """originals 003.5 #9: results of both rules carry the condition, which begins as False (test_real_detector.py)."""
    assert MONITOR["rules"][0]["type"] == "permanent"
    assert MONITOR["pluginConfig"]["concurrency"] == 1
    assert MONITOR["pluginConfig"]["skip_initial_status"] is True


def test_only_the_permanent_rule_says_unknown() -> None:
    assert {rule["type"]: rule.get("args", []) for rule in MONITOR["rules"]} == {
        "permanent": [], "temporary": ["--only-failures"]
    }  # fmt: skip


def test_no_log_monitor_of_a_container_runtime_is_started() -> None:
    """originals 003.5 #13: docker-monitor on containerd nodes is dead weight."""
    assert value("log_monitors") == "[]"
    assert "docker-monitor" not in VALUES


def test_the_verdict_is_mounted_read_only_as_a_folder() -> None:
    """A mounted file would stay the old one for ever: the agent renames a new one into its place."""
    assert value("path") == value("mountPath") == AgentSettings().state_dir
    assert value("readOnly") == "true"


def test_the_detector_needs_no_privilege() -> None:
    assert (value("privileged"), value("runAsNonRoot"), value("readOnlyRootFilesystem")) == ("false", "true", "true")
    assert (value("hostNetwork"), value("hostPID")) == ("false", "false")
    assert value("runAsUser") in next(words for step, words in STEPS if step == "USER")


def test_it_runs_where_nothing_else_may_and_where_prometheus_looks() -> None:
    assert "tolerations:\n  - operator: Exists\n" in VALUES
    assert (value("priorityClassName"), value("prometheus_port")) == ("system-node-critical", "20257")


def test_the_image_is_made_of_pinned_parts_and_fetches_nothing_else() -> None:
    """originals 003.5 #12: images without a version, and a script downloaded from a master branch at build time."""
    defaults = dict(words.split("=", 1) for step, words in STEPS if step == "ARG")
    for step, words in STEPS:
        if step == "FROM":
            tag = (
                re.sub(r"\$\{(\w+)\}", lambda name: defaults[name[1]], words.split()[0])
                .partition("@")[0]
                .rpartition(":")[2]
            )
            assert re.match(r"v?\d+\.\d+\.\d+", tag), words
    ran = " ".join(words for step, words in STEPS if step == "RUN")
    assert not re.search(r"\b(curl|wget|apt|apt-get|pip|git|https?)\b", ran)
    assert not any(step == "ADD" for step, _ in STEPS)
    assert re.match(r"v\d+\.\d+\.\d+", value("tag"))


def test_npd_tag_is_a_build_argument_as_in_the_original() -> None:
    assert any(step == "ARG" and words.startswith("NPD_TAG=") for step, words in STEPS)


def test_the_tests_run_the_version_that_the_image_holds() -> None:
    pinned = re.search(r"k8s\.io/node-problem-detector (v\S+)", (ROOT / "tools" / "npd" / "go.mod").read_text())
    assert pinned is not None
    assert f"ARG NPD_TAG={pinned[1]}\n" in DOCKERFILE
    assert value("tag").startswith(f"{pinned[1]}-")


def test_the_image_has_each_file_where_the_monitor_looks_for_it() -> None:
    copied = [words for step, words in STEPS if step == "COPY" and "--from" not in words]
    for words in copied:
        sources, target = words.split()[1:-1], words.split()[-1]
        assert all((ROOT / source).is_file() for source in sources)
        assert target in ("/config/gpu-monitor.json", "/config/plugin/")
    assert {rule["path"] for rule in MONITOR["rules"]} == {"/config/plugin/check_gpu.sh"}


@pytest.mark.parametrize("file", ["gpu-monitor.json", "values.yaml", "Dockerfile", "check_gpu.sh"])
def test_no_region_and_no_address_of_a_cloud_is_in_any_file(file: str) -> None:
    """originals 003.5 #1: the EC2 endpoint was us-west-2 for everybody."""
    text = (DEPLOY / file).read_text()
    assert not re.search(r"\b[a-z]{2}-(north|south|east|west|central)\w*-\d\b|169\.254|amazonaws", text)
