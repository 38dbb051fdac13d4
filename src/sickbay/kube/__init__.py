"""The Kubernetes API as plain HTTP: how to reach it, ask it, and follow it.

Shared by everybody who speaks to an API server (agent publisher, store, platform, lease, notifier, command line), as
`hosts` is by everybody who runs commands. Standard library and msgspec only: the agent may import no client library
(plan, section 10), and one client is enough. It knows no case and decides nothing.
"""
