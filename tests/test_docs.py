"""The documents say what the code does: everything a person can meet has its words, and every word leads somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sickbay import cli, settings_load
from sickbay.catalog import load
from sickbay.model import Phase, RecoveryPhase, Verb
from sickbay.settings import Settings
from tests.cli.builders import run_command
from tools import docs

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SETTINGS = (DOCS / "settings.md").read_text()
README = (ROOT / "README.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def commands_in_readme() -> Iterator[list[str]]:
    """Each `sickbay ...` line of the README's code blocks, as words, without what a person fills in."""
    for line in re.findall(r"^    (?:.*\| )?(sickbay .*?)(?:  #.*)?$", README, re.MULTILINE):
        yield shlex.split(line, comments=True)[1:]


@pytest.mark.parametrize("name", [*Phase, *RecoveryPhase, *Verb])
def test_every_phase_and_verb_has_its_words(name: str) -> None:
    rows = [line for line in (DOCS / "cases.md").read_text().splitlines() if line.startswith(f"| `{name}` |")]
    assert rows, f"docs/cases.md has no row about {name}"
    assert all(len(row.split("|")[2].split()) >= 1 for row in rows)


def test_every_setting_has_its_words() -> None:
    rows = {line.split("|")[1].strip(" `"): line for line in SETTINGS.splitlines() if line.startswith("| `")}
    for key in settings_load.flat(Settings()):
        words = rows[key.rpartition(".")[2]].split("|")[-2]
        assert len(words.split()) >= 2, key


def test_the_pages_made_from_code_are_up_to_date() -> None:
    stale = [path.name for path, text in docs.pages().items() if path.read_text() != text]
    assert stale == [], "run `make docs`"


def test_every_fault_has_its_runbook() -> None:
    index = (DOCS / "runbooks" / "README.md").read_text()
    for fault in load().faults:
        assert (DOCS / "runbooks" / f"{fault}.md").is_file(), fault
        assert f"({fault}.md)" in index


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_is_in_the_readme(name: str) -> None:
    said = {words[0] for words in commands_in_readme()} | set(re.findall(r"`sickbay ([a-z]+)", README))
    assert name in said or f"make {name}" in README


@pytest.mark.parametrize("words", list(commands_in_readme()), ids=" ".join)
def test_every_command_line_in_the_readme_exists(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    grouped = words[0] in {name for name, row in cli.COMMANDS.items() if row.target.endswith(":app")}
    path = words[: 2 if grouped else 1]
    said = run_command(capsys, *path, "--help")
    assert said.code == 0, f"sickbay {' '.join(path)}"
    for option in (word for word in words if word.startswith("--")):
        assert option in said.out, f"sickbay {' '.join(path)} has no {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_make_target_named_in_a_page_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"(?:^    |`)make ([a-z]+)", page.read_text(), re.MULTILINE))
        assert named <= targets, page.name


def test_the_ci_runs_make_test() -> None:
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "exec make test"


def test_the_lock_file_names_no_index_and_checks_every_hash() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    pinned = [part for part in re.split(r"\n(?=\S)", lock) if part.strip()]
    assert all("==" in part and "--hash=sha256:" in part for part in pinned)


def test_no_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    paths = "(^|[^A-Za-z0-9_./-])/" + "(work|farm)/"
    found = subprocess.run(["git", "grep", "-nIE", paths], cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode > 1:
        pytest.skip(f"not a git checkout: {found.stderr.strip()}")
    assert found.stdout == ""
