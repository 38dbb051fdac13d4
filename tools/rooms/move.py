#!/usr/bin/env python3
"""Move the files of Sickbay into their rooms (issue 10, section 1 (b)): `python3 move.py [TREE]`, on a fresh clone of main.

Reads moves.toml and patches.toml beside it. Moves with `git mv`, splits model.py and ports.py, and rewrites import lines,
dotted module names in strings and mentions of paths. Standard library only; ruff of the tree's .venv puts it in order at the end.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
import tokenize
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
TABLE = tomllib.loads((HERE / "moves.toml").read_text())
PATCHES = tomllib.loads((HERE / "patches.toml").read_text()) if (HERE / "patches.toml").exists() else {}
SPLIT = tomllib.loads((HERE / "split.toml").read_text())
SPLIT_FILES = {f"src/sickbay/{name}.py": f"src/sickbay/{name}/__init__.py" for name in SPLIT}
# Heads under which short dotted names ("core.admit") stand for modules; the others are groups of settings too.
SHORT = {"core", "checks", "sim", "platforms", "stores", "hosts", "controller", "web", "kube"}
NOT_MODULES = {"controller.log"}
TEXT = {".py", ".md", ".toml", ".yaml", ".yml", ".json", ".tpl", ".txt", ".sh", ".cfg", ""}
PROSE = {".py", ".md"}  # here a path may go without its suffix


def git(*args: str) -> str:
    return subprocess.run(["git", *args], cwd=TREE, check=True, capture_output=True, text=True).stdout


OLD = [
    name
    for name in git("ls-files").splitlines()
    if not name.startswith("tools/rooms/") and ((TREE / name).is_file() or (TREE / name).is_symlink())
]
if not (TREE / "src/sickbay/model.py").exists():
    sys.exit("this tree has been moved already: take a fresh clone")


def mapped() -> dict[str, str]:
    """Every file of the tree -> where it will be."""
    exact: dict[str, str] = dict(TABLE["files"])
    for rule in TABLE["into"]:
        for name in rule["names"]:
            short = name.removeprefix(rule.get("strip", "")) if name not in rule.get("keep", ()) else name
            exact[f"{rule['from']}/{name}.py"] = f"{rule['to']}/{short}.py"
    missing = [name for name in exact if name not in OLD]
    if missing:
        sys.exit(f"the table names what is not there: {missing}")
    made = {}
    for name in OLD:
        folders = [f for f in TABLE["folders"] if name.startswith(f + "/")]
        if name in exact:
            made[name] = exact[name]
        elif name in SPLIT_FILES:
            made[name] = SPLIT_FILES[name]
        elif folders and not (name.endswith("/__init__.py") and (TREE / name).stat().st_size == 0):
            best = max(folders, key=len)
            made[name] = TABLE["folders"][best] + name[len(best) :]
        else:
            made[name] = name
    targets: dict[str, str] = {}
    for old, new in made.items():
        if new in targets:
            sys.exit(f"{old} and {targets[new]} would both be {new}")
        targets[new] = old
    return made


FILES = mapped()


def dotted(path: str) -> str:
    return path.removeprefix("src/").removesuffix(".py").replace("/", ".").removesuffix(".__init__")


MODULES = {dotted(old): dotted(new) for old, new in FILES.items() if old.endswith(".py")}
PACKAGES = {dotted(old) for old in FILES if old.endswith("/__init__.py")}
for old_folder, new_folder in TABLE["folders"].items():  # packages whose own __init__.py is empty
    MODULES[dotted(old_folder)] = dotted(new_folder)
for name in ("sickbay.settings", "sickbay.wire"):  # packages that list what groups.py and records.py hold
    MODULES[name] = name
# Who takes such a package as a module object (`wire.SCHEMA`, which a test changes) gets the file that holds it.
WHOLE = {"sickbay.settings": "sickbay.settings.groups", "sickbay.wire": "sickbay.wire.records"}


def resolve(name: str) -> str:
    """A dotted name, which may go on after the module, as it is called from now on."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        head = ".".join(parts[:end])
        if head in MODULES:
            return ".".join([MODULES[head], *parts[end:]])
    return name


# --- import statements -------------------------------------------------------------------------------------------------


def absolute(node: ast.ImportFrom, file: str) -> str:
    if not node.level:
        return node.module or ""
    package = dotted(file).split(".")
    if not file.endswith("/__init__.py"):
        package = package[:-1]
    package = package[: len(package) - node.level + 1]
    return ".".join([*package, *([node.module] if node.module else [])])


