"""nvidia-smi: lost GPUs in all spellings, pending repairs, and never OK without having seen anything."""

from __future__ import annotations

import pytest

from sickbay.catalog import load
from sickbay.checks import nvidia_smi
from sickbay.checks.run import run
from sickbay.checks.series import Series
from sickbay.checks.signs import Ask, Reading
from sickbay.model import Severity, Status
from sickbay.ports import Completed
from tests.checks import samples
from tests.checks.hosts import TIMED_OUT, SpokenHost, printed

HEAD = "==============NVSMI LOG==============\n\nDriver Version : 590.48.01\n\nAttached GPUs : {n}\n"
GPU = """GPU 00000000:{bus}:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Persistence Mode                      : {persistence}
    MIG Mode
        Current                           : Disabled
    Serial Number                         : 165372{bus}
    GPU UUID                              : GPU-{bus}
    GPU Recovery Action                   : {recovery}
    Clocks Event Reasons
        Idle                              : Active
        SW Power Cap                      : Active
        HW Slowdown                       : {slow}
            HW Thermal Slowdown           : {slow}
    ECC Errors
        Volatile
            SRAM Uncorrectable Parity     : 0
            DRAM Uncorrectable            : {dbe}
        Aggregate
            DRAM Uncorrectable            : 7
            SRAM Threshold Exceeded       : {sram}
        Channel Repair Pending            : No
        TPC Repair Pending                : No
        Unrepairable Memory               : No
    Retired Pages
        Pending Page Blacklist            : N/A
    Remapped Rows
        Pending                           : {pending}
        Remapping Failure Occurred        : {failed}
"""
WELL = {
    "persistence": "Enabled", "recovery": "None", "slow": "Not Active", "dbe": "0", "sram": "No", "pending": "No",
    "failed": "No",
}  # fmt: skip


def text(*cards: dict[str, str], attached: int | None = None) -> str:
    shown = (GPU.format(**WELL | {"bus": f"{n + 16:02X}"} | card) for n, card in enumerate(cards))
    return HEAD.format(n=attached or len(cards)) + "".join(shown)


def codes(said: str, expected: int | None = None) -> list[tuple[str, str]]:
    return [(sign.code, sign.device) for sign in nvidia_smi.signs(said, expected)]


def test_eight_healthy_gpus_have_nothing_to_say() -> None:
    assert codes(text(*[{}] * 8), 8) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"pending": "Yes"}, "smi.remap-pending"),
        ({"failed": "Yes"}, "smi.remap-failed"),
        ({"sram": "Yes"}, "smi.sram-threshold"),
        ({"dbe": "3"}, "smi.ecc-volatile"),
        ({"slow": "Active"}, "smi.slowdown-hw"),
        ({"recovery": "Reset"}, "smi.recovery-action-reset"),
        ({"recovery": "Reboot"}, "smi.recovery-action-reboot"),
        ({"recovery": "Drain P2P"}, "smi.recovery-action-drain"),
        ({"recovery": "Drain and Reset"}, "smi.recovery-action-drain"),
        ({"persistence": "Disabled"}, "smi.persistence-off"),
    ],
)
def test_what_one_gpu_asks_for_is_found_on_that_gpu(change: dict[str, str], code: str) -> None:
    assert codes(text({}, change, {})) == [(code, "0000:11:00")]


@pytest.mark.parametrize(
    ("line", "device"),
    [
        ("Unable to determine the device handle for gpu 0000:08:00.0: Unknown Error", "0000:08:00"),
        ("Unable to determine the device handle for GPU 0000:05:00.0: GPU is lost.  Reboot the system", "0000:05:00"),
        ("Unable to determine the device handle for GPU0000:25:00.0: Unknown Error", "0000:25:00"),
        ("Unable to determine the device handle for GPU3: 0000:5F:00.0: Not Found", "0000:5f:00"),
        ("Unable to determine the device handle for GPU2: Unknown Error", ""),
    ],
)
def test_a_lost_gpu_is_known_in_all_five_spellings(line: str, device: str) -> None:
    assert codes(line) == [("smi.gpu-lost", device)]
    assert codes(text({}, {}, attached=2) + line, 3) == [("smi.gpu-lost", device)]


