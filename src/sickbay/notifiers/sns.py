"""Notices to an Amazon SNS topic: a subject and a text for people, the originals' payload as message attributes.

Called by the outbox. boto3 is imported when the notifier is made. Subject and attributes are what SNS takes: short,
printable ASCII in the subject, no empty attribute. A FIFO topic gets the case as its group and the key as its once-only
id. Only words that SNS cannot take are a refusal: a topic, a key or a right that is missing is about the way there, and
is tried again by the outbox like throttling, 5xx and silence.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

from sickbay.errors import UserError
from sickbay.model import Done, Failed, Notice, Outcome, Retry
from sickbay.notifiers.words import clean, node_of, payload, plain

LONGEST_SUBJECT = 100
LONGEST_TEXT = 60_000  # 256 KB is SNS's bound; nobody reads more than this
ATTRIBUTES = ("error_type", "node_name", "instance_id", "cluster_name", "timestamp")
WORDS = ("InvalidParameter", "ParameterValueInvalid", "Validation")  # codes that are about the message itself
_ARN = re.compile(r"arn:aws[a-z-]*:sns:([a-z0-9-]+):\d{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?")


class SnsNotifier:
    """ports.Notifier. `client` is for tests; otherwise one for the region that the topic's name tells."""

    name = "sns"

    def __init__(
        self, topic_arn: str, cluster: str, *, client: Any = None, instance: Callable[[str], str] | None = None
    ) -> None:
        found = _ARN.fullmatch(topic_arn)
        if found is None:
            raise UserError(
                f'notify.sns_topic_arn = {topic_arn[:80]!r}: as in "arn:aws:sns:us-west-2:123456789012:name"'
            )
        self._topic, self._fifo, self._cluster = topic_arn, bool(found.group(2)), cluster
        self._instance = instance or (lambda _: "")
        self._client = client if client is not None else _client(found.group(1))

    def send(self, notice: Notice) -> Outcome:
        try:
            self._client.publish(TopicArn=self._topic, **self._message(notice))
        except Exception as error:
            if not type(error).__module__.startswith(("botocore", "boto3")):
                raise
            return _refusal(error)
        return Done()

    def _message(self, notice: Notice) -> dict[str, Any]:
        told = payload(notice, self._cluster, self._instance(node_of(notice)))
        attributes = {name: str(told[name]) for name in ATTRIBUTES if told[name]} | {"level": clean(notice.level, 64)}
        message: dict[str, Any] = {
            "Subject": subject(notice),
            "Message": f"{clean(notice.title, 1_000)}\n\n{plain(notice, self._cluster, LONGEST_TEXT)}",
            "MessageAttributes": {
                name: {"DataType": "String", "StringValue": value}
                for name, value in attributes.items()
                if value.strip()
            },
        }
        if self._fifo:
            message["MessageGroupId"] = _id(notice.case or "fleet")
            message["MessageDeduplicationId"] = _id(notice.key)
        return message


def subject(notice: Notice) -> str:
    """SNS takes up to 100 printable ASCII characters, beginning with a letter, digit or mark."""
    words = " ".join(clean(f"Sickbay {notice.level}: {notice.title}", 500).split())
    text = words.encode("ascii", "replace").decode()
    return text if len(text) <= LONGEST_SUBJECT else text[: LONGEST_SUBJECT - 3] + "..."


def _id(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _client(region: str) -> Any:
    try:
        import boto3  # type: ignore[import-untyped]
        from botocore.config import Config  # type: ignore[import-untyped]
    except ImportError as missing:
        raise UserError("notify.sns_topic_arn needs boto3: pip install 'sickbay[aws]'") from missing
    config = Config(connect_timeout=5.0, read_timeout=5.0, retries={"total_max_attempts": 1, "mode": "standard"})
    return boto3.Session().client("sns", region_name=region, config=config)


def _refusal(error: Exception) -> Outcome:
    said = getattr(error, "response", None) or {}
    status = int(said.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) or 0)
    code = str(said.get("Error", {}).get("Code", "")) or type(error).__name__
    words = " ".join(f"SNS: {code}: {said.get('Error', {}).get('Message') or error}".split())[:300]
    if 400 <= status < 500 and code.startswith(WORDS):
        return Failed(words)
    return Retry(0.0, words)
