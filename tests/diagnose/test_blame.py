"""Who is to blame for a job: a user's bug is never called hardware, and we say when we do not know."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from sickbay.catalog.blame import PATTERNS, BlameRule
from sickbay.catalog.reading import read_catalog, shipped
from sickbay.core.blame import SURE, blame
from sickbay.errors import ConfigError
from sickbay.model import Blame
from tests.checks import samples
from tests.diagnose.builders import CATALOG

TRACEBACK = """Traceback (most recent call last):
  File "/home/ann/train.py", line {line}, in <module>
    main()
  File "/home/ann/train.py", line 80, in main
    x = batch["labels"]
{error}"""


def verdict(text: str) -> Blame:
    return blame(text.splitlines()).blame


@pytest.mark.parametrize(
    ("text", "who"),
    [
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", Blame.HARDWARE),
        ("[rank3]: torch.AcceleratorError: CUDA error: uncorrectable NVLink error detected", Blame.HARDWARE),
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", Blame.HARDWARE),
        ("NVRM: Xid (PCI:0000:3b:00): 45, pid=1, name=python3, Ch 1 caused by previous Xid 149", Blame.HARDWARE),
        ("NCCL WARN NET/IB : Got completion from peer with error 12, opcode 0", Blame.INFRASTRUCTURE),
        ("OSError: [Errno 28] No space left on device: '/ckpt'", Blame.INFRASTRUCTURE),
        ("OSError: [Errno 116] Stale file handle", Blame.INFRASTRUCTURE),
        ("slurmstepd: error: *** JOB 7 CANCELLED DUE TO NODE FAILURE ***", Blame.INFRASTRUCTURE),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", Blame.USER_CODE),
        ("RuntimeError: CUDA error: device-side assert triggered", Blame.USER_CODE),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x5 and 6x7)", Blame.USER_CODE),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=9, name=python3, MMU Fault", Blame.USER_CODE),
        ("[Rank 4] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=610)", Blame.UNKNOWN),
        ("step 100 loss 2.31", Blame.UNKNOWN),
        ("", Blame.UNKNOWN),
    ],
)
def test_each_kind_of_evidence_blames_the_right_one(text: str, who: Blame) -> None:
    assert verdict(text) is who


def test_a_traceback_with_an_application_xid_is_user_code() -> None:
    log = TRACEBACK.format(line=3, error="KeyError: 'labels'") + "\nNVRM: Xid (PCI:0000:3b:00): 13, Graphics Exception"
    told = blame(log.splitlines())
    assert told.blame is Blame.USER_CODE
    assert told.confidence >= SURE
    assert "KeyError: 'labels'" in told.because


@pytest.mark.parametrize(
    "line",
    [
        "No Xid 79 errors found",
        "checking for Xid 48 ...",
        "INFO uncorrectable ECC errors: 0",
        "test: GPU is lost is handled",
    ],
)
def test_talk_about_an_error_is_not_an_error(line: str) -> None:
    assert verdict(line) is Blame.UNKNOWN


def test_the_same_traceback_has_the_same_signature_whatever_its_numbers() -> None:
    one = blame(TRACEBACK.format(line=3, error="ValueError: step 10 at 0xfe").splitlines()).traceback
    two = blame(
        [f"[rank7]: {line}" for line in TRACEBACK.format(line=9, error="ValueError: step 99 at 0xab").splitlines()]
    ).traceback
    assert one == two != ""
    assert one != blame(TRACEBACK.format(line=3, error="ValueError: other").splitlines()).traceback


def test_the_recorded_job_logs_are_blamed_well_and_no_user_bug_is_hardware(capsys: pytest.CaptureFixture[str]) -> None:
    names = {"infra": "infrastructure"}
    table = Counter(
        (names.get(row["label"], row["label"]), verdict(row["log"]).value) for row in samples.rows("joblogs.jsonl")
    )
    with capsys.disabled():
        print(
            "\njoblogs.jsonl (truth, verdict): " + ", ".join(f"{a} -> {b} {n}" for (a, b), n in sorted(table.items()))
        )
    assert not any(said == "hardware" and truth != "hardware" for truth, said in table)
    right = sum(n for (truth, said), n in table.items() if truth == said)
    assert right >= 0.9 * table.total()


def test_the_verdict_comes_from_the_table_it_is_given() -> None:
    mine = BlameRule("coffee machine", Blame.INFRASTRUCTURE, 0.8, "a test")
    table = replace(CATALOG.blame, rules=(mine,), hardware_xids=frozenset({13}))
    assert blame(["the coffee machine is broken"], table).blame is Blame.INFRASTRUCTURE
    assert blame(["NVRM: Xid (PCI:0000:3b:00): 13, x"], table).blame is Blame.HARDWARE
    assert blame(["the coffee machine is broken"]).blame is Blame.UNKNOWN


def test_every_pattern_of_the_shipped_table_is_one_and_cites_its_source() -> None:
    table = CATALOG.blame
    assert len(table.rules) > 20
    for text in (*(rule.pattern for rule in table.rules), *(getattr(table, name) for name in PATTERNS)):
        re.compile(text)
    assert all(rule.source for rule in table.rules)
    assert not table.hardware_xids & table.application_xids


def test_no_xid_that_blames_hardware_is_an_application_fault_in_the_catalog() -> None:
    faults = {number: CATALOG.fault_of(f"xid.{number}") for number in CATALOG.blame.hardware_xids}
    assert [n for n, fault in faults.items() if fault is None or fault.kind == "application"] == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ('[[rules]]\npattern = "x"\nblame = "aliens"\nweight = 0.5\nsource = "plan"', "blame"),
        ('[[rules]]\npattern = "x"\nblame = "hardware"\nweight = 1.5\nsource = "plan"', "weight"),
        ('[[rules]]\npattern = "x"\nblame = "hardware"\nweight = 0.5', "source"),
        ('[[rules]]\npattern = "x"\nblame = "hardware"\nweight = 0.5\nsource = "plan"\ncolour = 1', "colour"),
    ],
)
def test_a_broken_row_of_the_table_is_refused_in_plain_words(wrong: str, says: str) -> None:
    with pytest.raises(ConfigError, match=rf"blame.toml: .*{says}"):
        read_catalog(lambda file: shipped(file) + (f"\n{wrong}\n" if file == "blame.toml" else ""))


@pytest.mark.parametrize("said", ["an illegal memory access was encountered", "unspecified launch failure"])
def test_a_cuda_error_that_a_sick_gpu_prints_too_is_no_sure_bug_of_the_program(said: str) -> None:
    told = blame(
        [
            "Traceback (most recent call last):",
            '  File "/app/train.py", line 9, in main',
            f"RuntimeError: CUDA error: {said}",
        ]
    )
    assert told.blame is Blame.USER_CODE
    assert told.confidence < SURE  # so the job is restarted once before anybody gives it up
