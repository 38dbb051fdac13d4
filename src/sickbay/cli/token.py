"""`sickbay token NODE`: the token with which the agent of one node may report to this cluster's controller.

Printed alone on standard output, for a file on the node (`agent.token_file`). Nothing is stored: it is made from the
first secret of `ingest.secret_file`, so it runs where that file is.
"""

from __future__ import annotations

from typing import Annotated

import typer

from sickbay.cli.sitting import ConfigOption, say

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="The node's name, as the platform shows it.")]


def command(node: NodeArgument, config: ConfigOption = "") -> None:
    """Print the token of one node, for its agent.token_file."""
    from sickbay.settings_load import load
    from sickbay.web.tokens import Secrets, make

    settings = load(config or None).settings
    say(make(Secrets(settings.ingest.secret_file).first(), settings.cluster, node))
