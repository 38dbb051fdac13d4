"""What a training job's ranks print last, by what killed them; formats of PyTorch, NCCL and CUDA. Used by jobs.py."""

from __future__ import annotations

_CUDA = (
    "Traceback (most recent call last):",
    '  File "/app/train.py", line 212, in <module>',
    "    main()",
    '  File "/app/train.py", line 187, in main',
    "    loss.backward()",
)

_ASYNC = (
    "CUDA kernel errors might be asynchronously reported at some other API call, "
    "so the stacktrace below might be incorrect."
)

_TAILS: dict[str, tuple[str, ...]] = {
    "cuda_lost": (
        *_CUDA,
        "RuntimeError: CUDA error: unspecified launch failure",
        _ASYNC,
    ),
    "cuda_ecc": (*_CUDA, "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    "illegal_access": (
        *_CUDA,
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        _ASYNC,
    ),
    "nccl_peer": (
        "[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, "
        "remote process exited or there was a network error, NCCL version 2.27.5",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    ),
    "traceback": (
        "Traceback (most recent call last):",
        '  File "/app/train.py", line 212, in <module>',
        "    main()",
        '  File "/app/train.py", line 174, in main',
        '    batch = collate(samples, pad=config["pad_tokn"])',
        "KeyError: 'pad_tokn'",
    ),
    "unexplained": (
        "[rank{rank}]: ncclUnhandledCudaError: Call to CUDA function failed.",
        "torch.distributed.elastic.multiprocessing.api: Sending process {rank} closing signal SIGTERM",
    ),
    "node_gone": (),
    "watchdog": (
        "[rank{rank}]:[E ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=16777216, NumelOut=16777216, Timeout(ms)={timeout_ms}) "
        "ran for {ran_ms} milliseconds before timing out.",
    ),
    "sigterm": ("[rank{rank}]: received SIGTERM, shutting down",),
}


def tail(name: str, rank: int, **values: object) -> tuple[str, ...]:
    return tuple(line.format(rank=rank, **values) if "{" in line else line for line in _TAILS[name])
