"""Evidence about a node, gathered before a treatment destroys it: kernel window, tool outputs, serials, one archive."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Mapping

from sickbay.sim.hardware import SimNode
from sickbay.sim.host import SimHost
from sickbay.sim.jobs import SimJob
from sickbay.sim.kernel import as_dmesg
from sickbay.sim.world import World

WINDOW = 2_000  # kernel lines
COMMANDS = {
    "nvidia-smi-q.txt": ("nvidia-smi", "-q"),
    "nvidia-smi-L.txt": ("nvidia-smi", "-L"),
    "nvidia-smi-nvlink.txt": ("nvidia-smi", "nvlink", "-s"),
    "dcgmi-health.txt": ("dcgmi", "health", "-c"),
}


def gather(world: World, node: SimNode, key: str) -> dict[str, str]:
    """File name -> text. A node that does not answer still has an identity and what its agent said last."""
    files = {"identity.json": json.dumps(_identity(world, node, key), indent=2, sort_keys=True) + "\n"}
    files["findings.txt"] = "".join(
        f"{f.code or 'ok'} {f.place.device or '-'} {f.reason}\n" + "".join(f"    {line}\n" for line in f.evidence)
        for f in node.findings.values()
    )
    if not node.answers:
        return files | {"unreachable.txt": f"{node.name} did not answer when evidence was collected\n"}
    files["kernel.log"] = as_dmesg(node.kernel.tail(WINDOW))
    host = SimHost(world, node)
    for name, argv in COMMANDS.items():
        done = host.run(argv, 30.0)
        files[name] = done.stdout + done.stderr + ("(no answer: timed out)\n" if done.timed_out else "")
    return files


def gather_gang(world: World, job: SimJob, key: str) -> dict[str, str]:
    """What a stalled gang can still say: where each rank stands, and the last lines of those that said anything."""
    exits = {x.rank: x for x in job.exits}
    stands = [
        f"rank {rank} on {node}: " + ("silent" if rank in job.silent else "waits in all_reduce") + "\n"
        for rank, node in enumerate(job.rank_nodes)
    ]
    files = {
        "identity.json": json.dumps({"action": key, "job": job.id, "attempt": job.attempt, "step": job.step(world.now)})
        + "\n",
        "stacks.txt": "".join(stands),
    }
    return files | {f"rank-{rank}.log": "\n".join(x.tail) + "\n" for rank, x in exits.items() if x.tail}


def _identity(world: World, node: SimNode, key: str) -> dict[str, object]:
    return {
        "action": key,
        "node": node.name,
        "instance": node.instance,
        "rack": node.rack,
        "driver": node.driver,
        "image": node.image,
        "boot_id": node.boot_id,
        "collected_at": round(world.now, 3),
        "gpus": [{"index": g.index, "pci": g.pci, "serial": g.serial, "uuid": g.uuid} for g in node.gpu_map],
    }


def packed(key: str, files: Mapping[str, str]) -> bytes:
    """One .tar.gz, the same for the same files."""
    name, out = key.replace("/", "-").replace("#", "-"), io.BytesIO()
    with (
        gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        for file_name, text in files.items():
            data = text.encode()
            entry = tarfile.TarInfo(f"{name}/{file_name}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()
