"""Ports of this machine that nobody else gets between the moment they are chosen and the moment they are used."""

from __future__ import annotations

import socket


def reserved() -> socket.socket:
    """A socket that holds a free port of 127.0.0.1 until it is closed.

    Nobody who asks for any port gets this one. Whoever names it may listen on it, because servers set SO_REUSEADDR as
    this socket does; until then connections are refused.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


def number(held: socket.socket) -> int:
    """Which port it is."""
    return int(held.getsockname()[1])
