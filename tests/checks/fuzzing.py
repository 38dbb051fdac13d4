"""How many inputs a fuzz test tries: 2,000, or what SICKBAY_FUZZ says (`make soak`: 100,000)."""

from __future__ import annotations

import os

EXAMPLES = int(os.environ.get("SICKBAY_FUZZ", "2000"))