def import_lines(node: ast.ImportFrom, file: str) -> list[str] | None:
    """The statement anew, one line for each module; None when nothing changes."""
    module = absolute(node, file)
    if module.split(".")[0] not in ("sickbay", "tests"):
        return None
    groups: dict[str, list[str]] = {}
    for alias in node.names:
        whole = f"{module}.{alias.name}"
        target = WHOLE.get(whole, MODULES.get(whole, whole))
        if whole in MODULES and target != whole:
            parent, _, name = target.rpartition(".")
            called = alias.asname or alias.name
            groups.setdefault(parent, []).append(name if name == called else f"{name} as {called}")
        else:
            parent = module if whole in MODULES else resolve(module)
            said = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
            groups.setdefault(parent, []).append(said)
    if list(groups) == [node.module] and not node.level:
        return None
    if node.level and FILES[file] == file and list(groups) == [module]:
        return None
    return [f"from {parent} import {', '.join(names)}" for parent, names in groups.items()]


def rewrite_imports(text: str, file: str) -> str:
    lines = text.splitlines(keepends=True)
    for node in sorted(
        (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom)), key=lambda n: -n.lineno
    ):
        new = import_lines(node, file)
        if new is None:
            continue
        assert node.end_lineno is not None
        indent = lines[node.lineno - 1][: node.col_offset]
        rest = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode().rstrip("\n")
        made = [f"{indent}{line}" for line in new]
        made = [line + (rest if rest.strip().startswith("#") else "") for line in made]
        if rest.strip() and not rest.strip().startswith("#"):
            sys.exit(f"{file}:{node.lineno}: {rest}")
        lines[node.lineno - 1 : node.end_lineno] = [line + "\n" for line in made]
    return "".join(lines)


# --- words in strings, comments and pages ------------------------------------------------------------------------------

DOTTED = re.compile(r"(?<![\w./-])(?:sickbay|tests)(?:\.[A-Za-z_]\w*)+")
FROM = re.compile(r"\bfrom (sickbay(?:\.\w+)*) import (\w+)(?= *[;\\\n\"'}]|$)(?! as)")
SHORTS = re.compile(r"(?<![\w./-])(" + "|".join(sorted(SHORT)) + r")(?:\.[a-z_][a-z_0-9]*)+")
PATH = re.compile(r"(?<![\w./-])((?:\.\./)*)((?:src/sickbay/|sickbay/)?[a-z_0-9]+(?:/[a-z_0-9]+)+)(\.py|\.toml)?(?![\w-]|/[\w])")
BARE = re.compile(r"(?<![\w./-])([a-z_0-9]+)\.(py|toml)(?![\w/])")
TOP = {"settings.py", "settings_load.py", "settings_env.py", "settings_rules.py", "settings_doc.py", "wire.py",
       "testimony.py", "model.py", "ports.py"}  # fmt: skip
LOG: list[str] = []


def shown(new: str) -> str:
    """A split file is now a folder."""
    return new.removesuffix("__init__.py") if new in SPLIT_FILES.values() else new


def say(file: str, old: str, new: str) -> str:
    if old != new:
        LOG.append(f"{file}: {old} -> {new}")
    return new


