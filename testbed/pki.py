"""Certificates of one test cluster, made by openssl: a CA, a serving pair, client pairs, a key for service accounts.

Called once by Cluster.start, and by install.py for webhooks. Valid for loopback and thirty days.
"""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

from testbed.binaries import Missing

DAYS = "30"
NAMES = "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:10.0.0.1"


class Pki:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self) -> None:
        self.folder.mkdir(parents=True)
        self._openssl("genpkey", *_key_args(), "-out", "ca.key")
        self._openssl("req", "-x509", "-new", "-key", "ca.key", "-subj", "/CN=testbed", "-days", DAYS, "-out", "ca.crt")
        self._openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", "sa.key")
        self.pair("apiserver", "/CN=kube-apiserver", serving=True)
        self.pair("admin", "/O=system:masters/CN=admin")
        self.pair("kwok", "/O=system:masters/CN=kwok")
        self.pair("scheduler", "/CN=system:kube-scheduler")
        self.pair("controllers", "/CN=system:kube-controller-manager")

    def pair(self, name: str, subject: str, *, serving: bool = False) -> None:
        """NAME.crt and NAME.key, signed by our CA."""
        use = f"extendedKeyUsage=serverAuth\nsubjectAltName={NAMES}\n" if serving else "extendedKeyUsage=clientAuth\n"
        self.path(f"{name}.ext").write_text(use)
        self._openssl("genpkey", *_key_args(), "-out", f"{name}.key")
        self._openssl("req", "-new", "-key", f"{name}.key", "-subj", subject, "-out", f"{name}.csr")
        self._openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", DAYS, "-extfile", f"{name}.ext", "-out", f"{name}.crt",
        )  # fmt: skip

    def path(self, name: str) -> Path:
        return self.folder / name

    def data(self, name: str) -> str:
        return base64.b64encode(self.path(name).read_bytes()).decode()

    def kubeconfig(self, user: str, server: str, to: Path) -> Path:
        """JSON is YAML; everything inline, so that the file can be carried elsewhere."""
        cluster = {"server": server, "certificate-authority-data": self.data("ca.crt")}
        who = {"client-certificate-data": self.data(f"{user}.crt"), "client-key-data": self.data(f"{user}.key")}
        whole = {
            "apiVersion": "v1", "kind": "Config", "current-context": "testbed",
            "clusters": [{"name": "testbed", "cluster": cluster}],
            "users": [{"name": user, "user": who}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user}}],
        }  # fmt: skip
        to.touch(mode=0o600)
        to.write_text(json.dumps(whole, indent=1))
        return to

    def _openssl(self, *args: str) -> None:
        try:
            done = subprocess.run(["openssl", *args], cwd=self.folder, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            raise Missing("no openssl here: install the package openssl") from error
        if done.returncode != 0:
            raise Missing(f"openssl {args[0]}: {done.stderr.strip()[-300:]}")


def _key_args() -> tuple[str, ...]:
    return ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1")
