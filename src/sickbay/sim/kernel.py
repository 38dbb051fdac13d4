"""A host's kernel log: a ring of records as /dev/kmsg hands them out. SimHost reads it; the World prints into it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

RING = 131_072  # records kept, as printk with log_buf_len=16M; the real ring buffer forgets too
WARNING = 4


class KernelRing:
    """One boot's records. A reboot starts a new ring, as a real one does."""

    def __init__(self, booted_at: float) -> None:
        self.booted_at = booted_at
        self.last = 0
        self._records: deque[tuple[int, str]] = deque(maxlen=RING)

    def print(self, texts: Iterable[str], at: float) -> None:
        usec = int((at - self.booted_at) * 1_000_000)
        for text in texts:
            self.last += 1
            self._records.append((self.last, f"{WARNING},{self.last},{usec},-;{text}"))

    def after(self, sequence: int) -> list[str]:
        """Records newer than `sequence`, oldest first; what fell out of the ring is gone."""
        if sequence >= self.last:
            return []
        fresh = min(self.last - sequence, len(self._records))
        return [record for _, record in islice(self._records, len(self._records) - fresh, None)]

    def tail(self, count: int) -> list[str]:
        return self.after(max(0, self.last - count))


def as_dmesg(records: Sequence[str]) -> str:
    """The same records as `dmesg` prints them."""
    rows = []
    for record in records:
        prefix, _, text = record.partition(";")
        usec = int(prefix.split(",")[2])
        rows.append(f"[{usec // 1_000_000:5d}.{usec % 1_000_000:06d}] {text}")
    return "\n".join(rows) + ("\n" if rows else "")


def boot_lines(driver: str) -> list[str]:
    """What a healthy boot prints about NVIDIA: benign, and there to be read as such."""
    return [
        "Linux version 6.8.0-1021-aws (buildd@lcy02-amd64-109)",
        "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
        "nvidia-nvlink: Nvlink Core is being initialized, major device number 510",
        f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {driver}  Release Build",
        "nvidia-nvswitch0: open (major=511)",
    ]
