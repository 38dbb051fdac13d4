"""Logs as loggers write them, made from a grammar: the prefixes, and bodies of which we know what they are."""

from __future__ import annotations

from collections.abc import Callable

Prefix = Callable[[int, int, int], str]  # second, microsecond, sequence number


def clock(second: int) -> str:
    return f"{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


PREFIXES: dict[str, Prefix] = {
    "syslog": lambda s, u, n: f"Nov 22 {clock(s)} gpu-a kernel: [{94555 + s:5d}.{u:06d}] ",
    "journal short": lambda s, u, n: f"Nov 22 {clock(s)} gpu-a kernel: ",
    "journal short-iso": lambda s, u, n: f"2026-10-04T{clock(s)}+03:00 gpu-a kernel: ",
    "rsyslog iso": lambda s, u, n: f"2026-10-04T{clock(s)}.{u:06d}Z gpu-a kernel: ",
    "dmesg": lambda s, u, n: f"[{s:5d}.{u:06d}] ",
    "dmesg with caller": lambda s, u, n: f"[{s:5d}.{u:06d}] [ T{1000 + n % 977}] ",
    "dmesg -T": lambda s, u, n: f"[Fri Mar  3 {clock(s)} 2023] ",
    "kmsg": lambda s, u, n: f"4,{n},{s * 1_000_000 + u},-;",
    "dmesg --decode iso": lambda s, u, n: f"kern  :warn  : 2025-01-21T{clock(s)},{u:06d}+00:00 ",
    "pstore": lambda s, u, n: f"<4>[{s:5d}.{u:06d}] ",
    "bare": lambda s, u, n: "",
}
FOREIGN: dict[str, Prefix] = {
    "a program in syslog": lambda s, u, n: f"Nov 22 {clock(s)} gpu-a python[331]: ",
    "a program in the journal": lambda s, u, n: f"2026-10-04T{clock(s)}+03:00 gpu-a kernlog: ",
    "a program through kmsg": lambda s, u, n: f"12,{n},{s * 1_000_000 + u},-;",
    "systemd through printk": lambda s, u, n: f"<30>[{s:5d}.{u:06d}] systemd[1]: ",
}


def _gpu(i: int) -> str:
    return f"PCI:0000:{i % 8 * 16 + 11:02x}:00"


def _sm(i: int) -> str:
    """One fault is three lines per SM."""
    fault = i // 3
    where = f"(GPC {fault % 8}, TPC {fault % 9}, SM {fault % 2})"
    said = (
        f"Graphics SM Warp Exception on {where}: Out Of Range Address",
        f"Graphics SM Global Exception on {where}: Multiple Warp Errors",
        f"Graphics Exception: ESR 0x{fault:x}=0x{i:x} 0x504650=0x20 0x504644=0xd3eff2 0x50464c=0x17f",
    )
    return f"NVRM: Xid ({_gpu(fault)}): 13, pid={31000 + fault % 9000}, name=python3, {said[i % 3]}"


BODIES: dict[str, Callable[[int], str]] = {
    "xid 13": _sm,
    "xid 31": lambda i: (
        f"NVRM: Xid ({_gpu(i)}): 31, pid={31000 + i % 997}, name=pt_main_thread, Ch {i % 512:08x}, intr 00000000. "
        f"MMU Fault: ENGINE GRAPHICS GPC{i % 7} GPCCLIENT_T1_{i % 14} faulted @ 0x6f6f_{i:08x}. "
        "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
    ),
    "xid 48": lambda i: (
        f"NVRM: Xid ({_gpu(i)}): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has "
        f"been detected on GPU in the framebuffer at physAddr 0x{i:x} partition {i % 6}, subpartition {i % 2}."
    ),
    "xid 63": lambda i: (
        f"NVRM: Xid ({_gpu(i)}): 63, pid={31000 + i % 997}, name=python3, "
        f"Row Remapper: New row (0x{i:016x}) marked for remapping, reset gpu to activate."
    ),
    "xid 64": lambda i: (
        f"NVRM: Xid ({_gpu(i)}): 64, pid={31000 + i % 997}, name=python3, "
        f"Row Remapper Error: (0x{i:016x}) - All reserved rows for bank are remapped"
    ),
    "xid 94": lambda i: (
        f"NVRM: Xid ({_gpu(i)}): 94, pid={31000 + i % 997}, name=python3, Contained: SM (0x{i % 4:x}). "
        "RST: No, D-RST: No"
    ),
    "xid 95": lambda i: (
        f"NVRM: Xid ({_gpu(i)}): 95, pid='<unknown>', name=<unknown>, Uncontained: FBHUB. RST: Yes, D-RST: No"
    ),
    "xid 119": lambda i: (
        f"NVRM: Xid ({_gpu(i)}): 119, pid={31000 + i % 997}, name=python3, Timeout after {6 + i % 40}s of waiting for "
        f"RPC response from GPU{i % 8} GSP! Expected function 76 (GSP_RM_CONTROL) (0x{i:x} 0x410)."
    ),
    "xid 145": lambda i: (
        f"NVRM: Xid ({_gpu(i)}): 145, RLW_REMAP Nonfatal XC0 i0 Link {i % 18:02d} "
        f"(0x00000004 0x{1 << i % 3:08x} 0x{i:08x} 0x00000000 0x{i:08x} 0x00000000)"
    ),
    "xid 154": lambda i: (
        f"NVRM: Xid ({_gpu(i)}): 154, GPU recovery action changed from 0x0 (None) to 0x{i % 3:x} (GPU Reset Required)"
    ),
}
OTHERS: dict[str, Callable[[int], str]] = {
    "sxid": lambda i: (
        "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, "
        + ("Fatal, Link 48 LTSSM Fault Up", "Data {0x1, 0x2}", "Severity 1 Engine instance 01")[i % 3]
    ),
    "xid 64, both readings": lambda i: (
        f"NVRM: Xid ({_gpu(i)}): 64, pid={31000 + i % 997}, name=python3, "
        + (
            f"Row Remapper Error: (0x{i:016x}) - All reserved rows for bank are remapped",
            f"Row Remapper: (0x{i:016x}) - Attempting to remap a row that is already pending remapping",
        )[i % 5 == 0]
    ),
    "mig": lambda i: f"NVRM: Xid (PCI:0000:0b:00 GPU-I:0{i % 7}): 94, pid={i}, Contained: CE",
    "rpc history": lambda i: f"NVRM: GPU{i % 8} RPC history (CPU -> GSP):",
    "malformed": lambda i: f"NVRM: Xid (PCI:0000:66:00): abc, pid={i}",
    "calm": lambda i: f"usb 1-1.{i % 9}: new high-speed USB device number {i} using xhci_hcd",
    "lost": lambda i: "NVRM: GPU 0000:0b:00.0: GPU has fallen off the bus.",
    "quoted": lambda i: f"systemd[1]: NVRM: Xid (PCI:0000:0b:00): 79, pid={i}, quoted",
}


def flood(prefix: str, body: str, count: int, per_second: int = 2000) -> list[str]:
    before, say = PREFIXES[prefix], BODIES[body]
    return [before(i // per_second + 3, i % per_second * 499, i + 10_000) + say(i) for i in range(count)]
