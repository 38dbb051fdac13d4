"""Rebooting a machine by a command on it: once, from the boot it was meant for."""

from __future__ import annotations

from sickbay.ports import Completed
from sickbay.treatments.reboot import reboot
from tests.treatments.test_reset import BOOT, Node, printed

NSENTER = "nsenter -t 1 -m -u -i -n -p -- systemctl reboot"


def test_the_systems_own_manager_is_asked() -> None:
    node = Node()
    assert reboot(node, BOOT).done
    assert node.ran == [NSENTER]


def test_a_machine_that_has_booted_since_is_left_alone() -> None:
    """A pod that is started again after the boot must not reboot the machine a second time."""
    node = Node(boot="the-next-boot")
    ended = reboot(node, BOOT)
    assert not ended.done
    assert ended.said == f"not rebooted: it has booted since: the-next-boot, not {BOOT}"
    assert node.ran == []


def test_an_order_without_a_boot_id_is_no_order() -> None:
    assert not reboot(Node(), "").done
    assert not reboot(Node(boot=""), BOOT).done


def test_without_nsenter_it_is_asked_directly_and_every_refusal_is_told() -> None:
    missing = Completed(None, "", "", missing=True)
    node = Node({"nsenter": [missing], "systemctl reboot": [printed("")]})
    assert reboot(node, BOOT).done
    node = Node({"nsenter": [missing], "systemctl reboot": [Completed(1, "", "Access denied\n")]})
    ended = reboot(node, BOOT)
    assert (
        ended.said
        == "not rebooted: systemctl reboot: not here; systemctl reboot: Access denied; shutdown -r now: not here"
    )
