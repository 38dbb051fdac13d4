"""The tour: a fixed night of failures on a simulated fleet, each scene with its expected ending.

`sickbay demo --headless` plays it; tests/tour runs it once. Scenes are in the files here, programme.py says which plays
when, truth.py is what they judge by. Nothing here decides anything about a node: that is the real controller's part.
"""

from __future__ import annotations

from sickbay.sim.tour.programme import Tour, run_tour
from sickbay.sim.tour.scene import Result

__all__ = ["Result", "Tour", "run_tour"]
