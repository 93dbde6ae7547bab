"""Bodies of the OpenAI API."""

from __future__ import annotations

import asyncio
import json

from tests.serve.engines import SERVED
from tonnage.serve.answer import Answer, Piece
from tonnage.serve.app import events_of
from tonnage.serve.dialect import Further
from tonnage.serve.metrics import Metrics
from tonnage.serve.replies import Reply
from tonnage.serve.request import Asked, Sampling
from tonnage.serve.tokens import Prompt

PROMPT = Prompt(ids=(7, 8, 9))


def test_the_role_of_a_chat_comes_with_the_first_token() -> None:
    class Silent:
        engine, slot_at, front_end_s, preemptions, cached = "0", None, 0.0, 0, 0

        def begin(self, answer: Answer) -> None:
            self.answer = answer

        def end(self) -> None:
            pass

    async def first_event(silent: Silent) -> bytes:
        asked = Asked(
            kind="chat", model="toy", prompts=(PROMPT,), osl=5, sampling=Sampling(), stream=True
        )
        answer = Answer(source=silent, metrics=Metrics(list, "toy"), asked=asked, prompt=PROMPT)
        answer.begin()
        reply = Reply(
            asked=asked,
            id="c",
            call_id="t",
            model="toy",
            created=0,
            further=Further(),
            tokens=SERVED.tokens,
        )
        events = events_of(reply, 0, [answer], [False])
        coming = asyncio.ensure_future(anext(events))
        assert not (await asyncio.wait([coming], timeout=0.05))[0]
        answer.take(Piece(text="a", tokens=1))
        role = await coming
        assert json.loads((await anext(events)).removeprefix(b"data: "))["choices"][0]["delta"] == {
            "content": "a"
        }
        await events.aclose()
        return role

    assert b'"role":"assistant"' in asyncio.run(first_event(Silent()))
