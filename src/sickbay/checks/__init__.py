"""The checks: each has `collect` (IO, through a Host only) and `judge` (pure). Numbered as in the health check suite.

`checks/run` runs them by name. To add one: write its file, add its row to ALL.
"""

from __future__ import annotations

from sickbay.checks import (
    dcgm_diag,
    dcgm_health,
    efa_counters,
    efa_enumeration,
    efa_loopback,
    gpu_processes,
    gpu_slowdown,
    infiniband,
    kernel_log,
    nccl_allreduce,
    nvidia_smi,
    nvlink_errors,
    pcie,
    peermem,
    topology,
)
from sickbay.checks.signs import Check

ALL: tuple[Check, ...] = (
    nvidia_smi.CHECK,
    topology.CHECK,
    nvlink_errors.CHECK,
    gpu_slowdown.CHECK,
    gpu_processes.CHECK,
    pcie.CHECK,
    dcgm_diag.CHECK_L2,
    dcgm_diag.CHECK_L4,
    dcgm_health.CHECK,
    efa_enumeration.CHECK,
    nccl_allreduce.CHECK,
    efa_loopback.CHECK,
    efa_counters.CHECK,
    infiniband.CHECK,
    peermem.CHECK,
    Check("kernel-log", None, kernel_log.collect, kernel_log.judge),
)

BY_NAME = {check.name: check for check in ALL}