def test_fewer_gpus_than_the_profile_says_are_missing() -> None:
    assert codes(text(*[{}] * 7, attached=7), 8) == [("smi.gpu-missing", "")]
    assert codes("No devices were found", 8) == [("smi.gpu-missing", "")]


@pytest.mark.parametrize(
    "said",
    [
        "",
        "\x00\x01garbage",
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.288",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure",
        "<nvidia_smi_log><gpu id='x'>",
    ],
)
def test_a_tool_that_shows_nothing_is_unknown_and_not_well(said: str) -> None:
    assert [sign.status for sign in nvidia_smi.signs(said, 8)] == [Status.UNKNOWN]


XML = (
    '<?xml version="1.0" ?><nvidia_smi_log><driver_version>580.1</driver_version>'
    "<attached_gpus>{n}</attached_gpus>{cards}</nvidia_smi_log>"
)
NAMED = '<gpu id="00000000:3B:00.0"><product_name>NVIDIA H100</product_name><uuid>GPU-1</uuid>{rest}</gpu>'


def xml(*cards: str) -> str:
    return XML.format(n=len(cards), cards="".join(cards))


@pytest.mark.parametrize(
    "said",
    [
        xml(*["<gpu></gpu>"] * 8),
        xml(*[NAMED.format(rest="")] * 8),
        xml(
            *[
                NAMED.format(
                    rest="<ecc_errors><volatile><dram_uncorrectable>N/A</dram_uncorrectable></volatile></ecc_errors>"
                )
            ]
            * 8
        ),
        xml(*[NAMED.format(rest="<temperature><gpu_temp>Insufficient Permissions</gpu_temp></temperature>")] * 8),
        HEAD.format(n=8) + "".join(f"GPU 00000000:{n:02x}:00.0\n    Product Name : NVIDIA H100\n" for n in range(8)),
        "index, name\n" + "".join(f"{n}, NVIDIA H100\n" for n in range(8)),
    ],
)
def test_gpus_that_are_listed_without_one_reading_of_their_health_are_unknown_and_not_well(said: str) -> None:
    """Eight empty <gpu> elements were "nothing wrong found"."""
    (sign,) = nvidia_smi.signs(said, 8)
    assert (sign.code, sign.status) == ("tool.unreadable", Status.UNKNOWN)
    assert sign.reason.startswith("nvidia-smi lists 8 GPU(s) and shows no reading of the health of 8 of them")


def test_one_gpu_without_readings_among_others_is_named_and_hides_no_fault_of_theirs() -> None:
    said = text({"failed": "Yes"}, {}).replace("Attached GPUs : 2", "Attached GPUs : 3")
    said += "GPU 00000000:3B:00.0\n    Product Name : NVIDIA H100\n    Remapped Rows : N/A\n"
    failed, blind = nvidia_smi.signs(said, 3)
    assert (failed.code, blind.code) == ("smi.remap-failed", "tool.unreadable")
    assert blind.reason == "nvidia-smi lists 3 GPU(s) and shows no reading of the health of 1 of them: 0000:3b:00"


@pytest.mark.parametrize(
    "rest",
    [
        "<temperature><gpu_temp>37 C</gpu_temp></temperature>",  # an old GeForce has little more
        "<fb_memory_usage><used>42 MiB</used></fb_memory_usage>",  # nor has a virtual GPU
        "<gpu_recovery_action>None</gpu_recovery_action>",
    ],
)
def test_a_gpu_that_has_few_readings_is_no_worse_for_it(rest: str) -> None:
    assert nvidia_smi.signs(xml(NAMED.format(rest=rest)), 1) == []


def test_the_inventory_keeps_the_numbers_of_the_gpus_that_answer() -> None:
    said = "Unable to determine the device handle for GPU1: 0000:04:00.0: Unknown Error\n" + text({}, {})
    gpus = nvidia_smi.inventory(said)
    assert [(gpu.index, gpu.pci, gpu.serial) for gpu in gpus] == [
        (0, "0000:10:00", "16537210"),
        (2, "0000:11:00", "16537211"),
    ]


