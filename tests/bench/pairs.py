"""Sockets in pairs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import uvloop

from tonnage.bench.receiver import Receiver


def in_loop(play: Callable[[Receiver], Awaitable[None]]) -> None:
    async def main() -> None:
        made = Receiver(asyncio.get_running_loop())
        await play(made)
        made.close()

    uvloop.run(main())
