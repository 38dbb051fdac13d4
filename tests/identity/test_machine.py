"""Who is this node? The machine itself, then what people wrote, then the PCI bus; and when nobody knows, it is said."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.catalog import load
from sickbay.checks.run import run
from sickbay.checks.signs import Ask
from sickbay.identity import metadata, pci
from sickbay.identity.machine import instance_type, profile_of
from sickbay.model import Severity, Status
from tests.checks.hosts import SpokenHost, printed
from tests.fuzzing import EXAMPLES

TOKEN = f"PUT {metadata.IMDS}/latest/api/token"
TYPE = f"{metadata.IMDS}/latest/meta-data/instance-type"


def ec2(kind: str = "", product: str = "", **more: str) -> SpokenHost:
    files = {"/sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "/sys/class/dmi/id/product_name": product + "\n"}
    pages = {TOKEN: "session", TYPE: kind} if kind else {}
    return SpokenHost(files={**files, **more}, pages=pages)


def lspci(*ids: str, kind: str = "0302") -> SpokenHost:
    rows = [f"{n:02x}:00.0 {kind}: 10de:{one} (rev a1)" for n, one in enumerate(ids)]
    return SpokenHost({"lspci": printed("\n".join(rows))})


def test_the_metadata_service_names_the_type() -> None:
    assert instance_type(ec2("p5.48xlarge"), setting="g5.xlarge") == ("p5.48xlarge", "EC2 metadata")


def test_with_the_metadata_service_blocked_the_dmi_table_still_names_the_type() -> None:
    kind, source = instance_type(ec2(product="p5en.48xlarge"))
    assert kind == "p5en.48xlarge"
    assert "hop limit" in source


def test_a_setting_goes_before_the_label_and_both_before_a_guess() -> None:
    host = lspci(*["2330"] * 8)
    assert instance_type(host, "mine", "p5.48xlarge") == ("mine", "setting agent.instance_type")
    assert instance_type(host, "", "p5.48xlarge") == ("p5.48xlarge", "label of the node")


def test_the_label_reaches_the_checks_when_the_metadata_service_is_blocked() -> None:
    """originals 002.12 #3: the type fell back to nothing, the counts to 0, and 5 of 8 GPUs passed."""
    blocked = ec2()
    kind, _ = instance_type(blocked, label="p5.48xlarge")
    profile = profile_of(kind, load())
    assert profile is not None
    (lost,) = [f for f in run(_five_gpus(), ["nvidia-smi"], load(), at=0.0, ask=Ask(profile=profile)) if f.code]
    assert (lost.code, lost.severity) == ("smi.gpu-missing", Severity.REBOOT)


def test_a_type_nobody_knows_is_said_and_never_a_pass() -> None:
    """originals 002.12 #3 and 003.5 #3: silently unprotected for ever."""
    kind, why = instance_type(ec2())
    assert kind == ""
    assert "hop limit" in why
    assert "no setting or label" in why
    assert profile_of(kind, load()) is None


def _five_gpus() -> SpokenHost:
    from tests.checks.test_nvidia_smi import text

    return SpokenHost({"nvidia-smi": printed(text(*[{}] * 5))})


def test_off_ec2_the_metadata_address_is_never_asked() -> None:
    class Listening(SpokenHost):
        def fetch(self, *args: object, **named: object) -> str | None:
            raise AssertionError("asked")

    assert instance_type(Listening(files={"/sys/class/dmi/id/sys_vendor": "Supermicro"}), "mine")[0] == "mine"


@pytest.mark.parametrize("product", ["DGXH100", "NVIDIA DGX H100", "DGX-H100 920-23687"])
def test_a_dgx_says_so_in_its_dmi_table(product: str) -> None:
    host = SpokenHost(files={"/sys/class/dmi/id/product_name": product})
    assert instance_type(host) == ("dgx-h100", "DMI table")
    assert profile_of("dgx-h100", load()) is not None


def test_eight_h100_off_ec2_can_only_be_one_of_our_profiles() -> None:
    assert instance_type(lspci(*["2330"] * 8)) == ("dgx-h100", "8 x H100 on the PCI bus")


def test_sysfs_is_asked_before_lspci() -> None:
    host = ec2()
    for n in range(4):
        name = f"0000:{n:02x}:00.0"
        host.folders["/sys/bus/pci/devices"] = (*host.folders.get("/sys/bus/pci/devices", ()), name)
        for field, value in (("vendor", "0x10de"), ("class", "0x030200"), ("device", "0x2941")):
            host.files[f"/sys/bus/pci/devices/{name}/{field}"] = value + "\n"
    assert instance_type(host)[0] == "p6e-gb200.36xlarge"
    assert not host.asked


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (["2335"] * 8, "p5e.48xlarge and p5en.48xlarge all have 8 x H200"),
        (["2330"] * 7, "no profile has 7 x H100"),
        (["2330", "27b8"], "different GPU models"),
        (["ffff"], "no profile has 1 x ffff"),
        ([], "no NVIDIA GPU"),
    ],
)
def test_an_inventory_that_fits_several_types_or_none_is_no_guess(ids: list[str], says: str) -> None:
    kind, why = pci.guess(ids, load().profiles, ec2=True)
    assert kind == ""
    assert says in why


def test_switches_on_the_bus_are_not_gpus() -> None:
    text = "05:00.0 0680: 10de:22a3 (rev a1)\n0001:53:00.0 0302: 10de:2330 (rev a1)\n"
    assert pci.from_lspci(text) == ("2330",)


def test_a_persons_own_profile_goes_before_ours() -> None:
    ours = load().profiles["p5.48xlarge"]
    own = type(ours)("p5.48xlarge", 4, "H100", 0, "", 1.0, 1.0, 1.0, "mine")
    assert profile_of("p5.48xlarge", load(), [own]) is own
    assert profile_of("p5.48xlarge", load()) is ours
    assert profile_of("p5.48xlarg", load()) is None


@pytest.mark.parametrize(
    "kind",
    ["p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge",
     "p6-b300.48xlarge", "p6e-gb200.36xlarge", "g5.48xlarge", "g6.48xlarge", "g6e.48xlarge", "dgx-h100", "dgx-b200"],
)  # fmt: skip
def test_the_types_we_promise_have_a_profile(kind: str) -> None:
    profile = load().profiles[kind]
    assert profile.gpus in (4, 8)
    assert profile.source


@given(st.text(alphabet="0123456789abcdef:. \n10de:(rev)", max_size=400))
@settings(max_examples=EXAMPLES, deadline=None)
def test_fuzz_an_lspci_list_never_breaks(text: str) -> None:
    kind, why = pci.guess(pci.from_lspci(text), load().profiles, ec2=False)
    assert kind or why


def test_an_unknown_type_makes_the_count_unknown_and_not_ok() -> None:
    found = run(_five_gpus(), ["nvidia-smi"], load(), at=0.0)
    assert Status.FAILED not in {f.status for f in found}
