"""shared-storage: do the shared file systems (FSx for Lustre, NFS, EFS ...) answer?

Every path is asked by a child of its own with a limit; one that cannot even be killed hangs in the kernel. Which paths:
the setting's, else every shared file system in the mount table. Nothing is written there, and no node is ever touched
for it: usually many nodes see it together.
"""

from __future__ import annotations

from collections.abc import Iterator

from sickbay.checks import mounts
from sickbay.checks.signs import Ask, Check, Reading, Sign, quote, unusable
from sickbay.model import Status
from sickbay.ports import Completed, Host

NAME = "shared-storage"
MOST = 32
STAT = ("stat", "-f", "-c", "%T %S %b %a", "--")


def collect(host: Host, ask: Ask) -> Reading:
    text = mounts.table(host)
    limit = ask.limits["shared-storage-s"]
    outputs = {path: host.run((*STAT, path), limit) for path in paths(text or "", ask)}
    return Reading(Completed(0, "", ""), outputs=outputs, files={"mounts": text})


def paths(table: str, ask: Ask) -> list[str]:
    told = _told(ask)
    found = {mount.source: mount.path for mount in reversed(list(mounts.parse(table))) if mount.kind in mounts.SHARED}
    return (told or sorted(found.values()))[:MOST]


def _told(ask: Ask) -> list[str]:
    words = (word.strip() for word in ask.options.get("shared-paths", "").split(","))
    return list(dict.fromkeys(word for word in words if word.startswith("/")))


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    table = reading.files.get("mounts")
    if not table and not reading.outputs:
        return [Sign("tool.failed", "the mount table cannot be read", status=Status.UNKNOWN)]
    listed = list(mounts.parse(table or ""))
    absent = {path: sign for path in _told(ask)[:MOST] for sign in _unmounted(path, listed)}
    asked = [(path, done) for path, done in reading.outputs.items() if path not in absent]
    return [*absent.values(), *(sign for path, done in asked for sign in _judged(path, done, listed, ask))]


def _unmounted(path: str, listed: list[mounts.Mount]) -> Iterator[Sign]:
    """A path that should be shared and lies on a local disk: jobs would fill that disk and lose what they wrote."""
    mount = mounts.covering(path, listed)
    if mount is not None and (mount.kind in mounts.LOCAL or mount.kind in ("overlay", "tmpfs")):
        shown = quote(f"{path} lies on {mount.source} ({mount.kind}, mounted at {mount.path})")
        yield Sign("storage.not-mounted", f"{path} should be a shared file system and is not mounted", evidence=shown)


def _judged(path: str, done: Completed, listed: list[mounts.Mount], ask: Ask) -> Iterator[Sign]:
    mount = mounts.covering(path, listed)
    kind = f"{path} ({mount.kind} from {mount.source})"[:120] if mount else path
    traits = {"path": path}
    if done.stuck:
        said = f"{kind} hangs: what touches it cannot even be killed"
        yield Sign("storage.hung", said, evidence=quote(f"stat -f {path}: stuck in the kernel"), traits=traits)
    elif done.timed_out:
        said = f"{kind} did not answer within {ask.limits['shared-storage-s']:.0f} s"
        yield Sign("storage.slow", said, evidence=quote(f"stat -f {path}: no answer"), traits=traits)
    elif blind := unusable(done, "stat"):
        yield blind
    elif done.code != 0:
        said = f"{kind} answers with an error"
        yield Sign("storage.error", said, evidence=quote(done.stderr, done.stdout), traits=traits)


CHECK = Check(NAME, None, collect, judge)
