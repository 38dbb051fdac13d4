"""The Dockerfile, as far as it can be held to its word without a container engine."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

import pytest

from tools.manifests import ROOT

IMAGES = ROOT / "deploy/images"
KNOWN = {"ARG", "FROM", "RUN", "COPY", "ENV", "WORKDIR", "USER", "CMD", "ENTRYPOINT"}
Stage = list[tuple[str, str]]


def steps() -> Iterator[tuple[str, str]]:
    """Instructions with their arguments; continued lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word, re.sub(r"\s+", " ", rest)


def stages() -> dict[str, Stage]:
    found: dict[str, Stage] = {}
    name = ""
    for word, rest in steps():
        if word == "FROM":
            name = rest.partition(" AS ")[2]
        found.setdefault(name, []).append((word, rest))
    return found


def locked(name: str) -> dict[str, str]:
    """package -> its whole row, version and hashes."""
    text = (ROOT / name).read_text()
    rows = re.split(r"\n(?=[a-z0-9])", text.strip())
    return {row.partition("==")[0]: re.sub(r"\s+", " ", row) for row in rows}


def test_every_instruction_is_one_and_every_stage_exists() -> None:
    assert {word for word, _ in steps()} <= KNOWN
    known = stages()
    assert list(known)[-2:] == ["agent", "controller"]
    for stage in known.values():
        for word, rest in stage:
            if source := re.search(r"--from=(\S+)", rest):
                assert source.group(1) in known
            if word == "COPY" and "--from" not in rest:
                for path in rest.split()[:-1]:
                    assert (ROOT / path).exists(), path


def test_what_is_copied_reaches_the_builder() -> None:
    let = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for word, rest in steps():
        if word == "COPY" and "--from" not in rest:
            for path in rest.split()[:-1]:
                assert any(path == one or path.startswith(f"{one}/") for one in let), path


def test_only_pinned_things_are_fetched_and_none_without_its_hash() -> None:
    for word, rest in steps():
        if word == "FROM" and not any(rest.startswith(f"{name} ") for name in stages()):
            assert rest.startswith("docker.io/library/python:${PYTHON_TAG}")
        if "pip" in rest and " install " in rest:
            for command in (one for one in rest.split("&&") if " install " in one):
                assert "--no-deps" in command
                assert "--require-hashes" in command or "--no-index" in command
        assert not re.search(r"\b(apt-get|apk|curl|wget|git clone|ADD)\b", f"{word} {rest}")
    pinned = r"^ARG PYTHON_TAG=3\.11\.\d+-slim-\w+@sha256:[0-9a-f]{64}$"
    assert re.search(pinned, (ROOT / "Dockerfile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("image", ["agent", "controller", "build"])
def test_the_images_locks_are_parts_of_the_lock_file(image: str) -> None:
    """If this fails: make lock."""
    whole, part = locked("requirements.lock"), locked(f"deploy/images/{image}.lock")
    assert part
    for package, row in part.items():
        version = re.compile(r"==(\S+)")
        assert version.findall(row)[0] == version.findall(whole[package])[0], package
        assert set(re.findall(r"sha256:\w+", row)) <= set(re.findall(r"sha256:\w+", whole[package])), package


@pytest.mark.parametrize(
    ("image", "extras", "not_there"),
    [
        ("agent", ("agent", "nvml"), {"boto3", "apprise", "starlette", "pytest", "moto", "numpy"}),
        ("controller", ("agent", "kubernetes", "aws", "notify", "web"), {"pytest", "moto", "numpy", "hypothesis"}),
    ],
)
def test_an_image_has_what_its_part_needs_and_nothing_of_the_others(
    image: str, extras: tuple[str, ...], not_there: set[str]
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(one for extra in extras for one in project["optional-dependencies"][extra])]
    there = set(locked(f"deploy/images/{image}.lock"))
    assert {re.split(r"[\[>=<]", one)[0] for one in wanted} <= there
    assert not there & not_there


def test_the_controller_is_nobody_and_neither_image_can_install_anything() -> None:
    known = stages()
    assert ("USER", "65532:65532") in known["controller"]
    assert ("USER", "0:0") in known["agent"]
    removed = " ".join(rest for word, rest in known["base"] if word == "RUN")
    for tool in ("site-packages/*", "ensurepip", "/usr/local/bin/pip*", "/usr/bin/apt*", "/usr/bin/dpkg*"):
        assert tool in removed
    for target in ("agent", "controller"):
        assert known[target][0][1].startswith("base ")
        assert any(word == "RUN" and "--help" in rest for word, rest in known[target])  # it starts, or is not built
