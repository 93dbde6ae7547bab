"""Free ports for child processes."""

from __future__ import annotations

import socket
from contextlib import ExitStack


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports that nobody listens on at this moment, all different; another process may still take one before it is used."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server((host, 0))) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in held]
