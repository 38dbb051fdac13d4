"""Stand-alone: what gpu-matmul and gpu-speed run on a node, with the node's own Python and its torch or cupy.

It is handed over as text (`python3 -c`), so it imports nothing of ours, at import time only the standard library, and
works from Python 3.8 on. It prints one JSON object a line: results per GPU, or {"error": ...}. Backend `cpu` is numpy:
for rehearsals, and for the tests of this very file. It must never decide who is wrong: the judges do.

Products of small whole numbers are exact in every order of addition and in reduced precision: each has one right
answer, on any GPU and on the CPU. "random" products use the whole mantissa and agree only among like GPUs.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

WIDE, NARROW = 127, 2  # sums stay below 2**24 (exact in float32), and below 2**11 (exact in float16)
CASES = {
    "exact-fp32": ("float32", WIDE, 1.0),
    "exact-fp16": ("float16", NARROW, 1.0),
    "random-fp16": ("float16", WIDE, 37.0),
}
TRIES = 3


def numbers(seed: int, count: int) -> bytearray:
    """The same bytes on every machine."""
    return bytearray(random.Random(seed).getrandbits(8 * count).to_bytes(count, "little"))


class Cpu:
    """numpy; `gpus` makes believe, `wrong` spoils one of them, both for rehearsals."""

    def __init__(self, gpus: int = 1, wrong: int = -1) -> None:
        self.np = importlib.import_module("numpy")
        self.gpus, self.wrong = gpus, wrong
        self.version = f"numpy {self.np.__version__}"

    def count(self) -> int:
        return self.gpus

    def describe(self, gpu: int) -> dict[str, Any]:
        return {"name": "CPU", "sms": 0}

    def matrix(self, gpu: int, seed: int, size: int, dtype: str, span: int, scale: float) -> Any:
        raw = self.np.frombuffer(numbers(seed, size * size), dtype="uint8").astype("int32")
        return ((raw % (2 * span + 1) - span) / scale).astype(dtype).reshape(size, size)

    def product(self, gpu: int, a: Any, b: Any) -> Any:
        made = (a.astype("float32") @ b.astype("float32")).astype(a.dtype) + a.dtype.type(0)
        if gpu == self.wrong:
            made[1, 2] += 1
        return made

    def exact(self, a: Any, b: Any) -> Any:
        return (a.astype("float64") @ b.astype("float64")).astype(a.dtype) + a.dtype.type(0)

    def differing(self, a: Any, b: Any) -> Any:
        return (a != b).sum()

    def raw(self, made: Any) -> bytes:
        return bytes(self.np.ascontiguousarray(made).tobytes())

    def wait(self, gpu: int) -> None:
        pass

    def buffers(self, gpu: int, size: int) -> Any:
        return self.np.zeros(size, "uint8"), self.np.empty(size, "uint8"), self.np.zeros(size, "uint8")

    def copy(self, gpu: int, to: Any, source: Any) -> None:
        to[:] = source


class Torch:
    def __init__(self) -> None:
        torch = importlib.import_module("torch")
        if not torch.cuda.is_available():
            raise ImportError("torch sees no GPU")
        self.torch = torch
        self.version = f"torch {torch.__version__}, CUDA {torch.version.cuda}"
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False

    def count(self) -> int:
        return int(self.torch.cuda.device_count())

    def describe(self, gpu: int) -> dict[str, Any]:
        told = self.torch.cuda.get_device_properties(gpu)
        uuid = getattr(told, "uuid", "")
        return {"name": told.name, "sms": told.multi_processor_count, "uuid": f"GPU-{uuid}" if uuid else ""}

    def matrix(self, gpu: int, seed: int, size: int, dtype: str, span: int, scale: float) -> Any:
        raw = self.torch.frombuffer(numbers(seed, size * size), dtype=self.torch.uint8).to(self.torch.int32)
        small = ((raw % (2 * span + 1) - span) / scale).to(getattr(self.torch, dtype)).reshape(size, size)
        return small.to(f"cuda:{gpu}") if gpu >= 0 else small

    def product(self, gpu: int, a: Any, b: Any) -> Any:
        return a @ b + 0

    def exact(self, a: Any, b: Any) -> Any:
        return (a.double() @ b.double()).to(a.dtype) + 0

    def differing(self, a: Any, b: Any) -> Any:
        return (a != b).sum()

    def raw(self, made: Any) -> bytes:
        held = made.cpu().contiguous().view(self.torch.uint8).reshape(-1)
        return bytes(held.numpy().tobytes() if hasattr(held, "numpy") else bytearray(held.tolist()))

    def wait(self, gpu: int) -> None:
        self.torch.cuda.synchronize(gpu)

    def buffers(self, gpu: int, size: int) -> Any:
        make = self.torch.zeros
        host = make(size, dtype=self.torch.uint8, pin_memory=True)
        device = f"cuda:{gpu}"
        return (
            make(size, dtype=self.torch.uint8, device=device),
            make(size, dtype=self.torch.uint8, device=device),
            host,
        )

    def copy(self, gpu: int, to: Any, source: Any) -> None:
        to.copy_(source, non_blocking=True)


class Cupy:
    def __init__(self) -> None:
        cupy = importlib.import_module("cupy")
        if cupy.cuda.runtime.getDeviceCount() < 1:
            raise ImportError("cupy sees no GPU")
        self.cupy, self.cpu = cupy, Cpu()
        self.np = self.cpu.np
        self.version = "cupy " + cupy.__version__

    def count(self) -> int:
        return int(self.cupy.cuda.runtime.getDeviceCount())

    def describe(self, gpu: int) -> dict[str, Any]:
        told = self.cupy.cuda.runtime.getDeviceProperties(gpu)
        return {"name": told["name"].decode(), "sms": told["multiProcessorCount"]}

    def matrix(self, gpu: int, seed: int, size: int, dtype: str, span: int, scale: float) -> Any:
        made = self.cpu.matrix(gpu, seed, size, dtype, span, scale)
        if gpu < 0:
            return made
        with self.cupy.cuda.Device(gpu):
            return self.cupy.asarray(made)

    def product(self, gpu: int, a: Any, b: Any) -> Any:
        with self.cupy.cuda.Device(gpu):
            return a @ b + a.dtype.type(0)

    def exact(self, a: Any, b: Any) -> Any:
        return self.cpu.exact(a, b)

    def differing(self, a: Any, b: Any) -> Any:
        with a.device:
            return (a != b).sum()

    def raw(self, made: Any) -> bytes:
        return self.cpu.raw(self.cupy.asnumpy(made) if isinstance(made, self.cupy.ndarray) else made)

    def wait(self, gpu: int) -> None:
        with self.cupy.cuda.Device(gpu):
            self.cupy.cuda.Device(gpu).synchronize()

    def buffers(self, gpu: int, size: int) -> Any:
        held = self.np.frombuffer(self.cupy.cuda.alloc_pinned_memory(size), "uint8", size)
        with self.cupy.cuda.Device(gpu):
            return self.cupy.zeros(size, "uint8"), self.cupy.zeros(size, "uint8"), held

    def copy(self, gpu: int, to: Any, source: Any) -> None:
        with self.cupy.cuda.Device(gpu):
            to.set(source) if isinstance(source, self.np.ndarray) else self.cupy.copyto(to, source)


def digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:32]


def matmul(backend: Any, size: int, rounds: int, seed: int, seconds: float) -> Iterator[dict[str, Any]]:
    """All GPUs at once, each product again and again and compared with its first: heat and power bring errors out."""
    until = time.monotonic() + seconds
    for number, (case, (dtype, span, scale)) in enumerate(CASES.items()):
        print(f"comparing {case} on {backend.count()} GPUs", file=sys.stderr, flush=True)
        share = time.monotonic() + (until - time.monotonic()) / (len(CASES) - number)
        works = [Work(backend, gpu, size, seed, dtype, span, scale) for gpu in range(backend.count())]
        done = 0
        while done < rounds and (done == 0 or time.monotonic() < share):
            for work in works:
                work.attempt(work.again)
            done += 1
            if done % 4 == 0:
                for work in works:
                    work.attempt(work.wait)
        reference = reference_of(backend, size, seed, dtype, span, scale) if case.startswith("exact") else ""
        for work in works:
            yield dict(work.told(), kind="matmul", case=case, rounds=done, reference=reference, backend=backend.version)


def reference_of(backend: Any, size: int, seed: int, dtype: str, span: int, scale: float) -> str:
    a, b = (backend.matrix(-1, seed + more, size, dtype, span, scale) for more in (0, 1))
    return digest(backend.raw(backend.exact(a, b)))


class Work:
    """One case on one GPU; what breaks is said, and the other GPUs go on."""

    def __init__(self, backend: Any, gpu: int, size: int, seed: int, dtype: str, span: int, scale: float) -> None:
        self.backend, self.gpu, self.error = backend, gpu, ""
        self.first: Any = None
        self.differing: Any = 0
        self.attempt(lambda: self.begin(seed, size, dtype, span, scale))

    def attempt(self, step: Callable[[], None]) -> None:
        if not self.error:
            try:
                step()
            except Exception as why:  # whatever CUDA raises is the result
                self.error = f"{type(why).__name__}: {str(why)[:300]}"

    def begin(self, seed: int, size: int, dtype: str, span: int, scale: float) -> None:
        self.a = self.backend.matrix(self.gpu, seed, size, dtype, span, scale)
        self.b = self.backend.matrix(self.gpu, seed + 1, size, dtype, span, scale)

    def again(self) -> None:
        made = self.backend.product(self.gpu, self.a, self.b)
        if self.first is None:
            self.first = made
        else:
            self.differing = self.differing + self.backend.differing(made, self.first)

    def wait(self) -> None:
        self.backend.wait(self.gpu)

    def told(self) -> dict[str, Any]:
        told: dict[str, Any] = {"gpu": self.gpu}
        self.attempt(lambda: told.update(self.backend.describe(self.gpu)))
        self.attempt(lambda: told.update(digest=digest(self.backend.raw(self.first)), unstable=int(self.differing)))
        return dict(told, error=self.error) if self.error else told


def speed(backend: Any, size: int, megabytes: int) -> Iterator[dict[str, Any]]:
    """One GPU after the other, so that none waits for another on the bus; the best of some tries."""
    for gpu in range(backend.count()):
        print(f"measuring GPU {gpu} of {backend.count()}", file=sys.stderr, flush=True)
        told: dict[str, Any] = {"kind": "speed", "gpu": gpu, "backend": backend.version}
        try:
            told.update(backend.describe(gpu))
            told.update(measured(backend, gpu, size, megabytes << 20))
        except Exception as why:  # whatever CUDA raises is the result
            told["error"] = f"{type(why).__name__}: {str(why)[:300]}"
        yield told


def measured(backend: Any, gpu: int, size: int, room: int) -> dict[str, float]:
    a, b = (backend.matrix(gpu, seed, size, "float16", NARROW, 1.0) for seed in (1, 2))
    one, other, host = backend.buffers(gpu, room)
    gemm = best(backend, gpu, lambda: backend.product(gpu, a, b))
    inside = best(backend, gpu, lambda: backend.copy(gpu, one, other))
    across = best(backend, gpu, lambda: backend.copy(gpu, one, host))
    return {
        "gemm-tflops": round(2.0 * size**3 / gemm / 1e12, 6),
        "memory-gbs": round(2.0 * room / inside / 1e9, 6),  # read and written
        "h2d-gbs": round(room / across / 1e9, 6),
    }


def best(backend: Any, gpu: int, step: Callable[[], Any], times: int = 10) -> float:
    """Seconds for one step, in the fastest try: a slow try may be somebody else's doing, a fast one is not."""
    step()
    backend.wait(gpu)
    found: list[float] = []
    for _ in range(TRIES):
        began = time.perf_counter()
        for _ in range(times):
            step()
        backend.wait(gpu)
        found.append((time.perf_counter() - began) / times)
    return max(min(found), 1e-9)


