"""Notices as Kubernetes Events about the node and its case: what `kubectl describe` shows who knows nothing of us.

Called by the outbox. Notices about no node are told about our own namespace. Events are forgotten after an hour and
bounded in number (kube/events.py); the log and the other notifiers are where a notice is kept.
"""

from __future__ import annotations

from contextlib import suppress

from sickbay.errors import ApiError
from sickbay.kube import events, names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything
from sickbay.model import Done, Failed, Notice, Outcome, Retry
from sickbay.notifiers.words import clean, node_of

REASONS = {"urgent": "SickbayNeedsAPerson", "warning": "SickbayWarning"}
LONGEST = events.LONGEST - 20


class EventNotifier:
    """ports.Notifier."""

    name = "events"

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace

    def send(self, notice: Notice) -> Outcome:
        try:
            written = self._write(self._about(notice), notice)
            self._tell_the_case(notice)
        except ApiError as error:
            if error.refused or error.not_found:
                return Failed(f"the API server takes no event: {error.said}")
            return Retry(error.retry_after, f"the API server: {error}")
        return Done("" if written else "left out: too many events about this node already")

    def _write(self, about: dict[str, str], notice: Notice) -> bool:
        kind = events.WARNING if notice.level in REASONS else events.NORMAL
        reason = REASONS.get(notice.level, "SickbayNotice")
        return events.event(self._api, self._namespace, about, kind, reason, message(notice), "sickbay")

    def _tell_the_case(self, notice: Notice) -> None:
        """Besides: what was said of the node is told, whether or not it can be said here too."""
        with suppress(ApiError):
            if case := self._case(notice):
                self._write(case, notice)

    def _case(self, notice: Notice) -> dict[str, str] | None:
        """`kubectl describe nodecase` looks for its uid, so it is asked for; it may be gone by now."""
        name = names.object_name(notice.case) if notice.case else ""
        found = self._api.find(names.custom(self._namespace, "nodecases", name), Anything) if name else None
        if found is None:
            return None
        group = f"{names.GROUP}/{names.VERSION}"
        return {
            "apiVersion": group,
            "kind": "NodeCase",
            "name": name,
            "namespace": self._namespace,
            "uid": found.metadata.uid,
        }

    def _about(self, notice: Notice) -> dict[str, str]:
        """By name, as a kubelet does: kubectl looks for events whose uid is the node's name as well."""
        if node := node_of(notice):
            return events.about_node(node, node)
        return {"apiVersion": "v1", "kind": "Namespace", "name": self._namespace, "uid": ""}


def message(notice: Notice) -> str:
    """One line; what it is about comes whole, however long the rest is."""
    foot = f" [{clean(notice.level, 40)}, case {clean(notice.case, 260)}, notice {clean(notice.key, 260)}]"
    words = " ".join(f"{clean(notice.title, 300)}: {clean(notice.body, 2_000)}".split())
    room = max(100, LONGEST - len(foot.encode()))
    short = words if len(words.encode()) <= room else words.encode()[: room - 3].decode("utf-8", "ignore") + "…"
    return short + foot
