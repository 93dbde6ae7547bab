"""A real model that is served, and where."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.serve.app import Service
from tonnage.serve.openvino.engines import OpenvinoEngines, OpenvinoReader

if TYPE_CHECKING:
    import asyncio

    from tonnage.serve.openvino.pipeline import Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenvinoServed:
    """One instance of a real model.

    Attributes:
        pipeline: with the model loaded.
        model: the name that clients use.
        max_context: longest prompt plus output.
        default_osl: output tokens of a request that sets no limit; 0 for as many as the context leaves.
        most_waiting: requests that may wait when another comes; 0 for no limit.
        host, port: where the server listens; port 0 takes a free one.
    """

    pipeline: Pipeline
    model: str
    max_context: int
    default_osl: int
    most_waiting: int
    host: str
    port: int

    def build(self, loop: asyncio.AbstractEventLoop) -> Service:
        """The service on an event loop, with the pipeline's thread started."""
        return Service(
            engines=OpenvinoEngines(self.pipeline, self.model, loop),
            reader=OpenvinoReader(self.pipeline.tokenizer),
            model=self.model,
            max_context=self.max_context,
            default_osl=self.default_osl,
            real=True,
            most_waiting=self.most_waiting,
            started=int(time.time()),
        )
