"""A broken row is refused with the file, the row and what is wrong; a good one is read."""

from __future__ import annotations

import tomllib

import pytest

from sickbay.catalog import Catalog
from sickbay.catalog.reading import FILES, read_catalog, shipped
from sickbay.errors import ConfigError


def edited(file: str, old: str, new: str) -> Catalog:
    """The shipped catalog with one edit; the edit must hit something, or the test proves nothing."""
    assert old in shipped(file), f"{file} no longer holds {old!r}"

    def read(name: str) -> str:
        return shipped(name).replace(old, new, 1) if name == file else shipped(name)

    return read_catalog(read)


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("xid.toml", 'fault = "gpu-lost"', 'fault = "gpu-gone"', "xid.79.fault: 'gpu-gone' is not in faults.toml"),
        ("xid.toml", 'source = "nvidia-driver"', "", "xid.0.source: no source"),
        ("xid.toml", 'source = "nvidia-driver"', 'source = "hearsay"', "'hearsay' is not in sources.toml"),
        ("xid.toml", "[79]", "[79]\ncolour = 1", "xid.79.colour: no such column"),
        ("xid.toml", "[0]", "0 = 1\n[0]", "not TOML"),
        ("xid.toml", "[0]", "zero = 1\n[0]", "zero: not a table"),
        ("xid.toml", "traits = { hex", "qualities = { hex", "xid.154.variants[0].qualities: no such column"),
        ("sxid.toml", 'fault = "inform"', 'fault = "inform"\nseverity = "BAD"', "severity: 'BAD' is not known"),
        ("signs.toml", "[smi.gpu-lost]", "[smi]\nspoon = 1\n[smi.gpu-lost]", "smi.spoon: not a table"),
        ("faults.toml", 'ladder = "reboot-power-replace"', 'ladder = "prayer"', "'prayer' is not in ladders.toml"),
        ("faults.toml", 'cleared_by = "boot"', 'cleared_by = "hope"', "cleared_by: 'hope' is not known"),
        (
            "faults.toml",
            'cleared_by = "boot"',
            'cleared_by = "pass:"',
            "reset | boot | ready | pass:<check> | operator",
        ),
        ("faults.toml", 'kind = "hardware"', 'kind = "software"', "'software' is not known"),
        ("faults.toml", 'severity = "REBOOT"', 'severity = "RESET"', "RESET is not the ladder's first rung"),
        ("faults.toml", 'when = "now"', 'when = "soon"', "one of now, checkpoint, idle"),
        ("faults.toml", "settle_s = 120", 'settle_s = "long"', "gpu-lost.settle_s"),
        ("faults.toml", "confidence = 0.97", "confidence = 7", "out of range"),
        ("faults.toml", "treats = true", "treats = false", "a fault that treats nothing has a ladder"),
        ("faults.toml", "treats = true", 'treats = "yes"', "not true or false"),
        ("faults.toml", "confirm = 3", "confirm = 0", "below 1"),
        ("faults.toml", "confirm = 3", "confirm = 1.5", "not a whole number"),
        ("faults.toml", 'verify_with = ["nvidia-smi", "dcgm-l2"]', "verify_with = []", "gpu-lost.verify_with: empty"),
        ("faults.toml", 'verify_with = ["nvidia-smi", "dcgm-l2"]', "verify_with = [1]", "not a list of texts"),
        ("faults.toml", "[inform]", "[informed]", "inform: missing"),
        (
            "ladders.toml",
            '["RESET_GPU", 1020], ["REBOOT", 1800]',
            '["REBOOT", 1800], ["RESET_GPU", 1020]',
            "weakest first",
        ),
        ("ladders.toml", '"RESET_GPU"', '"SHOUT"', "not a rung"),
        ("nvlink5.toml", '"SAW_MVB", "', '"SAW_MVB", "-', "rows[0]: not a decode row"),
        ("nvlink5.toml", 'source = "nvidia-nvlink5"', "", "no source"),
        ("profiles.toml", "gpus = 8", "", "p4d.24xlarge.gpus"),
        ("sources.toml", 'plan = "', 'plan = ""  # "', "plan: not text"),
    ],
)
def test_a_broken_row_is_refused_in_clear_words(file: str, old: str, new: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        edited(file, old, new)
    assert says in str(caught.value)
    assert str(caught.value).endswith(caught.value.right), "the message must say what would be right"


def test_a_code_that_is_there_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"xid\.154\.0x1 is there twice"):
        edited("xid.toml", 'name = "0x2"', 'name = "0x1"')


def test_a_row_without_its_own_action_takes_its_faults() -> None:
    catalog = read_catalog()
    assert catalog.codes["xid.79"].action == catalog.actions["gpu-lost"]
    assert catalog.codes["xid.154"].action != catalog.actions["inform"]


def test_an_edit_changes_the_version() -> None:
    assert edited("faults.toml", "settle_s = 120", "settle_s = 121").version != read_catalog().version


def test_every_file_says_at_its_head_what_it_is() -> None:
    for file in FILES:
        assert shipped(file).startswith("# "), file
        assert tomllib.loads(shipped(file)), file


def test_every_source_is_cited_by_some_row() -> None:
    sources = tomllib.loads(shipped("sources.toml"))
    others = ("thresholds.toml", "pci_gpus.toml")
    rest = "".join(shipped(file) for file in (*FILES, *others) if file != "sources.toml")
    assert [key for key in sources if f'"{key}"' not in rest] == []


def test_every_threshold_and_device_id_cites_a_source_we_know() -> None:
    sources = tomllib.loads(shipped("sources.toml"))
    cited = [key for row in tomllib.loads(shipped("thresholds.toml")).values() for key in row["source"]]
    cited += tomllib.loads(shipped("pci_gpus.toml"))["source"]
    assert [key for key in cited if key not in sources] == []
