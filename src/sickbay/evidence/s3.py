"""The evidence store as a bucket of Amazon S3, or of whatever speaks its language.

Composed by controller/sites.py; the command line reads it with the operator's own credentials. boto3 is imported when a
client is made. Only objects under `evidence.prefix` with names of ours are listed, read or removed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from sickbay.errors import EvidenceError, UserError
from sickbay.evidence.keeping import (
    Keeper,
    Kept,
    Limits,
    checked,
    described,
    is_name,
    outdated,
    refusal,
    refuse_other_names,
)
from sickbay.model import Archive
from sickbay.settings import EvidenceSettings

MOST_LISTED = 100_000  # objects: a prefix that others fill as well is no reason to list for ever


class S3Evidence(Keeper):
    """ports.EvidenceStore."""

    def __init__(
        self, client: Any, bucket: str, prefix: str, limits: Limits, now: Callable[[], float] = time.time
    ) -> None:
        super().__init__(limits, now)
        self._client, self._bucket = client, bucket
        self._prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""

    def put(self, name: str, data: bytes) -> Archive:
        with self._lock:
            try:
                there = self._pruned()
                self._trouble = refusal(name, len(data), there, self._limits)
                if not self._trouble:
                    self._asked("put_object", Key=self._prefix + name, Body=data, ContentType="application/gzip")
            except EvidenceError as error:
                self._trouble = str(error)
            if self._trouble:
                raise EvidenceError(self._trouble)
            return described(name, data)

    def get(self, archive: Archive) -> bytes:
        refuse_other_names(archive)
        body = self._asked("get_object", Key=self._prefix + archive.name)["Body"]
        try:
            return checked(archive, body.read(archive.size + 1))
        except Exception as error:
            raise _said(error, f"{archive.name} of bucket {self._bucket}") from error
        finally:
            body.close()

    def prune(self) -> int:
        with self._lock:
            before = list(self._there())
            return len(before) - len(self._pruned(before))

    def _pruned(self, there: list[Kept] | None = None) -> list[Kept]:
        """What is there, without what was past its time."""
        found = list(self._there()) if there is None else there
        old = outdated(found, self._limits, self._now())
        for one in old:
            self._asked("delete_object", Key=self._prefix + one.name)
        return [one for one in found if one not in old]

    def _there(self) -> Iterator[Kept]:
        more: dict[str, str] = {}
        for _ in range(MOST_LISTED // 1_000):
            page = self._asked("list_objects_v2", Prefix=self._prefix, **more)
            for one in page.get("Contents", ()):
                name = one["Key"].removeprefix(self._prefix)
                if is_name(name):
                    yield Kept(name, one["Size"], one["LastModified"].timestamp())
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def _asked(self, what: str, **args: Any) -> Any:
        try:
            return getattr(self._client, what)(Bucket=self._bucket, **args)
        except Exception as error:
            raise _said(error, f"{what} in bucket {self._bucket}") from error


def _said(error: Exception, what: str) -> Exception:
    """An EvidenceError in the words of S3; a mistake of our own stays what it is."""
    if not type(error).__module__.startswith(("botocore", "boto3", "urllib3")):
        return error
    return EvidenceError(f"{what}: {error}")


def client_of(settings: EvidenceSettings) -> Any:
    """A client with short time limits: COLLECT has minutes, and a case does not wait for a bucket."""
    try:
        import boto3  # type: ignore[import-untyped]
        from botocore.config import Config  # type: ignore[import-untyped]
    except ImportError as missing:
        raise UserError("evidence.store s3 needs boto3: pip install 'sickbay[aws]'") from missing
    config = Config(connect_timeout=3, read_timeout=4, retries={"total_max_attempts": 2, "mode": "standard"})
    region, endpoint = settings.region or None, settings.endpoint or None
    return boto3.Session().client("s3", region_name=region, endpoint_url=endpoint, config=config)
