"""What helm tells whoever has just installed it. NOTES.txt is rendered as a template of a copy of the chart."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from tools.manifests import CHART, helm

IMAGES = ("--set", "agent.image=a:1,controller.image=c:1", "--namespace", "sickbay", "--kube-version", "1.30")
OURS = "[{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]"


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    copied = shutil.copytree(CHART, tmp_path / "sickbay")
    notes = (copied / "templates" / "NOTES.txt").read_text()
    made = '{{- define "notes" }}' + notes + '{{- end }}\nnotes: {{ include "notes" . | toJson }}\n'
    (copied / "templates" / "notes.yaml").write_text(made)
    return copied


def notes(chart: Path, *options: str) -> str:
    said = helm("template", "sickbay", str(chart), *IMAGES, "--show-only", "templates/notes.yaml", *options)
    return str(yaml.safe_load(said)["notes"])


def test_as_it_comes_they_say_who_may_read_metrics_and_that_evidence_goes_with_its_pod(chart: Path) -> None:
    said = notes(chart)
    assert "whoever can reach the controller's pod may read its metrics (port 9465)" in said
    assert "networkPolicy.metricsFrom" in said
    assert "a rollout of the controller loses it" in said


@pytest.mark.parametrize("option", ["evidence.claim=shelf", "settings.evidence.store=none",
                                    "settings.evidence.store=s3,settings.evidence.bucket=b"])  # fmt: skip
def test_evidence_that_has_a_place_or_is_not_wanted_is_no_warning(chart: Path, option: str) -> None:
    assert "a rollout of the controller loses it" not in notes(chart, "--set", option)


def test_nor_is_it_where_somebody_is_named_or_nobody_listens(chart: Path) -> None:
    assert "may read its metrics" not in notes(chart, "--set-json", f"networkPolicy.metricsFrom={yaml_as_json(OURS)}")
    assert "may read its metrics" not in notes(chart, "--set", "settings.controller.listen=")
    assert "may read its metrics" in notes(chart, "--set", "networkPolicy.enabled=false")


def test_agents_alone_are_warned_of_neither(chart: Path) -> None:
    said = notes(chart, "--set", "controller.enabled=false,settings.agent.mode=standalone")
    assert "WARNING" not in said


def yaml_as_json(text: str) -> str:
    import json

    return json.dumps(yaml.safe_load(text))
