"""Whose a connection is, for bounds that hold for one stranger. Used by pages.py and web/threshold.py; it asks no name
service.
"""

from __future__ import annotations

import ipaddress


def source_of(host: str) -> str:
    """Of IPv6 the network that one machine has for itself: it may take any address in it."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
