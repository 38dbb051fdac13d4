"""Every recorded nvidia-smi output has its verdict here; one without a row fails the test. The records are not copied.

A verdict is the set of codes found. HEALTHY: none. UNKNOWN: we say that we cannot tell (a table or a list holds no
reading of any GPU's health).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from sickbay.catalog import load
from sickbay.checks import gpu_processes, gpu_slowdown, nvidia_smi, nvlink, nvlink_errors, pcie, smi_csv, topology
from sickbay.checks.signs import Ask, Reading, Sign
from sickbay.model import Status
from sickbay.ports import Completed
from tests.checks import samples
from tests.checks.test_topology import printed_matrix

HEALTHY: frozenset[str] = frozenset()
UNKNOWN = frozenset({"unknown"})
PERSISTENCE = frozenset({"smi.persistence-off"})
LEFTOVER = frozenset({"smi.leftover-process"})

HOSTS = (
    "nvidia-geforce-rtx-2080-super__595.71.05", "nvidia-geforce-rtx-2080-super__610.57.04",
    "nvidia-geforce-rtx-4080-super__595.71.05", "nvidia-h100-80gb-hbm3__590.48.01", "nvidia-h100-mig__590.48.01",
    "nvidia-h200-mig__590.48.01", "nvidia-h200__590.48.01", "nvidia-l40s__595.80",
)  # fmt: skip
OF_EACH_HOST = {
    "idle__q.txt": HEALTHY,
    "idle__query-compute-apps.csv": HEALTHY,
    "idle__query-gpu.csv": HEALTHY,
    "idle__table.txt": UNKNOWN,
    "load__q.txt": HEALTHY,
    "load__query-compute-apps.csv": LEFTOVER,
    "load__query-gpu.csv": HEALTHY,
    "load__table.txt": UNKNOWN,
    "misc__L.txt": UNKNOWN,
    "misc__nvlink-s.txt": HEALTHY,
    "misc__topo-m.txt": HEALTHY,
}
VERDICTS = {f"{host}__{file}": verdict for host in HOSTS for file, verdict in OF_EACH_HOST.items()}
VERDICTS |= {f"captures/linux-x86_64__{host}.txt": HEALTHY for host in HOSTS}
VERDICTS |= {
    f"nvidia-l40s__595.80__{file}": PERSISTENCE
    for file in ("idle__q.txt", "load__q.txt", "idle__query-gpu.csv", "load__query-gpu.csv")
}
VERDICTS |= {
    "captures/linux-x86_64__nvidia-l40s__595.80.txt": PERSISTENCE,
    "nvidia-geforce-rtx-4080-super__595.71.05__idle__query-compute-apps.csv": LEFTOVER,  # a desktop's compositor
    "bugreport.duaneya.440.31.0.q.txt": HEALTHY,
    "bugreport.eler.384.59.0.q.txt": HEALTHY,
    "bugreport.marwank270.510.73.0.q.txt": HEALTHY,
    "gpud/nvidia-smi.nvlink.status.a100": HEALTHY,
    "q.ecc-unknown-error.h100.550.90.07.txt": frozenset({"smi.remap-pending", "smi.unknown-error"}),
    "stas00.debug-md.blocks.txt": frozenset({"smi.remap-pending"}),
    "nvlink-e.samples.txt": frozenset({"smi.nvlink-errors"}),  # by section below
    "topo-m.samples.txt": HEALTHY,  # by section below
    "failures.jsonl": HEALTHY,  # by row below
    "virtualclient.query-c2c-multiple-gpu.txt": HEALTHY,
    "virtualclient.query-c2c.txt": HEALTHY,
    "virtualclient.query-gpu-1xH100.csv": frozenset({"smi.ecc-volatile"}),
    "virtualclient.query-gpu-1xT4-NA.csv": frozenset({"smi.ecc-volatile"}),
    "virtualclient.query-gpu-8xH100.csv": HEALTHY,
    "xml/netdata.a100-sxm4-mig.xml": PERSISTENCE,
    "xml/netdata.rtx-2080-win.xml": HEALTHY,
    "xml/netdata.rtx-3060.xml": HEALTHY,
    "xml/netdata.rtx-4090-driver-535.xml": HEALTHY,
    "xml/netdata.rtx-pro-6000-driver-580.xml": HEALTHY,
    "xml/netdata.tesla-p100.xml": PERSISTENCE,
    "xml/telegraf.a100-sxm4-v12.xml": PERSISTENCE,
    "xml/telegraf.a10g.xml": PERSISTENCE,
    "xml/telegraf.gtx-1070-ti.xml": HEALTHY,
    "xml/telegraf.gtx-1660-ti.xml": PERSISTENCE,
    "xml/telegraf.quadro-p2000-v12.xml": HEALTHY,
    "xml/telegraf.quadro-p400.xml": PERSISTENCE,
    "xml/telegraf.rtx-3060-v12.xml": HEALTHY,
    "xml/telegraf.rtx-3080-v12.xml": HEALTHY,
    "xml/telegraf.rtx-3080-v13.xml": HEALTHY,
    "xml/telegraf.rtx-3090-v12.xml": HEALTHY,
    "xml/telegraf.rtx-4000-sff-ada-v13.xml": HEALTHY,
    "xml/telegraf.tesla-t4.xml": PERSISTENCE,
}

# kind of a row of failures.jsonl -> what it must be found to be
FAILURES = {
    "gpu_lost": {"smi.gpu-lost"},
    "handle_not_found": {"smi.gpu-lost"},
    "handle_unknown_error": {"smi.gpu-lost"},
    "handle_unknown_error_partial_csv": {"smi.gpu-lost"},
    "handle_unknown_error_partial_list": {"smi.gpu-lost"},
    "gpu_lost_partial_csv": {"smi.gpu-lost"},
    "no_devices": {"smi.gpu-missing"},
    "driver_lib_mismatch": {"unknown"},
    "nvml_unknown_error": {"unknown"},
    "driver_not_loaded": {"unknown"},
    "inforom_warning": {"smi.inforom-corrupt"},
    "gpu_recovery_action_reset": {"smi.recovery-action-reset"},
    "field_unknown_error": {"unknown"},
}

# words in a section's heading -> the profile it is judged by, and what it must be found to be
SECTIONS = {
    "topo_parser_test.go": ("dgx-h100", HEALTHY),
    "nccl/issues/707": ("dgx-a100", HEALTHY),
    "DeepEP/issues/145": ("dgx-h100", HEALTHY),
    "sglang/issues/13973": ("dgx-h100", HEALTHY),
    "DeepEP/issues/128": ("dgx-h100", frozenset({"smi.nvlink-absent"})),
    "k8s-test-infra/issues/371": ("dgx-h100", UNKNOWN),  # nvlink -s, no matrix
    "utkuozdemir/nvidia_gpu_exporter": ("dgx-h100", UNKNOWN),  # a remark, no output
}


def codes(signs: list[Sign]) -> frozenset[str]:
    """Unknown is the verdict where nothing else is."""
    blind = {"unknown"} if any(sign.status is Status.UNKNOWN for sign in signs) else set()
    return frozenset({sign.code for sign in signs if sign.status is not Status.UNKNOWN} or blind)


def reading(text: str) -> Reading:
    return Reading(Completed(0, text, ""))


def by_q(text: str, file: Path) -> list[Sign]:
    """A single look never knows whether a slowdown lasts, so gpu-slowdown must have nothing to say either."""
    return [*nvidia_smi.signs(text), *gpu_slowdown.judge(reading(text), Ask())]


def by_csv(text: str, file: Path) -> list[Sign]:
    return [*nvidia_smi.signs(text), *pcie.judge(reading(text), Ask())]


def by_apps(text: str, file: Path) -> list[Sign]:
    return gpu_processes.judge(reading(text), Ask(suite="prolog"))


def by_links(text: str, file: Path) -> list[Sign]:
    """The state of links is judged beside the matrix of the same host, or of one with as many GPUs."""
    beside = file.with_name(file.name.replace("nvlink-s", "topo-m"))
    shown = beside.read_text() if beside != file else printed_matrix(len(nvlink.states(text)), "NV12")
    links = {"nvlink": Completed(0, text, "")}
    return topology.judge(Reading(Completed(0, shown, ""), outputs=links), Ask())


def by_matrix(text: str, file: Path) -> list[Sign]:
    return topology.judge(reading(text), Ask())


def by_errors(text: str, file: Path) -> list[Sign]:
    return nvlink_errors.judge(reading(text), Ask())


# words in a file's path -> how it is judged; the first that fits
JUDGES: tuple[tuple[str, Callable[[str, Path], list[Sign]]], ...] = (
    ("query-compute-apps", by_apps),
    ("query-gpu", by_csv),
    ("nvlink-s", by_links),
    ("nvlink.status", by_links),
    ("query-c2c", by_links),
    ("nvlink-e", by_errors),
    ("topo-m", by_matrix),
    ("", by_q),
)


def files() -> list[Path]:
    return sorted(path for path in (samples.folder() / "smi").rglob("*") if path.is_file())


def test_every_recorded_output_is_judged_as_its_content_says() -> None:
    root, wrong = samples.folder() / "smi", dict[str, object]()
    for file in files():
        name = file.relative_to(root).as_posix()
        judge = next(judge for words, judge in JUDGES if words in name)
        found = codes(judge(file.read_text(errors="replace"), file)) if name != "failures.jsonl" else HEALTHY
        if name not in VERDICTS or found != VERDICTS[name]:
            wrong[name] = (sorted(found), VERDICTS.get(name, "no row for this file"))
    assert wrong == {}


def test_every_row_of_the_table_above_is_a_file() -> None:
    root = samples.folder() / "smi"
    assert sorted(VERDICTS) == sorted(file.relative_to(root).as_posix() for file in files())


def test_every_recorded_failure_is_what_its_kind_says() -> None:
    for row in samples.rows("smi/failures.jsonl"):
        asked = re.search(r"--query-gpu=(\S+) .*noheader", row.get("cmd", ""))
        signs = nvidia_smi.signs(_with_header(row["text"], asked[1]) if asked else row["text"])
        assert codes(signs) == FAILURES[row["kind"]], row


def _with_header(text: str, fields: str) -> str:
    assert smi_csv.report(text, fields.split(",")).cards
    return f"{fields.replace(',', ', ')}\n{text}"


@pytest.mark.parametrize(("words", "profile", "verdict"), [(w, *told) for w, told in SECTIONS.items()])
def test_each_recorded_matrix_is_judged_by_the_profile_of_its_machine(
    words: str, profile: str, verdict: frozenset[str]
) -> None:
    whole = (samples.folder() / "smi/topo-m.samples.txt").read_text()
    sections = [part for part in whole.split("##### ") if words in part.partition("\n")[0]]
    (section,) = sections
    assert codes(topology.judge(reading(section), Ask(profile=load().profiles[profile]))) == verdict


def test_every_section_of_the_recorded_matrices_has_its_row() -> None:
    whole = (samples.folder() / "smi/topo-m.samples.txt").read_text()
    heads = [part.splitlines()[0] for part in whole.split("##### ") if part.strip()]
    assert [head for head in heads if not any(words in head for words in SECTIONS)] == []


def test_only_the_full_counter_of_the_recorded_error_counters_is_a_finding() -> None:
    whole = (samples.folder() / "smi/nvlink-e.samples.txt").read_text()
    for part in (part for part in whole.split("##### ") if part.strip()):
        signs = nvlink_errors.judge(reading(part), Ask())
        assert [sign.code for sign in signs] == (["smi.nvlink-errors"] if "V100" in part else []), part
        assert nvlink.counters(part), part
