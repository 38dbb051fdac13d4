"""Other sides of notifiers that can break: a web server on loopback, and an SNS topic of moto read through a queue."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.moto import REGION, Front


@dataclass
class Posted:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """A web server that answers as it is told and keeps what came."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    posted: list[Posted] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def broken(self) -> bool:
        return self.status != 200

    @broken.setter
    def broken(self, is_broken: bool) -> None:
        self.status = 503 if is_broken else 200

    @property
    def received(self) -> list[str]:
        """The words, whatever wraps them."""
        return ["\n".join(_texts(json.loads(one.body))) for one in self.posted]


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _texts(inner)]
    return [str(value)]


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            if receiver.status == 200:
                receiver.posted.append(Posted(self.path, dict(self.headers.items()), body))
            self.send_response(receiver.status)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return

    return Handler


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(receiver))
    server.daemon_threads = True
    receiver.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()


class Topic:
    """An SNS topic whose messages go to a queue that we read. `broken`: SNS answers 503."""

    def __init__(self, front: Front, name: str) -> None:
        import boto3  # type: ignore[import-untyped]

        self._front = front
        self.client = boto3.client("sns", region_name=REGION, endpoint_url=front.url)
        self._queues = boto3.client("sqs", region_name=REGION, endpoint_url=f"http://127.0.0.1:{front.to}")
        fifo = {"FifoTopic": "true"} if name.endswith(".fifo") else {}
        self.arn = str(self.client.create_topic(Name=name, Attributes=fifo)["TopicArn"])
        more = {"FifoQueue": "true"} if fifo else {}
        self._queue = self._queues.create_queue(QueueName=name, Attributes=more)["QueueUrl"]
        where = self._queues.get_queue_attributes(QueueUrl=self._queue, AttributeNames=["QueueArn"])
        self.client.subscribe(TopicArn=self.arn, Protocol="sqs", Endpoint=where["Attributes"]["QueueArn"])
        self.letters: list[dict[str, Any]] = []

    @property
    def broken(self) -> bool:
        return "Publish" in self._front.replies

    @broken.setter
    def broken(self, is_broken: bool) -> None:
        self._front.replies.pop("Publish", None)
        if is_broken:
            self._front.replies["Publish"] = (
                503,
                b"<ErrorResponse><Error><Code>ServiceUnavailable</Code></Error></ErrorResponse>",
            )

    @property
    def received(self) -> list[str]:
        self.read()
        return [f"{letter['Subject']}\n{letter['Message']}" for letter in self.letters]

    def read(self) -> list[dict[str, Any]]:
        """What SNS delivered, in its own envelope."""
        got = self._queues.receive_message(QueueUrl=self._queue, MaxNumberOfMessages=10, WaitTimeSeconds=0)
        self.letters += [json.loads(one["Body"]) for one in got.get("Messages", ())]
        return self.letters
