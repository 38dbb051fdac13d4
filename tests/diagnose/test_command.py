"""`sickbay diagnose`: the words, the JSON, the exit codes, and every kind of broken input."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sickbay.checks.recognise import kind_of
from sickbay.cli import diagnose as cli
from sickbay.cli.diagnose_input import blocks
from sickbay.errors import InputError
from tests.checks import samples
from tests.checks.test_dcgm_diag import PASS, failed, result
from tests.checks.test_nvidia_smi import text as smi_text

LOST = "Nov 22 14:56:44 gpu-7 kernel: [94555.573305] NVRM: Xid (PCI:0000:3B:00): 79, pid=1, GPU has fallen off the bus."
CALM = "Nov 22 14:56:40 gpu-7 kernel: [94550.573305] usb 1-1.3: new high-speed USB device number 4 using xhci_hcd"


@pytest.fixture
def put(tmp_path: Path) -> Any:
    def write(content: str | bytes, name: str = "input") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def objects(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_sick_log_is_told_in_words_with_the_quoted_line(put: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([put(f"{CALM}\n{LOST}\n")]) == 1
    said = capsys.readouterr().out
    for part in ("gpu-7 GPU 0000:3b:00", "REBOOT", "gpu-lost", "has fallen off the bus", "  do  ", "XID 79"):
        assert part in said


def test_the_json_has_exactly_the_promised_fields(put: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([put(LOST)], as_json=True) == 1
    (told,) = objects(capsys)
    assert list(told) == ["fault", "code", "place", "severity", "when", "action", "confidence", "because"]
    assert told["place"] == {"node": "gpu-7", "device": "0000:3b:00"}
    assert (told["fault"], told["code"], told["severity"], told["when"]) == ("gpu-lost", "xid.79", "REBOOT", "now")
    assert told["action"]
    assert told["because"] == [LOST]


def test_lines_are_numbered_from_one_and_only_those_that_carry_something(
    put: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([put(f"{CALM}\n{LOST}\n{CALM}\n{LOST}\n")], lines=True) == 1
    row = {"code": "xid.79", "device": "0000:3b:00", "severity": "REBOOT"}
    assert objects(capsys) == [{"line": 2, **row}, {"line": 4, **row}]


def test_a_healthy_log_is_healthy(put: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([put(f"{CALM}\n" * 20)]) == 0
    assert "nothing wrong found" in capsys.readouterr().out
    assert cli.run([put(f"{CALM}\n" * 20)], as_json=True) == 0
    assert objects(capsys) == []


def test_a_job_log_names_who_is_to_blame(put: Any, capsys: pytest.CaptureFixture[str]) -> None:
    log = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n    f()\nKeyError: 7\n'
    assert cli.run([put(log)], as_json=True) == 1
    (told,) = objects(capsys)
    assert (told["blame"], told["severity"]) == ("user-code", "MONITOR")
    assert "KeyError: 7" in told["because"]


def test_a_job_log_that_explains_nothing_says_unknown(put: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cli.run([put("epoch 1 step 3 loss 0.4\n[rank1] Watchdog caught collective operation timeout\n")], as_json=True)
    assert [told["blame"] for told in objects(capsys)] == ["unknown"]


@pytest.mark.parametrize(
    ("content", "code", "fault"),
    [
        (smi_text({}, {"failed": "Yes"}), 1, "row-remap-failed"),
        (result(PASS, failed(80)), 1, "row-remap-failed"),
        ('DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="0",Hostname="h"} 1\n', 1, "row-remap-failed"),
        (smi_text({}), 0, ""),
        (  # listed, and nothing about their health: could not look is never a pass
            "<nvidia_smi_log><attached_gpus>8</attached_gpus>" + "<gpu></gpu>" * 8 + "</nvidia_smi_log>",
            1,
            "monitor-sick",
        ),
        (result(PASS), 0, ""),
        ('DCGM_FI_DEV_GPU_TEMP{gpu="0"} 40\n', 0, ""),
    ],
)
def test_each_kind_is_recognised(
    put: Any, capsys: pytest.CaptureFixture[str], content: str, code: int, fault: str
) -> None:
    assert cli.run([put(content)], as_json=True) == code
    assert [told["fault"] for told in objects(capsys)] == ([fault] if fault else [])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n  \n",
        b"\x00\x01\x02" * 5000,
        b"\x7fELF" + bytes(range(256)) * 40,
        b"just some prose, no log\n",
        b"\x1f\x8bnot gzip",
    ],
)
def test_what_cannot_be_read_gets_a_sentence_and_exit_code_two(
    put: Any, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    assert cli.run([put(content)]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("sickbay: ")
    assert "Traceback" not in said.err


def test_a_missing_file_a_folder_and_a_wrong_kind_are_said_plainly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([tmp_path / "nowhere"]) == 2
    assert cli.run([tmp_path]) == 2
    assert "No such file" in capsys.readouterr().err
    with pytest.raises(InputError, match="no such kind"):
        cli.command([tmp_path], kind="horoscope")


def test_one_unreadable_file_does_not_silence_the_others(
    put: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([put(LOST), tmp_path / "nowhere"]) == 2
    assert "gpu-lost" in capsys.readouterr().out


def test_packed_logs_are_unpacked_also_when_several_were_joined(put: Any, capsys: pytest.CaptureFixture[str]) -> None:
    packed = gzip.compress(f"{CALM}\n".encode() * 50) + gzip.compress(f"{LOST}\n".encode())
    assert cli.run([put(packed, "kern.log.gz")], as_json=True) == 1
    assert [told["code"] for told in objects(capsys)] == ["xid.79"]


def test_outputs_given_together_are_read_together(put: Any, capsys: pytest.CaptureFixture[str]) -> None:
    log = put(LOST.replace("79,", "95,").replace(":3B:", ":10:"), "dmesg")
    smi = put(smi_text({}).replace("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB") + smi_text({"dbe": "1"}), "smi")
    cli.run([log, smi], as_json=True)
    assert {told["place"]["node"] for told in objects(capsys)} == {"gpu-7"}


def test_the_nodes_name_can_be_given(put: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cli.run([put("[1.0] NVRM: Xid (PCI:0000:3b:00): 79, lost")], as_json=True, node="n42")
    assert objects(capsys)[0]["place"]["node"] == "n42"


def test_terminal_codes_in_a_log_do_not_reach_the_terminal(put: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cli.run([put("[1.0] NVRM: Xid (PCI:0000:3b:00): 79, \x1b]0;owned\x07\x1b[2Jlost\n")])
    assert "\x1b" not in capsys.readouterr().out


def test_an_endless_log_is_read_in_bounded_memory() -> None:
    class Endless(io.RawIOBase):
        left = 300

        def readable(self) -> bool:
            return True

        def read(self, size: int = -1) -> bytes:
            self.left -= 1
            return (f"{CALM}\n" * 8000).encode()[: 1 << 20] if self.left >= 0 else b""

    import tracemalloc

    tracemalloc.start()
    from sickbay.checks.kernel_scan import scan

    lines = scan(blocks(Endless(), "endless")).lines  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lines > 2_000_000
    assert peak < 12_000_000


def test_a_reader_that_goes_away_is_no_accident(put: Any) -> None:
    log = put(f"{LOST}\n" * 20_000)
    command = f"'{sys.executable}' -m sickbay diagnose --lines '{log}' | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert json.loads(done.stdout)["code"] == "xid.79"
    assert "Traceback" not in done.stderr


PASTED = "NVRM: Xid (PCI:0000:08:00): 13, Graphics Exception: ESR 0x1\nNVRM: Xid (PCI:0000:07:00): 43, pid=9, name=py\n"


def test_driver_lines_beside_a_programs_own_words_are_a_jobs_log(put: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for beside in (
        "RuntimeError: NCCL error",
        "NVML: Unable to retrieve Nvlink information",
        "srun: error: n1: task 3",
    ):
        cli.run([put(f"{beside}\n{PASTED}")], as_json=True)
        (told,) = objects(capsys)
        assert "blame" in told, beside


def test_driver_lines_that_say_not_who_wrote_them_answer_both_questions(
    put: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.run([put(PASTED)], as_json=True)
    assert [(told["code"], told["blame"]) for told in objects(capsys)] == [
        ("xid.43", "user-code"),
        ("xid.13", "user-code"),
    ]
    cli.run([put(PASTED)])
    assert "--kind joblog" in capsys.readouterr().out


@pytest.mark.parametrize("prefix", ["[12.5] ", "Nov 22 14:56:44 gpu-7 kernel: ", "6,3964,206764307,-;"])
def test_a_kernel_log_is_not_asked_who_is_to_blame(put: Any, capsys: pytest.CaptureFixture[str], prefix: str) -> None:
    lines = "".join(f"{prefix}{line}\n" for line in PASTED.splitlines())
    for content, kind in ((lines, ""), (PASTED, "kernel"), (PASTED.splitlines()[0], "")):
        cli.run([put(content)], as_json=True, kind=kind)
        assert all("blame" not in told for told in objects(capsys))


@pytest.mark.parametrize("content", ["", "\n", LOST, PASTED, "prose", "\x00\x01" * 900, "step 1 loss 2.0\n"])
def test_asked_about_a_job_it_always_gives_one_answer_with_a_blame(
    put: Any, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    assert cli.run([put(content)], as_json=True, kind="joblog") in (0, 1)
    (told,) = objects(capsys)
    assert told["blame"] in ("hardware", "infrastructure", "user-code", "unknown")


def test_what_is_called_a_kernel_log_must_look_like_one(put: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for content in (b"\x00\x01\x02" * 5000, b"\x7fELF" + bytes(range(256)) * 40, b"prose about nothing\n" * 30):
        assert cli.run([put(content)], kind="kernel") == 2
        assert "looks like a kernel log" in capsys.readouterr().err
    for content in (b"", f"{CALM}\n".encode() * 30, b"Disabling lock debugging due to kernel taint\n"):
        assert cli.run([put(content)], kind="kernel") == 0
    assert cli.run([put(b"\x00\x01\x02" * 5000 + f"\n{LOST}\n".encode())], kind="kernel") == 1


def test_every_recorded_job_log_gets_a_blame_without_being_told_what_it_is(
    put: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for row in samples.rows("joblogs.jsonl"):
        cli.run([put(row["log"])], as_json=True)
        told = objects(capsys)
        assert told, row["id"]
        assert all("blame" in one for one in told), row["id"]


def test_every_recorded_kernel_line_stays_a_kernel_line() -> None:
    kinds = [kind_of(row["line"]) for row in samples.rows("kernel.jsonl")]
    assert set(kinds) <= {"kernel", ""}
    raw = [kind_of(path.read_text(errors="replace")) for path in (samples.folder() / "kernel_raw").iterdir()]
    assert set(raw) == {"kernel"}
