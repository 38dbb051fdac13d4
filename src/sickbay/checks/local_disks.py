"""local-disks: are the local NVMe drives all there and alive, and has a file system turned read-only?

Network volumes (EBS, NVMe over fabrics) are left out: people attach and detach those. A file system counts as turned
read-only only when we know that it was writable: many are mounted read-only on purpose. It reads sysfs and never
touches a drive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sickbay.checks import mounts
from sickbay.checks.signs import Ask, Check, Reading, Sign, quote
from sickbay.model import Status
from sickbay.ports import Completed, Host

NAME = "local-disks"
NVME = "/sys/class/nvme"
MOST_DRIVES = 128
FIELDS = ("state", "transport", "model", "serial", "address")
COUNT = f"{NAME}/nvme/drives"
_NETWORK_MODELS = ("Amazon Elastic Block Store",)
_WELL = ("live", "new", "")  # "" where an old kernel has no such file
_DEAD = ("dead", "deleting", "deleting (no IO)")


def collect(host: Host, ask: Ask) -> Reading:
    files: dict[str, str | None] = {"mounts": mounts.table(host), "fstab": host.read("/etc/fstab")}
    names = host.names(NVME)
    files["nvme"] = None if names is None else " ".join(names[:MOST_DRIVES])
    for name in (names or ())[:MOST_DRIVES]:
        for field in FIELDS:
            files[f"{name}/{field}"] = host.read(f"{NVME}/{name}/{field}")
    return Reading(Completed(0, "", ""), files=files)


def drives(files: Mapping[str, str | None]) -> dict[str, dict[str, str]]:
    """The local ones: name -> its fields."""
    found: dict[str, dict[str, str]] = {}
    for name in (files.get("nvme") or "").split():
        fields = {field: (files.get(f"{name}/{field}") or "").strip()[:80] for field in FIELDS}
        if fields["transport"] in ("pcie", "") and not fields["model"].startswith(_NETWORK_MODELS):
            found[name] = fields
    return found


def samples(reading: Reading) -> Mapping[str, float]:
    figures = {COUNT: float(len(drives(reading.files)))}
    for mount in _disks(reading):
        figures[f"{NAME}/{mount.path}/writable"] = float(mount.writable)
    return figures


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    if reading.files.get("mounts") is None and reading.files.get("nvme") is None:
        return [Sign("tool.failed", "neither the mounts nor the drives can be read", status=Status.UNKNOWN)]
    return [*_ailing(reading), *_missing(reading, ask), *_read_only(reading, ask)]


def _ailing(reading: Reading) -> Iterator[Sign]:
    for name, fields in drives(reading.files).items():
        state = fields["state"]
        if state in _WELL:
            continue
        shown = quote(f"{name}: state {state}, {fields['model']}, serial {fields['serial']}, at {fields['address']}")
        where = {"drive": name, "serial": fields["serial"]}
        if state in _DEAD:
            yield Sign("disk.dead", f"the kernel gave up local drive {name} ({state})", evidence=shown, traits=where)
        else:
            said = f"local drive {name} is {state}: it does not answer at the moment"
            yield Sign("disk.dead", said, evidence=shown, status=Status.DEGRADED, traits=where)


def _missing(reading: Reading, ask: Ask) -> Iterator[Sign]:
    """Against the profile, else against the most we have seen here."""
    here = len(drives(reading.files))
    seen = max((int(value) for _, value in ask.series.points.get(COUNT, ())), default=0)
    told = ask.profile.nvmes if ask.profile is not None else 0
    want = told or seen
    if here >= want:
        return
    if reading.files.get("nvme") is None:
        said = f"{NVME} cannot be listed, so we cannot tell whether all {want} local NVMe drives are there"
        yield Sign("tool.failed", said, status=Status.UNKNOWN)
        return
    by = f"a {ask.profile.type} has {told}" if ask.profile is not None and told else f"it had {seen} before"
    shown = quote(f"{NVME}: {' '.join(drives(reading.files)) or 'no local drive'}")
    reason = f"{want - here} of {want} local NVMe drives are missing ({by})"
    traits = {"missing": str(want - here)}
    yield Sign("disk.missing", reason, evidence=shown, traits=traits, status=Status.DEGRADED if ask.young else None)


def _disks(reading: Reading) -> list[mounts.Mount]:
    """File systems on local disks, one mount for each device: the first is where it belongs, the rest are binds."""
    found: dict[str, mounts.Mount] = {}
    for mount in mounts.parse(reading.files.get("mounts") or ""):
        if mount.kind in mounts.LOCAL and mount.source.startswith("/dev/") and len(found) < 256:
            found.setdefault(mount.source, mount)
    return list(found.values())


def _read_only(reading: Reading, ask: Ask) -> Iterator[Sign]:
    wanted = _wanted_writable(reading.files.get("fstab") or "")
    for mount in _disks(reading):
        if mount.writable:
            continue
        was = any(value for _, value in ask.series.points.get(f"{NAME}/{mount.path}/writable", ()))
        if why := _why(mount, was, mount.path in wanted):
            shown = quote(f"{mount.source} {mount.path} {mount.kind} {','.join(sorted(mount.options))}")
            said = f"{mount.path} turned read-only ({why})"
            status = Status.DEGRADED if ask.young and not was else None  # while booting, / is read-only for a while
            yield Sign("disk.read-only", said, evidence=shown, traits={"path": mount.path}, status=status)


def _why(mount: mounts.Mount, was: bool, wanted: bool) -> str:
    if mount.options & {"emergency_ro", "shutdown"}:
        return "the file system met an error"
    if was:
        return "it was writable before"
    return "fstab wants it writable" if wanted else ""


def _wanted_writable(fstab: str) -> set[str]:
    rows = (line.split() for line in fstab.splitlines()[: mounts.MOST] if not line.lstrip().startswith("#"))
    return {row[1] for row in rows if len(row) >= 4 and "ro" not in row[3].split(",")}


CHECK = Check(NAME, None, collect, judge, samples)
