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
    for part in ("gpu-7 GPU 0000:3b:00", "REBOOT", "gpu-lost", "has fallen off the bus", "  do  "):
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

    lines = scan(cli._blocks(Endless(), "endless")).lines  # type: ignore[arg-type]
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


def test_recorded_job_logs_are_recognised_unless_nothing_but_kernel_lines_is_left_of_them() -> None:
    kinds = [(row["id"], kind_of(row["log"])) for row in samples.rows("joblogs.jsonl")]
    only_kernel_lines = {11, 13, 47}
    assert {number for number, kind in kinds if kind == "kernel"} <= only_kernel_lines
    assert sum(kind == "joblog" for _, kind in kinds) >= 20