def words(text: str, file: str, *, code: bool = False, said: bool = False) -> str:
    """`code`: a string or comment of a Python file; `said`: one that only people read."""
    suffix = Path(file).suffix
    prose = suffix == ".md" or said

    def of_dotted(match: re.Match[str]) -> str:
        name = match[0]
        if name.endswith((".toml", ".py", ".md", ".db")):
            return name
        return say(file, name, resolve(name))

    def of_from(match: re.Match[str]) -> str:
        whole = f"{match[1]}.{match[2]}"
        if whole in MODULES and MODULES[whole] != whole:
            parent, _, name = MODULES[whole].rpartition(".")
            return say(file, match[0], f"from {parent} import {name}" + (f" as {match[2]}" if name != match[2] else ""))
        return match[0]

    def of_short(match: re.Match[str]) -> str:
        whole = "sickbay." + match[0]
        if match[0] in NOT_MODULES or whole.endswith((".py", ".toml")):
            return match[0]
        parts = whole.split(".")
        for end in range(len(parts), 2, -1):  # a module, never only a folder
            head = ".".join(parts[:end])
            if head in MODULES and (head not in PACKAGES or end == len(parts)):
                return say(file, match[0], resolve(whole).removeprefix("sickbay."))
        return match[0]

    def of_path(match: re.Match[str]) -> str:
        up, token, end = match[1], match[2], match[3] or ""
        if end or prose or token.startswith(("tests/", "src/")):
            for base in ("", "src/sickbay/", "tests/", *(("src/",) if end else ())):
                for tail in (end,) if end else (".py", "/__init__.py"):
                    old = base + token + tail
                    if old in FILES and not (tail == "/__init__.py" and base + token in TABLE["folders"]):
                        if FILES[old] == old:
                            return match[0]
                        new = shown(FILES[old]).removeprefix(base)
                        new = new if end else new.removesuffix(".py").removesuffix("/__init__")
                        return say(file, match[0], up + new)
                folder = base + token
                if not end and base != "src/" and folder in TABLE["folders"]:
                    return say(file, match[0], up + TABLE["folders"][folder].removeprefix(base))
        return match[0]

    def of_bare(match: re.Match[str]) -> str:
        name = match[0]
        folder = os.path.dirname(file)
        old = f"{folder}/{name}"
        if code and old in FILES and file in FILES:
            new = shown(FILES[old])
            if os.path.dirname(new) == os.path.dirname(FILES[file]):
                return say(file, name, os.path.basename(new))
            return say(file, name, new.removeprefix("src/sickbay/"))
        if name in TOP and not (code and old in FILES):
            return say(file, name, shown(FILES[f"src/sickbay/{name}"]).removeprefix("src/sickbay/"))
        return name

    if not file.startswith(("deploy/", "examples/")):
        text = FROM.sub(of_from, text)
        text = DOTTED.sub(of_dotted, text)
    if code or suffix == ".md":
        text = SHORTS.sub(of_short, text)
    text = PATH.sub(of_path, text)
    if prose:
        text = BARE.sub(of_bare, text)
    return text


def rewrite_words(text: str, file: str) -> str:
    """Only in strings and comments of a Python file; the rest of it is code."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    kinds = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1)}
    docs = inside_docstrings(text)
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(text).readline))):
        if token.type in kinds:
            begin, end = starts[token.start[0] - 1] + token.start[1], starts[token.end[0] - 1] + token.end[1]
            said = token.type == tokenize.COMMENT or (token.start[0] in docs and token.string.startswith('"""'))
            text = text[:begin] + words(text[begin:end], file, code=True, said=said) + text[end:]
    return text


PARENTS = re.compile(r"(Path\(__file__\)(?:\.resolve\(\))?\.parents\[)(\d+)(\])")


def deeper(text: str, old: str, new: str) -> str:
    more = new.count("/") - old.count("/")
    return PARENTS.sub(lambda m: f"{m[1]}{int(m[2]) + more}{m[3]}", text) if more else text


def file_table(text: str, file: str) -> str:
    """A table of the files of one folder, in a page: each by its way from there."""
    rows, home = [], ""
    for row in text.splitlines(keepends=True):
        if found := re.match(r"\| file in `(src/sickbay/\w+)/`", row):
            home = found[1]
        elif not row.startswith("|"):
            home = ""
        if home and row.count("|") > 2:
            first, names, rest = row.split("|", 2)
            names = BARE.sub(lambda m: say(file, m[0], _from_there(f"{home}/{m[0]}", home)), names)
            row = "|".join((first, names, rest))
        rows.append(row)
    return "".join(rows)


def _from_there(old: str, home: str) -> str:
    return os.path.relpath(FILES[old], home) if old in FILES else os.path.basename(old)


def rewrite(old: str, new: str) -> None:
    path = TREE / new
    if path.is_symlink() or path.suffix not in TEXT:
        return
    try:
        before = path.read_text("utf-8")
    except UnicodeDecodeError:
        return
    if new.endswith(".py"):
        text = rewrite_words(before, old)
        text = deeper(rewrite_imports(text, old), old, new)
    elif old == "CHANGELOG.md":
        return
    elif old.endswith(".toml"):
        text = "".join(words(line, old, said=line.startswith("#")) for line in before.splitlines(keepends=True))
    else:
        text = words(file_table(before, old) if old.endswith(".md") else before, old)
    if text != before:
        path.write_text(text, "utf-8")


# --- splitting model.py and ports.py -----------------------------------------------------------------------------------


