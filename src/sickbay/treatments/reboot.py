"""Reboot this machine, if it is still in the boot it was to be rebooted from.

`sickbay node reboot` calls it. The old boot id travels with the order: a pod that is started again after the boot, or
an order that was slow, must not reboot the machine twice. It asks the system's own manager, so that services end in
order; it never pulls the plug.
"""

from __future__ import annotations

from dataclasses import dataclass

from sickbay.ports import Host

LIMIT_S = 60.0
INTO_HOST = ("nsenter", "-t", "1", "-m", "-u", "-i", "-n", "-p", "--")  # a chroot alone is refused by systemctl
ORDERS = ((*INTO_HOST, "systemctl", "reboot"), ("systemctl", "reboot"), (*INTO_HOST, "shutdown", "-r", "now"))


@dataclass(frozen=True, slots=True)
class Ended:
    """How a treatment ended, in words. `done` False: nothing was changed, or what was is put back."""

    done: bool
    said: str


def refusal(host: Host, boot_id: str) -> str:
    """Why this order is not for this boot; "" if it is."""
    here = host.boot_id()
    if not boot_id:
        return "the order does not say from which boot"
    if not here:
        return "this machine does not say which boot it is in"
    return "" if here == boot_id else f"it has booted since: {here}, not {boot_id}"


def reboot(host: Host, boot_id: str) -> Ended:
    if why := refusal(host, boot_id):
        return Ended(False, f"not rebooted: {why}")
    said = []
    for argv in ORDERS:
        done = host.run(argv, LIMIT_S)
        if done.code == 0:
            return Ended(True, f"reboot ordered from boot {boot_id}")
        order = " ".join(argv[argv.index("--") + 1 :] if "--" in argv else argv)
        said.append(f"{order}: {'not here' if done.missing else done.stderr.strip()[:160] or done.code}")
    return Ended(False, f"not rebooted: {'; '.join(said)}")
