"""Coverage-guided fuzzing of the parsers: `python tools/fuzz.py [RUNS]`, part of `make soak`. Needs atheris.

Each target runs in a process of its own, for RUNS inputs (100,000). It looks for two things that property tests find
late: an exception, and an input that takes longer than LIMIT_S. The recorded samples are the seeds when they are there.
That no text wrongly condemns a node is the property tests' matter (`pytest -k fuzz`).
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RUNS = 100_000
LIMIT_S = 5
MOST_BYTES = 4_096
# target -> (module, function, what it takes).
TARGETS = {
    "nvidia-smi": ("checks.nvidia_smi", "signs", "text"),
    "nvidia-smi csv": ("checks.smi_csv", "report", "text"),
    "topology": ("checks.topology_matrix", "matrix", "text"),
    "nvlink states": ("checks.nvlink", "states", "text"),
    "nvlink counters": ("checks.nvlink", "counters", "text"),
    "dcgm": ("checks.dcgm_output", "signs", "text"),
    "dcgm diag": ("checks.dcgm_diag", "signs", "text"),
    "dcgm health": ("checks.dcgm_health_report", "incidents", "text"),
    "dcgm metrics": ("checks.dcgm_metrics", "signs", "text"),
    "lspci": ("checks.efa_text", "listed", "text"),
    "fi_info": ("checks.efa_text", "domains", "text"),
    "rdma": ("checks.efa_text", "rdma_statistics", "text"),
    "ibstat": ("checks.infiniband_text", "printed_ports", "text"),
    "nccl": ("checks.nccl_text", "parse", "text"),
    "mounts": ("checks.mounts", "parse", "text"),
    "recognise": ("checks.recognise", "kind_of", "text"),
    "kernel log": ("checks.kernel_scan", "scan_lines", "lines"),
    "kmsg": ("hosts.kmsg", "parse", "bytes"),
    "profiles": ("catalog.profile_file", "read_profiles", "named"),
    "report": ("web.letters", "read_report", "letter"),
}


def one(target: str, arguments: list[str]) -> None:
    """This process: fuzz one target until libFuzzer has had enough."""
    atheris: Any = importlib.import_module("atheris")  # not a dependency: tools/atheris installs it

    module, name, takes = TARGETS[target]
    with atheris.instrument_imports(include=["sickbay"]):
        function = getattr(importlib.import_module(f"sickbay.{module}"), name)
        refused = _refusals()
    atheris.Setup([sys.argv[0], *arguments], lambda data: _fed(function, takes, data, refused))
    atheris.Fuzz()


def _refusals() -> tuple[type[Exception], ...]:
    """What a parser may raise: a sentence for whoever sent the text."""
    letters, errors = importlib.import_module("sickbay.web.letters"), importlib.import_module("sickbay.errors")
    return (letters.Refused, errors.SickbayError)


def _fed(function: Any, takes: str, data: bytes, refused: tuple[type[Exception], ...]) -> None:
    text = data.decode("utf-8", "replace")
    given: dict[str, tuple[Any, ...]] = {
        "text": (text,), "lines": (tuple(text.splitlines()),), "bytes": (data,), "named": (text, "profiles.conf"),
        "letter": (data, "node-1", "lab", 0.0),
    }  # fmt: skip
    try:
        found = function(*given[takes])
        if hasattr(found, "__next__"):
            list(found)
    except refused:
        return


def seeds(folder: Path) -> int:
    """Recorded outputs, cut to size, under plain numbers."""
    shared = Path(os.environ.get("SICKBAY_SHARED") or ROOT.parent / "shared") / "samples"
    files = [path for path in sorted(shared.rglob("*")) if path.is_file()] if shared.is_dir() else []
    for number, path in enumerate(files):
        (folder / str(number)).write_bytes(path.read_bytes()[:MOST_BYTES])
    return len(files)


def campaign(target: str, runs: int) -> tuple[bool, str]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "seeds"
        folder.mkdir()
        seeds(folder)
        flags = [f"-runs={runs}", f"-timeout={LIMIT_S}", f"-max_len={MOST_BYTES}", "-seed=7", "-rss_limit_mb=2048"]
        argv = [sys.executable, __file__, "--one", target, *flags, f"-artifact_prefix={made}/", str(folder)]
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", cwd=ROOT, check=False)
        count = re.findall(r"^Done (\d+) runs", done.stderr, re.MULTILINE)
        if done.returncode == 0 and count:
            return True, f"{int(count[-1]):,} inputs"
        bad = sorted(Path(made).glob("crash-*")) + sorted(Path(made).glob("timeout-*"))
        shown = f"; input: {bad[0].read_bytes()[:200]!r}" if bad else ""
        said = [line for line in done.stdout.splitlines() if line.strip()][-12:]  # the traceback, or nothing
        return False, "\n".join([*said, *done.stderr.splitlines()[-4:]]) + shown


def main() -> int:
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2], sys.argv[3:])
        return 0
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    good = True
    for target in TARGETS:
        begun = time.monotonic()
        passed, words = campaign(target, runs)
        good &= passed
        print(f"{'ok    ' if passed else 'BROKEN'} {target:16} {words}  {time.monotonic() - begun:.0f} s", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