def split(name: str) -> None:
    path = TREE / f"src/sickbay/{name}.py"
    source = rewrite_words(path.read_text(), f"src/sickbay/{name}.py")
    tree, lines = ast.parse(source), source.splitlines(keepends=True)
    home: dict[str, str] = {}
    files: dict[str, dict[str, object]] = SPLIT[name]["files"]
    for file, row in files.items():
        for noun in row["names"]:  # type: ignore[attr-defined]
            home[noun] = file
    head: dict[str, str] = {}  # a name that the old file imported -> the module it came from
    pieces: dict[str, list[tuple[str, ast.AST]]] = {file: [] for file in files}
    end = 0
    seen: set[str] = set()
    for node in tree.body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        begin = end
        end = node.end_lineno or first
        if isinstance(node, ast.Expr) or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            continue
        if isinstance(node, ast.ImportFrom):
            head |= {alias.name: node.module or "" for alias in node.names}
            continue
        noun = (
            node.name
            if isinstance(node, ast.ClassDef)
            else node.targets[0].id  # type: ignore[union-attr]
            if isinstance(node, ast.Assign)
            else node.target.id  # type: ignore[union-attr]
            if isinstance(node, ast.AnnAssign)
            else ""
        )
        if noun not in home:
            sys.exit(f"{name}.py: nobody takes {noun!r}")
        seen.add(noun)
        pieces[home[noun]].append(("".join(lines[begin:end]).strip("\n"), node))
    if seen != set(home):
        sys.exit(f"{name}.py has no {set(home) - seen}")
    git("rm", "-q", "--cached", f"src/sickbay/{name}.py")
    path.unlink()
    folder = TREE / f"src/sickbay/{name}"
    folder.mkdir()
    for file, row in files.items():
        used = {n.id for _, node in pieces[file] for n in ast.walk(node) if isinstance(n, ast.Name)}
        wanted: dict[str, set[str]] = {}
        for noun in used:
            if noun in head:
                wanted.setdefault(head[noun], set()).add(noun)
            elif noun in home and home[noun] != file:
                wanted.setdefault(f"sickbay.{name}.{home[noun]}", set()).add(noun)
        imports = "".join(f"from {m} import {', '.join(sorted(n))}\n" for m, n in sorted(wanted.items()))
        body = "\n\n\n".join(text for text, _ in pieces[file])
        (folder / f"{file}.py").write_text(
            f'"""{row["about"]}"""\n\nfrom __future__ import annotations\n\n{imports}\n\n{body}\n'
        )
    doc = ast.get_docstring(tree, clean=False)
    listing(folder, str(SPLIT[name].get("about") or doc), name, {f: [n for n in r["names"]] for f, r in files.items()})  # type: ignore[union-attr]


def listing(folder: Path, doc: str, package: str, names: dict[str, list[str]]) -> None:
    """An __init__ that lists what the files hold, so that `from sickbay.<package> import X` stays what it was."""
    lines = [f"from sickbay.{package}.{file} import {', '.join(sorted(n))}" for file, n in sorted(names.items())]
    every = sorted(noun for n in names.values() for noun in n)
    inner = "".join(f'    "{noun}",\n' for noun in every)
    text = f'"""{doc}"""\n\nfrom __future__ import annotations\n\n' + "\n".join(lines) + f"\n\n__all__ = [\n{inner}]\n"
    (folder / "__init__.py").write_text(text)