def test_xml_and_text_say_the_same() -> None:
    shown = """<?xml version="1.0" ?><!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd"><nvidia_smi_log>
    <driver_version>550.1</driver_version><attached_gpus>1</attached_gpus><gpu id="00000000:3B:00.0">
    <product_name>NVIDIA A100-SXM4-80GB</product_name><uuid>GPU-1</uuid><serial>99</serial>
    <mig_mode><current_mig>Disabled</current_mig></mig_mode>
    <clocks_event_reasons><clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
    <clocks_event_reason_hw_slowdown>Active</clocks_event_reason_hw_slowdown></clocks_event_reasons>
    <ecc_errors><volatile><dram_uncorrectable>2</dram_uncorrectable></volatile></ecc_errors>
    <remapped_rows><remapped_row_pending>Yes</remapped_row_pending>
    <remapped_row_failure>Yes</remapped_row_failure></remapped_rows></gpu></nvidia_smi_log>"""
    found = nvidia_smi.signs(shown)
    assert sorted(sign.code for sign in found) == [
        "smi.ecc-volatile", "smi.remap-failed", "smi.remap-pending", "smi.slowdown-hw",
    ]  # fmt: skip
    assert {sign.device for sign in found} == {"0000:3b:00"}
    assert found[0].traits == {"gpu_model": "NVIDIA A100-SXM4-80GB", "driver": "550.1", "mig": "disabled"}


OLD_GPU = """GPU 00000000:{bus}:00.0
    Product Name                    : Tesla V100-SXM2-32GB
    Persistence Mode                : Enabled
    ECC Errors
        Volatile
            Single Bit
                Device Memory       : {sbe}
                Total               : {sbe}
            Double Bit
                Device Memory       : {dbe}
                Total               : {dbe}
    Retired Pages
        Single Bit ECC              : {single}
        Double Bit ECC              : {double}
        Pending                     : {pending}
        Pending Page Blacklist      : {pending}
"""
OLD_WELL = {"sbe": "0", "dbe": "0", "single": "0", "double": "0", "pending": "No"}


def old_text(**changed: str) -> str:
    return HEAD.format(n=1) + OLD_GPU.format(**OLD_WELL | changed | {"bus": "1A"})


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, []),
        ({"single": "60"}, []),
        ({"single": "61"}, [("smi.retired-pages", Status.DEGRADED)]),
        ({"double": "1"}, [("smi.retired-pages", Status.DEGRADED)]),
        ({"pending": "Yes"}, [("smi.retired-pending", None)]),
        ({"dbe": "2"}, [("smi.ecc-volatile", None)]),
        ({"sbe": "20000001"}, [("smi.ecc-corrected", Status.DEGRADED)]),
    ],
)
def test_older_gpus_retire_pages(change: dict[str, str], found: list[tuple[str, Status | None]]) -> None:
    assert [(sign.code, sign.status) for sign in nvidia_smi.signs(old_text(**change), 1)] == found


def judged(said: str, ask: Ask) -> list[tuple[str, Status | None]]:
    return [(sign.code, sign.status) for sign in nvidia_smi.judge(Reading(Completed(0, said, "")), ask)]


def test_a_count_that_nobody_can_compare_is_unknown_and_never_a_pass() -> None:
    """Originals 002.12 #3: the type was lost on the way, and 5 of 8 GPUs were a PASS."""
    (found,) = run(SpokenHost({"nvidia-smi": printed(text(*[{}] * 5))}), ["nvidia-smi"], load(), at=0.0)
    assert (found.status, found.code, found.severity) == (Status.UNKNOWN, "smi.count-unknown", Severity.NONE)
    assert found.reason == (
        "5 GPU(s) answer, but this node's type is not known, so we cannot tell whether one is missing"
    )


def test_an_unknown_count_hides_no_fault_and_a_known_one_says_nothing() -> None:
    sick = text({}, {"failed": "Yes"})
    assert judged(sick, Ask()) == [("smi.remap-failed", None), ("smi.count-unknown", Status.UNKNOWN)]
    assert judged(text(*[{}] * 8), Ask(expected_gpus=8)) == []
    assert judged(text(*[{}] * 8), Ask(expected_gpus=4)) == [("smi.gpu-surplus", None)]


def test_a_setting_never_hides_a_fault() -> None:
    """Originals 002.12 #1: the note about persistence mode overwrote the failure before it."""
    ask = Ask(expected_gpus=1)
    found = run(
        SpokenHost({"nvidia-smi": printed(text({"failed": "Yes", "persistence": "Disabled"}))}), ["nvidia-smi"],
        load(), at=0.0, ask=ask,
    )  # fmt: skip
    assert max(found, key=lambda f: f.severity).code == "smi.remap-failed"
    assert {f.code: f.severity for f in found}["smi.persistence-off"] is Severity.MONITOR


