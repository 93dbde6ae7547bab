"""KV caches that one simulated engine hands to another: prefill and decode apart, through the API.

A router sends a prompt to an engine of the prefill pool with ``max_tokens: 1`` and
``kv_transfer_params: {"do_remote_decode": true}``, takes the ``kv_transfer_params`` of the reply,
and sends the request with them to an engine of the decode pool, which answers the client. The
fields are those of vLLM's NIXL connector (vllm 0.32.0,
distributed/kv_transfer/kv_connector/v1/nixl/pull_scheduler.py); a router need not understand them.
Where NIXL reads memory, the decode engine asks the other's server when the cache will have come.

Times are those of two simulated pools (``simulator.pools``): a cache is on its way from the end of
its prompt, an engine sends one after another, and its blocks are held until the last byte has left.
One that nobody fetches is dropped after vLLM's ``kv_lease_duration``.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal
from urllib.parse import quote

from tonnage.serve.dialect import Refused
from tonnage.serve.instance import Instance
from tonnage.serve.request import Asked
from tonnage.simulator.pools import KvLink

Role = Literal["producer", "consumer"]

LEASE_S = 30.0  # Seconds that a cache waits to be fetched (``kv_lease_duration`` of vLLM 0.32.0)

ANSWERS_IN_S = 5.0
FETCHED = "/kv/"  # The path of a cache, before the name of its request

NEEDED = ("remote_engine_id", "remote_request_id", "remote_host", "remote_port", "remote_block_ids")
"""Without these vLLM computes the prompt itself."""


@dataclass(slots=True, kw_only=True)
class Waiting:
    """A cache that can be fetched."""

    instance: Instance  # which computed it
    tokens: int  # of its prompt
    # and comes_at: when it was computed, and its last byte will have come, in picoseconds of the
    # instance's clock
    computed_at: int
    comes_at: int
    late_s: float = 0.0  # wall-clock seconds from ``computed_at`` to the reply


@dataclass(slots=True, kw_only=True)
class Transfers:
    """The caches that a server hands on, or receives."""

    role: Role  # whether its engines compute prompts for others, or decode what others computed
    link: KvLink  # between both
    later: Callable[[float, Callable[[], object]], Any]  # calls a function after wall-clock seconds
    # the name of this server among others
    engine: str = field(default_factory=lambda: secrets.token_hex(16))
    waiting: dict[str, Waiting] = field(default_factory=dict)  # what can be fetched, by request
    # when the link of each instance is free again
    free: dict[str, int] = field(default_factory=dict)

    def offers(self, wish: Asked) -> bool:
        """Whether the cache of a request is for another engine."""
        return self.role == "producer" and bool((wish.transfer or {}).get("do_remote_decode"))

    def computed(self, request: str, instance: Instance, tokens: int) -> None:
        """A prompt has been computed whose cache is for another: send it, and hold its blocks
        meanwhile.
        """
        engine, at = instance.member.engine, instance.handing_at
        blocks = engine.hold(-(-tokens // self.link.block_tokens))
        starts = max(at, self.free.get(instance.name, 0))
        comes_at = starts + int(self.link.takes_ps(tokens, engine.last_step_ps))
        self.free[instance.name] = comes_at
        self.waiting[request] = Waiting(
            instance=instance, tokens=tokens, computed_at=at, comes_at=comes_at
        )
        self.later(instance.wall_s(comes_at), partial(instance.release, blocks))
        self.later(instance.wall_s(comes_at) + LEASE_S, partial(self.waiting.pop, request, None))

    def offered(self, request: str, host: str, port: int) -> dict[str, Any] | None:
        """``kv_transfer_params`` of a reply, for the engine that decodes; None where nothing was
        computed.
        """
        waiting = self.waiting.get(request)
        if waiting is None:
            return None
        waiting.late_s = -waiting.instance.wall_s(waiting.computed_at)
        blocks = list(range(-(-waiting.tokens // self.link.block_tokens)))
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [blocks],
            "remote_engine_id": self.engine,
            "remote_request_id": request,
            "remote_host": host,
            "remote_port": port,
            "tp_size": 1,
            "dcp_size": 1,
            "pp_size": 1,
            "remote_num_tokens": waiting.tokens,
            "remote_blocks_expiry_time": None,
            "transfer_mode": "pull",
        }

    def fetched(self, request: str) -> dict[str, float] | None:
        """Hand over a fetched cache, once: its tokens, the seconds until it arrived, and the
        seconds by which this machine was late; None if it is gone.
        """
        cache = self.waiting.pop(request, None)
        return (
            None
            if cache is None
            else {
                "tokens": cache.tokens,
                "comes_in_s": cache.instance.wall_s(cache.comes_at),
                "late_s": cache.late_s,
            }
        )

    async def received(self, wish: Asked) -> Asked:
        """A request with the cache that its parameters name, if they do. Raises Refused: it is gone
        (vLLM's ``kv_load_failure_policy``).
        """
        import httpcore2

        parameters = wish.transfer or {}
        if (
            self.role != "consumer"
            or not parameters.get("do_remote_prefill")
            or not all(parameters.get(name) for name in NEEDED)
            or wish.osl < 2
        ):
            return wish
        url = f"http://{parameters['remote_host']}:{parameters['remote_port']}{FETCHED}{quote(str(parameters['remote_request_id']), safe='')}"  # noqa: E501
        try:
            async with asyncio.timeout(ANSWERS_IN_S), httpcore2.AsyncConnectionPool() as pool:
                response = await pool.request("GET", url)
            document = json.loads(response.content) if response.status == 200 else {}
        except (
            OSError,
            ValueError,
            TypeError,
            RecursionError,
            httpcore2.NetworkError,
            httpcore2.ProtocolError,
            httpcore2.UnsupportedProtocol,
        ):
            document = {}
        if document.get("tokens") != wish.prompts[0].tokens:
            raise Refused("Internal server error", status=500, kind="InternalServerError")
        came_at = time.monotonic() if wish.came_at is None else wish.came_at
        return replace(
            wish,
            came_at=max(came_at - document["late_s"], time.monotonic() + document["comes_in_s"]),
            received=True,
        )