def public(path: Path) -> list[str]:
    found = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.append(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found.append(node.targets[0].id)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.append(node.target.id)
    return [name for name in found if not name.startswith("_")]


# --- lines that have become too long -----------------------------------------------------------------------------------

WIDTH = 120


def ruff(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([".venv/bin/ruff", *args], cwd=TREE, capture_output=True, text=True, check=False)


def too_long() -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in json.loads(ruff("check", "--select", "E501", "--output-format", "json", ".").stdout or "[]"):
        found.setdefault(row["filename"], []).append(row["location"]["row"])
    return found


def wrap() -> list[str]:
    """Prose that has grown over the margin: the last words go to the next line of its paragraph."""
    left = []
    for _ in range(60):
        again = False
        left = []
        for name, rows in too_long().items():
            path = Path(name)
            lines = path.read_text().splitlines()
            prose = inside_docstrings("\n".join(lines) + "\n")
            for row in sorted(rows, reverse=True):
                line = lines[row - 1]
                comment = line.lstrip().startswith("#")
                mutant = re.match(r'( +)(Mutant\("[^"]+",) (.+)$', line)
                if mutant:
                    lines[row - 1 : row] = [mutant[1] + mutant[2], mutant[1] + "       " + mutant[3]]
                    again = True
                    continue
                if not comment and row not in prose:
                    left.append(f"{path.relative_to(TREE)}:{row}: {line}")
                    continue
                indent = line[: len(line) - len(line.lstrip())]
                mark = "# " if comment else ""
                closing = '"""' if not comment and line.endswith('"""') and row in prose else ""
                inner = line[: -len(closing)] if closing else line
                cut = inner.rfind(" ", 0, WIDTH + 1 if not closing else WIDTH + 1)
                head, tail = inner[:cut].rstrip(), inner[cut:].strip() + closing
                if not head.strip(" #") or not tail:
                    left.append(f"{path.relative_to(TREE)}:{row}: {line}")
                    continue
                after = lines[row] if row < len(lines) else ""
                same = after.startswith(indent + mark) and after.strip(' #"') and after[len(indent) :][:1] != " "
                joins = (comment and same and after.lstrip().startswith("# ")) or (
                    not comment and not closing and row + 1 in prose and same
                    and not after.lstrip().startswith(("-", "*", '"""'))
                )  # fmt: skip
                if joins and not (comment and not after.lstrip().startswith("#")):
                    rest = after[len(indent) + len(mark) :]
                    lines[row - 1 : row + 1] = [head, f"{indent}{mark}{tail} {rest}"]
                else:
                    lines[row - 1 : row] = [head, f"{indent}{mark}{tail}"]
                again = True
            path.write_text("\n".join(lines) + "\n")
        if not again:
            break
    return left


def inside_docstrings(text: str) -> set[int]:
    rows: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
                rows |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return rows


# --- all of it ---------------------------------------------------------------------------------------------------------


def patch() -> None:
    (TREE / ".importlinter").write_text((HERE / "importlinter.ini").read_text())
    for row in PATCHES.get("replace", ()):
        path = TREE / row["file"]
        text = path.read_text()
        if row["old"] not in text:
            LOG.append(f"PATCH NOT FOUND {row['file']}: {row['old']!r}")
            print("patch not found:", row["file"], repr(row["old"]))
            continue
        path.write_text(text.replace(row["old"], row["new"]))


def main() -> None:
    for name in SPLIT:
        split(name)
    # Files leave for names that other old files or folders still have: all go to a place of their own first.
    moved = {old: new for old, new in FILES.items() if old != new and old not in SPLIT_FILES}
    away = {}
    for number, old in enumerate(moved):
        (TREE / ".moving").mkdir(exist_ok=True)
        away[old] = f".moving/{number}"
        git("mv", old, away[old])
    for old, new in moved.items():
        (TREE / new).parent.mkdir(parents=True, exist_ok=True)
        git("mv", away[old], new)
    for old, new in FILES.items():
        if old not in SPLIT_FILES:
            rewrite(old, new)
    for path, about in TABLE["packages"].items():
        if (TREE / path).exists() and (TREE / path).stat().st_size:
            sys.exit(f"{path} is there")
        (TREE / path).parent.mkdir(parents=True, exist_ok=True)
        (TREE / path).write_text(f'"""{about}"""\n')
    listing(TREE / "src/sickbay/settings", "Settings: what the files here know; groups.py holds the frozen groups.", "settings",
            {"groups": public(TREE / "src/sickbay/settings/groups.py")})  # fmt: skip
    listing(TREE / "src/sickbay/wire", "What travels and what is kept: records, what nodes answer, what of a report is believed.", "wire",
            {"records": public(TREE / "src/sickbay/wire/records.py")})  # fmt: skip
    for root in ("src/sickbay", "tests"):
        for folder, names, files in os.walk(TREE / root, topdown=False):
            names[:] = [n for n in names if n != "__pycache__"]
            here = Path(folder)
            holds = any(p.suffix == ".py" and p.name != "__init__.py" for p in here.rglob("*.py"))
            others = [f for f in files if f != "__init__.py"]
            if not holds and not others and not any((here / n).exists() for n in names):
                if (here / "__init__.py").exists():
                    (here / "__init__.py").unlink()
                if not any(here.iterdir()):
                    here.rmdir()
            elif holds and not (here / "__init__.py").exists():
                (here / "__init__.py").write_text("")
    patch()
    git("add", "-A", "src", "tests")
    git("reset", "-q", "--", ".venv") if (TREE / ".venv").is_symlink() else None
    ruff("check", "-q", "--fix", "--select", "I,RUF022", ".")
    ruff("format", "-q", ".")
    left = wrap()
    ruff("format", "-q", ".")
    git("add", "-u", ".")
    (HERE / "log.txt").write_text("\n".join(LOG) + "\n")
    print(f"{len(moved)} files moved, {len(LOG)} words rewritten (log.txt); too long still: {len(left)}")
    print("\n".join(left))


main()
