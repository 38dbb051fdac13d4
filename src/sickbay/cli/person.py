"""Who is typing, where nobody else vouches for it: the name of the process's own uid, not what the environment says.

Called by whatever keeps a person's name in a record, a log or a state folder. It must stay light: the agent uses it.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping


def person(environ: Mapping[str, str], uid: int | None = None) -> str:
    """Root is nobody in particular: sudo says who is behind it, and only a process of root is believed about that."""
    uid = os.getuid() if uid is None else uid
    behind = environ.get("SUDO_UID", "")
    return _name(int(behind) if uid == 0 and behind.isdecimal() and len(behind) < 10 else uid)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container's user that nobody has entered
        return f"uid {uid}"
