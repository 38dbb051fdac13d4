"""The checks: each has `collect` (IO, through a Host only) and `judge` (pure). Numbered as in the health check suite.

`checks/run` runs them by name. To add one: write its file, add its row to ALL.
"""

from __future__ import annotations

from sickbay.checks import dcgm_diag, kernel_log, nvidia_smi
from sickbay.checks.signs import Check

ALL: tuple[Check, ...] = (
    Check("nvidia-smi", 0, nvidia_smi.collect, nvidia_smi.judge, file="0-nvidia-smi"),
    Check("dcgm-l2", 1, dcgm_diag.collect_l2, dcgm_diag.judge),
    Check("dcgm-l4", 4, dcgm_diag.collect_l4, dcgm_diag.judge),
    Check("kernel-log", None, kernel_log.collect, kernel_log.judge),
)

BY_NAME = {check.name: check for check in ALL}
