"""deploy/kubernetes/*.yaml from the chart, and the chart's own copies and schema from where they are at home.

`tools/manifests` writes, `tools/manifests --check` only tells; tests/kubernetes/test_deploy.py keeps all of it current.
One source each: objects in deploy/helm/sickbay/templates, custom resource definitions in deploy/kubernetes/crds, keys
of the settings in sickbay/settings.py, rules and dashboards in deploy/prometheus and deploy/grafana.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_origin

from sickbay import settings_rules as rules
from sickbay.settings import Limit, Policy, Settings
from sickbay.settings_load import GROUPS
from testbed.binaries import built

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy" / "helm" / "sickbay"
PLAIN = ROOT / "deploy" / "kubernetes"
SOURCE = re.compile(r"^# Source: sickbay/templates/(\S+)\n", re.MULTILINE)
COPIED = {"prometheus": "*.y*ml", "grafana": "*.json"}  # deploy/NAME -> the chart's files/NAME
SAYS = "# Made by tools/manifests from {}: change it there.\n"


# --- rendering --------------------------------------------------------------------------------------------------------


def helm(*args: str) -> str:
    """What helm printed; RuntimeError with what it complained about."""
    done = subprocess.run([str(built("helm")), *args], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def render(*options: str, namespace: str = "sickbay") -> str:
    """The chart's objects as YAML. `options`: as helm template takes them."""
    return helm("template", "sickbay", str(CHART), "--namespace", namespace, "--kube-version", "1.34.0", *options)


def split(rendered: str) -> dict[str, str]:
    """By the template that each object came from."""
    found: dict[str, list[str]] = {}
    for document in re.split(r"^---\n", rendered, flags=re.MULTILINE):
        if source := SOURCE.search(document):
            body = SOURCE.sub("", document).strip("\n")
            if any(line and not line.startswith("#") for line in body.splitlines()):
                found.setdefault(source.group(1), []).append(body)
    return {name: "\n---\n".join(documents) + "\n" for name, documents in found.items()}


# --- what belongs where -----------------------------------------------------------------------------------------------


def wanted() -> dict[Path, str]:
    """Every file that is made, and what should be in it."""
    return {**dict(_copies()), CHART / "values.schema.json": _schema_text(), **dict(_plain())}


def _copies() -> Iterator[tuple[Path, str]]:
    crds = sorted((PLAIN / "crds").glob("*.yaml"))
    for path in crds:
        yield CHART / "crds" / path.name, path.read_text("utf-8")
    whole = "---\n".join(path.read_text("utf-8") for path in crds)
    yield PLAIN / "00-crds.yaml", SAYS.format("deploy/kubernetes/crds") + whole
    for name, pattern in COPIED.items():
        for path in sorted((ROOT / "deploy" / name).glob(pattern)):
            yield CHART / "files" / name / path.name, path.read_text("utf-8")


def _plain() -> Iterator[tuple[Path, str]]:
    """The default render as files that `kubectl apply -f deploy/kubernetes/` takes; what is optional, in folders."""
    said = SAYS.format("deploy/helm/sickbay")
    for name, text in split(render("--set", "namespace.create=true")).items():
        yield PLAIN / name, said + text
    asked = split(render("--set", "quarantine.node=TARGET_NODE_NAME", "--set", "sweeper.enabled=true"))
    yield PLAIN / "jobs" / "quarantine.yaml", said + asked["quarantine.yaml"]
    yield PLAIN / "jobs" / "sweeper.yaml", said + asked["sweeper.yaml"]
    alone = split(render("--set", "settings.agent.mode=standalone", "--set", "controller.enabled=false"))
    yield PLAIN / "standalone" / "agent-rbac.yaml", said + alone["agent-standalone.yaml"]


def old() -> list[Path]:
    """Files that are not as they should be, and files that nobody makes any more."""
    made = wanted()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text("utf-8") != text]
    folders = {PLAIN, CHART / "crds", *(path.parent for path in made if "files" in path.parts)}
    extra = [path for folder in folders for path in folder.glob("*.y*ml") if path not in made]
    return sorted([*stale, *extra])


def write() -> None:
    for path, text in wanted().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


# --- the schema of the values -----------------------------------------------------------------------------------------


def _schema_text() -> str:
    path = CHART / "values.schema.json"
    tree = json.loads(path.read_text("utf-8"))
    tree["properties"]["settings"] = settings_schema()
    return json.dumps(tree, indent=2) + "\n"


def settings_schema() -> dict[str, Any]:
    """sickbay.toml as a JSON schema: a key that does not exist is refused before anything is installed."""
    top = {name: _value(Settings, name) for name in rules.hints(Settings) if name not in (*GROUPS, "pools")}
    groups = {name: _group(group) for name, group in GROUPS.items() if name}
    pool = {"type": "object", "properties": {"policy": _group(Policy)}, "additionalProperties": False}
    return {
        "description": "sickbay.toml, as YAML: docs/settings.md",
        "type": "object",
        "properties": {**top, **groups, "pool": {"type": "object", "additionalProperties": pool}},
        "additionalProperties": False,
    }


def _group(group: type[Any]) -> dict[str, Any]:
    keys = {name: _value(group, name) for name in rules.hints(group)}
    return {"type": "object", "properties": keys, "additionalProperties": False}


PLAIN_TYPES: Mapping[Any, dict[str, Any]] = {
    bool: {"type": "boolean"}, int: {"type": "integer"}, float: {"type": "number"}, str: {"type": "string"},
}  # fmt: skip


def _value(group: type[Any], name: str) -> dict[str, Any]:
    hint, row = rules.hints(group)[name], f"{group.__name__}.{name}"
    words = rules.CHOICES.get(row) if row not in rules.SPELLINGS else None
    if hint is Limit:
        return LIMIT
    if hint in PLAIN_TYPES:
        return {**PLAIN_TYPES[hint], **({"enum": list(words)} if words else {}), **_range(row, hint)}
    if get_origin(hint) is tuple:
        return {"type": "array", "items": {"enum": list(words)} if words else {"type": ["string", "integer"]}}
    if row == "Policy.per_window":
        counts = {"type": "integer", **_range(row, int)}
        return {"type": "object", "propertyNames": {"enum": list(rules.ACTS)}, "additionalProperties": counts}
    return {"type": "object"}


def _range(row: str, hint: object) -> dict[str, Any]:
    found = rules.range_of(row, hint) if hint in (int, float) else None
    return {"minimum": found[0], "maximum": found[1]} if found else {}


# A number of nodes, a share, or a table; each keyword of a schema holds for values of its own type only.
LIMIT: dict[str, Any] = {
    "type": ["integer", "string", "object"],
    **_range("Limit.count", int),
    "pattern": r"^\s*(100(\.0+)?|[0-9]{1,2}(\.[0-9]+)?)\s*%\s*$",
    "properties": {
        name: {**PLAIN_TYPES[kind], **_range(f"Limit.{name}", kind)} for name, kind in rules.hints(Limit).items()
    },
    "additionalProperties": False,
}


def main(argv: list[str]) -> int:
    if "--check" not in argv:
        write()
    stale = old()
    for path in stale:
        print(f"not as the chart makes it: {path.relative_to(ROOT)} (run tools/manifests, or remove it)")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
