"""Write deploy/prometheus/operator/prometheusrule.yaml, the plain rule files as one object of the Prometheus operator.

Called by people after they changed a rule: `python tools/rules.py`. tests/deploy/test_rules.py compares. It adds
nothing: the rules are those of deploy/prometheus/*.yaml.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[1] / "deploy" / "prometheus"
TARGET = FOLDER / "operator" / "prometheusrule.yaml"
HEAD = "# Made from deploy/prometheus/*.yaml by tools/rules.py, for the Prometheus operator without Helm.\n"


def manifest() -> dict[str, Any]:
    groups = [group for path in sorted(FOLDER.glob("*.yaml")) for group in yaml.safe_load(path.read_text())["groups"]]
    labels = {"app.kubernetes.io/name": "sickbay", "app.kubernetes.io/component": "rules"}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "sickbay", "namespace": "sickbay", "labels": labels},
        "spec": {"groups": groups},
    }


def text() -> str:
    return HEAD + yaml.safe_dump(manifest(), sort_keys=False, width=120)


if __name__ == "__main__":
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(text())
    sys.stdout.write(f"wrote {TARGET.name}\n")
