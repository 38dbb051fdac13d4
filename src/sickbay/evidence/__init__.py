"""Evidence (COLLECT): what a sick node can still tell, in one archive, before a treatment destroys it.

`collect` is called by `sickbay collect` on a node and by platforms. It knows the nouns and the Host door only, and
must never raise for anything a node does, and never take the environment of any process: secrets live there.
"""

from sickbay.evidence.archive import collect

__all__ = ["collect"]
