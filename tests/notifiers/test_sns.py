"""SNS, delivered for real by moto into a queue."""

from __future__ import annotations

import secrets

import pytest

from sickbay.errors import UserError
from sickbay.model import Done, Failed, Notice, Retry
from sickbay.notifiers.sns import SnsNotifier, _refusal, subject
from tests.moto import Front

from .far_ends import Topic

NOTICE = Notice("gpu-17.3/4", "urgent", "gpu-17 needs a person", "XID 79: off the bus", "gpu-17.3", 1.8e9)


def test_what_a_subscriber_filters_by_is_in_the_attributes(topic: Topic) -> None:
    """originals 000.7: the common event payload."""
    SnsNotifier(topic.arn, "prod", client=topic.client, instance=lambda _: "i-0abc").send(NOTICE)
    (letter,) = topic.read()
    told = {name: one["Value"] for name, one in letter["MessageAttributes"].items()}
    assert told == {
        "error_type": "XID_CRITICAL_79", "node_name": "gpu-17", "instance_id": "i-0abc", "cluster_name": "prod",
        "timestamp": "2027-01-15T08:00:00Z", "level": "urgent",
    }  # fmt: skip
    assert letter["Subject"] == "Sickbay urgent: gpu-17 needs a person"
    assert "urgency: CRITICAL" in letter["Message"]


def test_a_fifo_topic_delivers_the_same_notice_once(amazon: Front) -> None:
    topic = Topic(amazon, f"t-{secrets.token_hex(4)}.fifo")
    sender = SnsNotifier(topic.arn, "prod", client=topic.client)
    assert [sender.send(NOTICE), sender.send(NOTICE)] == [Done(), Done()]
    published = [call for call in amazon.calls if call["Action"] == "Publish"]
    assert len({call["MessageDeduplicationId"] for call in published}) == 1


def test_a_topic_that_is_not_there_is_tried_again_and_said_in_words(topic: Topic) -> None:
    said = SnsNotifier(topic.arn + "-gone", "prod", client=topic.client).send(NOTICE)
    assert isinstance(said, Retry)
    assert "NotFound" in said.why


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [(403, "AuthorizationError", Retry), (400, "KMSAccessDenied", Retry), (400, "Throttling", Retry),
     (400, "InvalidParameter", Failed)],
)  # fmt: skip
def test_only_words_that_cannot_be_taken_are_a_refusal(status: int, code: str, kind: type) -> None:
    error = RuntimeError("as botocore says it")
    error.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}  # type: ignore[attr-defined]
    assert isinstance(_refusal(error), kind)


@pytest.mark.parametrize("title", ["x" * 500, "two\nlines\tand  spaces", "Grüße – 错误", ""])
def test_a_subject_is_what_sns_takes(title: str) -> None:
    text = subject(Notice("k", "info", title, ""))
    assert text.isascii()
    assert text.isprintable()
    assert 1 <= len(text) <= 100


def test_a_name_that_is_no_topic_is_refused_at_the_start() -> None:
    with pytest.raises(UserError, match="arn:aws:sns"):
        SnsNotifier("arn:aws:sqs:us-west-2:123456789012:q", "c", client=object())
