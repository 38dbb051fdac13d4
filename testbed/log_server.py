"""The part of a kubelet that serves logs: HTTPS at the address that a node names, asked by the real API server."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything
from testbed.pki import Pki


class LogServer:
    """`logs["pod"]` is what the pod has said so far; of those in `broken` nothing can be read."""

    def __init__(self, folder: Path, logs: dict[str, str] | None = None) -> None:
        pki = Pki(folder / "kubelet-pki")
        pki.make()
        self.logs: dict[str, str] = {} if logs is None else logs
        self.asked: list[str] = []
        self.broken: set[str] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pki.path("apiserver.crt"), pki.path("apiserver.key"))
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                served.asked.append(self.path)
                _, _, _, pod, _ = parts.path.split("/")  # /containerLogs/NAMESPACE/POD/CONTAINER
                if pod in served.broken:
                    self.send_error(500, "the log cannot be read")
                    return
                lines = served.logs.get(pod, "").splitlines(keepends=True)
                many = parse_qs(parts.query).get("tailLines", ["1000000"])[0]
                most = int(parse_qs(parts.query).get("limitBytes", ["1000000000"])[0])
                data = "".join(lines[-int(many) :]).encode()[:most]
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler

    def serve(self, api: Api, node: str) -> None:
        """From now on the API server asks here for the logs of this node's pods."""
        here = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._server.server_address[1]}},
        }
        api.patch(f"{names.node(node)}/status", {"status": here}, Anything)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