def test_rows_that_wait_or_failed_are_found_on_gpus_that_retire_no_pages() -> None:
    """Originals 002.12 #12: only retired pages were looked at, which no profiled type has."""
    assert "Pending Page Blacklist            : N/A" in GPU
    assert codes(text({"pending": "Yes"}, {"failed": "Yes"})) == [
        ("smi.remap-pending", "0000:10:00"),
        ("smi.remap-failed", "0000:11:00"),
    ]


def test_a_tool_that_cannot_be_killed_is_a_hung_driver_and_a_slow_one_is_unknown() -> None:
    """Originals 002.12 #11 and 003.5 #5: the commonest failure hung the agent, or was shrugged off."""
    stuck = Completed(None, "", "", timed_out=True, stuck=True)
    for answer, code, severity in (
        (stuck, "smi.driver-hung", Severity.REBOOT),
        (TIMED_OUT, "tool.timeout", Severity.NONE),
    ):
        (found,) = run(SpokenHost({"nvidia-smi": answer}), ["nvidia-smi"], load(), at=0.0)
        assert (found.code, found.severity) == (code, severity)


def test_corrected_errors_are_watched_when_they_come_fast_and_never_treated() -> None:
    series = Series()
    for at, count in ((0.0, "7"), (300.0, "50000"), (600.0, "120000")):
        reading = Reading(Completed(0, old_text(sbe=count), ""))
        series.add(at, nvidia_smi.samples(reading))
        found = nvidia_smi.judge(reading, Ask(expected_gpus=1, series=series, at=at))
    (sign,) = found
    assert (sign.code, sign.status) == ("smi.ecc-corrected", Status.DEGRADED)
    assert sign.reason == "119993 corrected memory errors within an hour on 0000:1a:00; nothing is lost yet"
    assert sign.traits["measure.ecc-corrected-per-hour"] == "119993"


def test_readings_that_fail_are_noted_and_a_refusal_until_a_reset_asks_for_one() -> None:
    assert codes(text({"dbe": "Unknown Error"})) == [("smi.unknown-error", "0000:10:00")]
    assert codes(text({"dbe": "GPU requires reset"})) == [("smi.recovery-action-reset", "0000:10:00")]
    assert codes(text({"dbe": "N/A", "recovery": "N/A", "pending": "N/A"})) == []


@pytest.mark.parametrize(("words", "wanted"), [("PF FLR", "reset"), ("OS Reboot", "reboot"), ("Bus Reset", "reset")])
def test_newer_drivers_have_newer_words_for_what_they_want(words: str, wanted: str) -> None:
    assert codes(text({"recovery": words})) == [(f"smi.recovery-action-{wanted}", "0000:10:00")]


def test_the_originals_artefacts_are_kept_by_their_names() -> None:
    kept = nvidia_smi.keeps(Reading(Completed(0, text({}, {"dbe": "3"}), "")))
    assert kept["gpu-uuids.csv"] == "0, 16537210, GPU-10\n1, 16537211, GPU-11\n"
    assert kept["ecc-status.csv"] == "0, 0, 7, [N/A], [N/A], [N/A]\n1, 3, 7, [N/A], [N/A], [N/A]\n"
    old = nvidia_smi.keeps(Reading(Completed(0, old_text(single="2", dbe="1"), "")))
    assert old["ecc-status.csv"] == "0, 1, 0, No, 2, 0\n"


def test_recorded_healthy_outputs_are_quiet_and_recorded_failures_are_not() -> None:
    smi = samples.folder() / "smi"
    healthy = [*smi.glob("nvidia-*__q.txt"), *smi.glob("bugreport*"), *(smi / "xml").glob("*.xml")]
    assert len(healthy) > 30
    for file in healthy:
        said = file.read_text(errors="replace")
        assert nvidia_smi.inventory(said), file.name
        assert {code for code, _ in codes(said)} <= {"smi.persistence-off"}, file.name
    for row in samples.rows("smi/failures.jsonl"):
        assert nvidia_smi.signs(row["text"]), row
