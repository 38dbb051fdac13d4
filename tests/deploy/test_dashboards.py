"""The Grafana dashboards: a sound model, every query read by the real promtool, every metric one that exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.prometheus import RULES, promtool
from tests.deploy.test_rules import METRIC, documented

FOLDER = RULES.parent / "grafana"
BOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
KINDS = {"timeseries", "stat", "bargauge", "table"}


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries(board: dict[str, Any]) -> Iterator[str]:
    for panel in panels(board):
        yield from (target["expr"] for target in panel["targets"])


def filled_in(expr: str) -> str:
    """As Grafana would send it with every variable on All."""
    return re.sub(r"\$\{?[a-z_]+\}?", ".*", expr)


def test_there_is_one_for_the_fleet_the_cases_mttr_and_ettr() -> None:
    assert set(BOARDS) == {"fleet-health", "cases", "mttr", "ettr"}
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS)
    assert len({board["title"] for board in BOARDS.values()}) == len(BOARDS)


@pytest.mark.parametrize("name", BOARDS)
def test_the_model_is_sound(name: str) -> None:
    board = BOARDS[name]
    assert board["schemaVersion"] >= 36
    assert "id" not in board, "an id of one Grafana means another dashboard in the next"
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in panels(board):
        assert panel["type"] in KINDS
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert {panel["datasource"]["uid"], *(t["datasource"]["uid"] for t in panel["targets"])} == {"${datasource}"}
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)


@pytest.mark.parametrize("name", BOARDS)
def test_no_two_panels_lie_on_each_other(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARDS[name]["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


@pytest.mark.parametrize("name", BOARDS)
def test_every_variable_that_is_used_is_defined(name: str) -> None:
    board = BOARDS[name]
    defined = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z_]+)\}?", json.dumps(board["panels"]))) - {"__all"}
    assert used <= defined
    assert defined - used == set()


def test_promtool_reads_every_query(tmp_path: Path) -> None:
    exprs = [filled_in(expr) for board in BOARDS.values() for expr in queries(board)]
    rules = [{"record": f"dashboards:query{i}:x", "expr": expr} for i, expr in enumerate(exprs)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}))
    assert f"{len(exprs)} rules found" in promtool("check", "rules", str(file))


def test_every_metric_in_a_query_is_defined_in_the_docs() -> None:
    for name, board in BOARDS.items():
        for expr in queries(board):
            assert set(METRIC.findall(expr)) <= documented(), (name, expr)


def test_every_metric_of_the_controller_is_shown_or_watched() -> None:
    """A figure that nobody looks at is a figure nobody misses when it is wrong."""
    rules = [rule["expr"] for path in RULES.glob("*.yaml") for g in yaml.safe_load(path.read_text())["groups"]
             for rule in g["rules"]]  # fmt: skip
    used = {
        name for expr in (*rules, *(q for b in BOARDS.values() for q in queries(b))) for name in METRIC.findall(expr)
    }
    page = (RULES.parents[1] / "docs" / "metrics.md").read_text().partition("## The controller's /metrics")[2]
    defined = set(re.findall(r"`(sickbay[_:][a-z0-9_:]+)`", page))
    unused = {name for name in defined if not {name, f"{name}_bucket", f"{name}_count"} & used}
    assert unused == {"sickbay_leader_epoch"}  # for a person who reads a log beside it