def backend_of(name: str, gpus: int, wrong: int) -> Any:
    """The one asked for; "auto": torch, then cupy, and never the CPU, which says nothing about a GPU."""
    makers: dict[str, Callable[[], Any]] = {"torch": Torch, "cupy": Cupy, "cpu": lambda: Cpu(gpus, wrong)}
    why = []
    for one in ["torch", "cupy"] if name == "auto" else [name]:
        try:
            return makers[one]()
        except Exception as trouble:  # a broken installation is no installation
            why.append(f"{one}: {str(trouble)[:160]}")
    print(json.dumps({"error": "no torch or cupy here", "why": why}), flush=True)
    return None


def main(argv: list[str]) -> int:
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # so that our numbers are nvidia-smi's
    parser = argparse.ArgumentParser(description="Do all GPUs of this node compute the same, and how fast?")
    parser.add_argument("what", choices=["matmul", "speed"])
    parser.add_argument("--backend", choices=["auto", "torch", "cupy", "cpu"], default="auto")
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--gpus", type=int, default=1, help="backend cpu: how many to make believe")
    parser.add_argument("--wrong", type=int, default=-1, help="backend cpu: the one that computes wrong")
    asked = parser.parse_args(argv)
    backend = backend_of(asked.backend, asked.gpus, asked.wrong)
    if backend is None:
        return 3
    if asked.what == "matmul":
        lines = matmul(backend, asked.size, asked.rounds, asked.seed, asked.seconds)
    else:
        lines = speed(backend, asked.size, asked.megabytes)
    for line in lines:
        print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
