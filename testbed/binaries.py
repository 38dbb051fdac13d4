"""Where the real programs are: the user's (KUBEBUILDER_ASSETS), else ours, built and cached by tools/testbed.

Called by the cluster and by test fixtures. It raises Missing with what a person can do about it; it never looks away.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

TOOL = Path(__file__).parents[1] / "tools" / "testbed"
BUILD_S = 1800.0  # the first time only
ASSETS = "KUBEBUILDER_ASSETS"  # the folder that controller-runtime's setup-envtest makes: etcd, kube-apiserver, kubectl
MULTI = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"}  # all in testbed/kubeone


class Missing(Exception):
    """This machine cannot run it; the text says why and how to change that."""


@cache
def built(name: str) -> Path:
    """A program or folder by its name in tools/testbed; built first when it is not in the cache."""
    try:
        done = subprocess.run([str(TOOL), name], capture_output=True, text=True, timeout=BUILD_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise Missing(f"{name} did not build within {BUILD_S:g} s: run tools/testbed {name} by hand") from error
    if done.returncode != 0:
        raise Missing(done.stderr.strip()[-600:])
    return Path(done.stdout.strip().splitlines()[-1])


def component(name: str) -> list[str]:
    """How a part of the control plane is called: the beginning of its argv."""
    assert name in MULTI, name
    if (found := given(name)) is not None:
        return [str(found)]
    return [str(built("kubeone")), name]


def given(name: str) -> Path | None:
    """The user's own, if KUBEBUILDER_ASSETS has it."""
    folder = os.environ.get(ASSETS, "")
    path = Path(folder) / name
    return path if folder and path.is_file() else None
