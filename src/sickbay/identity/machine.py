"""What type of machine this is, and what a healthy one of it has.

The agent asks once, keeps the answer on disk and asks again after a boot; `sickbay check` asks each time. When nobody
knows, the answer is ("", why): counts are then UNKNOWN and said so, never "pass" (originals 002.12 #3).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sickbay.catalog import Catalog, Profile, load
from sickbay.identity import metadata, pci
from sickbay.ports import Host

_TYPE = re.compile(r"[a-z0-9][a-z0-9-]{0,31}\.[a-z0-9-]{2,31}")
_DGX = re.compile(r"DGX[ _-]?(?P<model>[A-Z]{1,2}\d{3})", re.IGNORECASE)  # "DGXH100", "NVIDIA DGX B200"


def instance_type(
    host: Host, setting: str = "", label: str = "", profiles: Sequence[Profile] = (), imds: str = metadata.IMDS
) -> tuple[str, str]:
    """(type, who says so), or ("", why nobody does). The machine itself goes before what people wrote about it."""
    found, trouble = _of_ec2(host, imds) if metadata.on_ec2(host) else ("", "this is not EC2")
    if found:
        return found, trouble
    for value, source in ((setting, "setting agent.instance_type"), (label, "label of the node")):
        if value.strip():
            return value.strip(), source
    if dgx := _DGX.search(metadata.dmi(host, "product_name")):
        return f"dgx-{dgx['model'].lower()}", "DMI table"
    known = {**load().profiles, **{one.type: one for one in profiles}}
    guessed, why = pci.guess(pci.gpu_ids(host), known, ec2=metadata.on_ec2(host))
    return (guessed, why) if guessed else ("", f"{trouble}; no setting or label names the type; {why}")


def _of_ec2(host: Host, imds: str) -> tuple[str, str]:
    session = metadata.token(host, imds)
    said = (metadata.ask(host, "instance-type", session, imds) or "").strip() if session else ""
    if _TYPE.fullmatch(said):
        return said, "EC2 metadata"
    trouble = metadata.BLOCKED if not session else "the metadata service does not name the instance type"
    product = metadata.dmi(host, "product_name")  # Nitro writes the type there: no network, no hop limit
    return (product, f"DMI table; {trouble}") if _TYPE.fullmatch(product) else ("", trouble)


def profile_of(kind: str, catalog: Catalog, user_profiles: Sequence[Profile] = ()) -> Profile | None:
    """A person's own row goes before ours; exact match only, for a near one would be a guess about counts."""
    own = next((one for one in user_profiles if one.type == kind), None)
    return own or catalog.profiles.get(kind)
