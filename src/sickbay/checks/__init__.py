"""The checks: each has `collect` (IO, through a Host only) and `judge` (pure). Numbered as in the health check suite.

`checks/run` runs them by name. To add one: write its file, add its row to ALL.
"""

from __future__ import annotations

from sickbay.checks import (
    clock,
    dcgm_diag,
    dcgm_health,
    disk_space,
    efa_counters,
    efa_enumeration,
    efa_loopback,
    gpu_matmul,
    gpu_processes,
    gpu_slowdown,
    gpu_speed,
    host_memory,
    infiniband,
    instance_events,
    kernel_log,
    local_disks,
    nccl_allreduce,
    nvidia_smi,
    nvlink_errors,
    pcie,
    peermem,
    shared_storage,
    stuck_processes,
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
    stuck_processes.CHECK,
    local_disks.CHECK,
    disk_space.CHECK,
    shared_storage.CHECK,
    host_memory.CHECK,
    clock.CHECK,
    instance_events.CHECK,
    gpu_matmul.CHECK,
    gpu_speed.CHECK,
    Check("kernel-log", None, kernel_log.collect, kernel_log.judge),
)

BY_NAME = {check.name: check for check in ALL}
