"""Where notices go. One file per notifier behind ports.Notifier; `notifiers_of` makes those that the settings name."""

from __future__ import annotations

from collections.abc import Callable

from sickbay.kube.api import Api
from sickbay.notifiers.log import LogNotifier
from sickbay.ports import Notifier
from sickbay.settings import Settings


def notifiers_of(
    settings: Settings, *, api: Api | None = None, instance: Callable[[str], str] | None = None
) -> list[Notifier]:
    """The log always; the others as [notify] says; Events when there is an API server. UserError for what a person must
    mend. `instance`: the machine of a node, for receivers of the originals' payload."""
    notify, made = settings.notify, list[Notifier]([LogNotifier()])
    if notify.webhook_url:
        from sickbay.notifiers.webhook import WebhookNotifier

        made.append(
            WebhookNotifier(notify.webhook_url, settings.cluster, notify.webhook_secret_file, instance=instance)
        )
    if notify.sns_topic_arn:
        from sickbay.notifiers.sns import SnsNotifier

        made.append(SnsNotifier(notify.sns_topic_arn, settings.cluster, instance=instance))
    if notify.apprise_file:
        from sickbay.notifiers.apprise import apprise_notifiers

        made += apprise_notifiers(notify.apprise_file, settings.cluster)
    if api is not None:
        from sickbay.notifiers.events import EventNotifier

        made.append(EventNotifier(api, settings.kubernetes.namespace))
    return made
