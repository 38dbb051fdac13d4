"""The embedded fleet: a Platform over sim.World, needing no GPU, no cluster and no cloud."""

from sickbay.platforms.simulated.platform import SimulatedPlatform

__all__ = ["SimulatedPlatform"]
