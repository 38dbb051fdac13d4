"""Where an API server is and how to prove who we are: from inside a pod, or from a kubeconfig file.

Called once per process by `open_api`. In a pod the token is read again as the kubelet rotates it, and so is the CA; a
kubeconfig's exec plugin (`aws eks get-token`) is run again shortly before what it gave expires. It must never log a
secret.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sickbay import atomic
from sickbay.errors import UserError

log = logging.getLogger(__name__)

IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REREAD_S = 60.0  # the kubelet replaces a projected token well before its end
EXEC_S = 60.0
EARLY_S = 60.0  # an exec plugin's token is renewed this long before it expires


@dataclass(frozen=True, slots=True)
class Access:
    """One cluster, one identity. `token` is asked before each request, `tls` before each new connection."""

    host: str
    port: int
    tls: Callable[[], ssl.SSLContext]
    token: Callable[[], str]
    namespace: str = "default"
    prefix: str = ""  # a path before /api, as some proxies have


def find_access(kubeconfig: str = "", context: str = "") -> Access:
    """The file that was named; else the pod we are in; else KUBECONFIG, else ~/.kube/config."""
    if kubeconfig:
        return from_kubeconfig(Path(kubeconfig).expanduser(), context)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and (IN_POD / "token").exists():
        return from_pod(IN_POD)
    named = [name for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    path = Path(named[0]) if named else Path.home() / ".kube" / "config"
    return from_kubeconfig(path.expanduser(), context)


def from_pod(folder: Path = IN_POD) -> Access:
    authority = folder / "ca.crt"
    tls = Trust((authority,), lambda: ssl.create_default_context(cafile=str(authority)))
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = int(os.environ.get("KUBERNETES_SERVICE_PORT", "443"))
    namespace = (folder / "namespace").read_text().strip() if (folder / "namespace").exists() else "default"
    return Access(host, port, tls, TokenFile(folder / "token"), namespace)


class Trust:
    """Whom we believe and who we are, from files: made anew when one of them is replaced, as a rotated CA is."""

    def __init__(self, files: tuple[Path, ...], make: Callable[[], ssl.SSLContext]) -> None:
        self._files, self._make = files, make
        self._stamp = self._stamped()
        self._made = make()

    def __call__(self) -> ssl.SSLContext:
        if (stamp := self._stamped()) != self._stamp:
            try:
                self._made, self._stamp = self._make(), stamp
            except (OSError, UserError) as error:  # half written; an SSLError is an OSError
                log.warning("%s changed and cannot be read, the last good one is kept: %s", self._files[0], error)
        return self._made

    def _stamped(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_stamp(path) for path in self._files)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _bytes(path: Path) -> bytes:
    with atomic.named(path) as opened:
        return opened.read()


class TokenFile:
    """A token that is rotated by replacing its file."""

    def __init__(self, path: Path) -> None:
        self._path, self._read_at, self._token = path, float("-inf"), ""

    def __call__(self) -> str:
        if time.monotonic() - self._read_at > REREAD_S:
            self._token, self._read_at = _bytes(self._path).decode("ascii").strip(), time.monotonic()
        return self._token


# --- kubeconfig -------------------------------------------------------------------------------------------------------


def from_kubeconfig(path: Path, context: str = "") -> Access:
    config = _read(path)
    name = context or str(config.get("current-context") or "")
    chosen = _named(config, "contexts", "context", name, path)
    cluster = _named(config, "clusters", "cluster", str(chosen.get("cluster", "")), path)
    user = _named(config, "users", "user", str(chosen.get("user", "")), path)
    parts = urlsplit(str(cluster.get("server", "")))
    if parts.scheme != "https" or not parts.hostname:
        raise UserError(f"{path}: cluster {chosen.get('cluster')!r} has no https server address")
    groups = ((cluster, "certificate-authority"), (user, "client-certificate"), (user, "client-key"))
    files = tuple(path.parent / str(group[name]) for group, name in groups if group.get(name))
    tls = Trust(files, lambda: _tls(cluster, user, path.parent))
    token = _token_of(user, path.parent, path)
    namespace = str(chosen.get("namespace") or "default")
    return Access(parts.hostname, parts.port or 443, tls, token, namespace, parts.path.rstrip("/"))


def _read(path: Path) -> Mapping[str, Any]:
    try:
        import yaml
    except ImportError as missing:
        raise UserError("reading a kubeconfig needs PyYAML: pip install 'sickbay[kubernetes]'") from missing
    try:
        found = yaml.safe_load(_bytes(path))
    except OSError as error:
        raise UserError(
            f"{path}: cannot read the kubeconfig ({error.strerror}): set KUBECONFIG or kubernetes.kubeconfig"
        ) from error
    except yaml.YAMLError as error:
        raise UserError(f"{path}: this is no kubeconfig: {error}") from error
    if not isinstance(found, dict):
        raise UserError(f"{path}: this is no kubeconfig")
    return found


def _named(config: Mapping[str, Any], group: str, inner: str, name: str, path: Path) -> Mapping[str, Any]:
    for item in config.get(group) or ():
        if isinstance(item, dict) and item.get("name") == name:
            return item.get(inner) or {}
    known = ", ".join(str(item.get("name")) for item in config.get(group) or () if isinstance(item, dict)) or "none"
    raise UserError(f"{path}: there is no {inner} named {name!r}; known: {known}")


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> ssl.SSLContext:
    if cluster.get("insecure-skip-tls-verify"):
        tls = ssl._create_unverified_context()
    else:
        data = _data(cluster, "certificate-authority", folder)
        tls = ssl.create_default_context(cadata=data.decode("ascii") if data else None)
    certificate, key = _data(user, "client-certificate", folder), _data(user, "client-key", folder)
    if certificate and key:
        with tempfile.NamedTemporaryFile() as pair:  # ssl reads certificates from files only; 0600, gone at once
            pair.write(certificate + b"\n" + key)
            pair.flush()
            tls.load_cert_chain(pair.name)
    return tls


def _data(group: Mapping[str, Any], name: str, folder: Path) -> bytes:
    if inline := group.get(f"{name}-data"):
        return base64.b64decode(inline)
    if file := group.get(name):
        try:
            return _bytes(folder / str(file))
        except OSError as error:
            raise UserError(f"{file}: named by the kubeconfig as {name}, cannot be read: {error.strerror}") from error
    return b""


def _token_of(user: Mapping[str, Any], folder: Path, path: Path) -> Callable[[], str]:
    if token := user.get("token"):
        return lambda: str(token)
    if file := user.get("tokenFile"):
        return TokenFile(folder / str(file))
    if isinstance(plugin := user.get("exec"), dict):
        return ExecToken(plugin, path)
    return lambda: ""


class ExecToken:
    """A credential plugin, run again when what it said runs out (client.authentication.k8s.io, ExecCredential)."""

    def __init__(self, plugin: Mapping[str, Any], path: Path) -> None:
        self._argv = [str(plugin.get("command", "")), *(str(arg) for arg in plugin.get("args") or ())]
        self._env = {str(item["name"]): str(item["value"]) for item in plugin.get("env") or ()}
        self._version = str(plugin.get("apiVersion", "client.authentication.k8s.io/v1"))
        self._path, self._token, self._until, self._lock = path, "", float("-inf"), threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            if time.time() >= self._until - EARLY_S:
                self._renew()
            return self._token

    def _renew(self) -> None:
        info = {"apiVersion": self._version, "kind": "ExecCredential", "spec": {"interactive": False}}
        env = {**os.environ, **self._env, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        try:
            done = subprocess.run(self._argv, env=env, capture_output=True, timeout=EXEC_S, check=True)
            status = json.loads(done.stdout)["status"]
            self._token = str(status["token"])
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode("utf-8", "replace").strip()[-300:]
            raise UserError(f"{self._path}: {self._argv[0]} gave no credentials: {said}") from error
        except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{self._path}: {self._argv[0]} gave no credentials: {error}") from error
        self._until = _epoch(str(status.get("expirationTimestamp") or ""))


def _epoch(stamp: str) -> float:
    try:
        return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return time.time() + 600.0  # it did not say: ten minutes are safe everywhere
