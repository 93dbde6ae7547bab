"""Transformers' continuous batching behind /v1/completions; run by the Python that has torch and
transformers.

    python transformers_server.py FOLDER PORT DEVICE

FOLDER holds a model and its tokenizer. Transformers' own server needs accelerate, fastapi and
openai in addition, so this is the least around its manager: prompts are tokenised, tokens go out
one event each, and no token ends a request before its maximum."""

import asyncio
import itertools
import json
import sys

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route
from transformers import (
    AutoModelForCausalLM,
    ContinuousBatchingConfig,
    GenerationConfig,
    PreTrainedTokenizerFast,
)

SLOTS, TOKENS = 64, 1024
"""Requests, and tokens of a step, at most."""


def main(folder, port, device):
    """Serve until the process is ended."""
    dtype = torch.bfloat16 if device != "cpu" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    limits = ContinuousBatchingConfig(
        max_batch_tokens=TOKENS,
        max_requests_per_batch=SLOTS,
        num_blocks=None if device != "cpu" else 512,
    )
    manager = model.init_continuous_batching(
        GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0), limits
    )
    manager.start()
    numbers = itertools.count()

    async def completions(request: Request):
        body = await request.json()
        prompt = tokenizer(body["prompt"], add_special_tokens=False)["input_ids"]
        name, made = f"request-{next(numbers)}", asyncio.Queue()
        manager.register_result_handler(name, made.put_nowait)
        manager.add_request(
            prompt, request_id=name, max_new_tokens=int(body["max_tokens"]), streaming=True
        )

        async def events():
            sent, over = 0, False
            while not over:
                output = await made.get()
                over = output.is_finished()
                if output.error:
                    yield f"data: {json.dumps({'error': {'message': output.error}})}\n\n"
                    return
                for token in output.generated_tokens[sent:]:
                    sent += 1
                    choice = {"index": 0, "text": tokenizer.decode([token]), "finish_reason": None}
                    yield (
                        "data:"
                        f" {json.dumps({'id': name, 'object': 'text_completion', 'choices': [choice]})}\n\n"
                    )
            usage = {
                "prompt_tokens": len(prompt),
                "completion_tokens": sent,
                "total_tokens": len(prompt) + sent,
            }
            last = {"index": 0, "text": "", "finish_reason": "length"}
            yield (
                "data:"
                f" {json.dumps({'id': name, 'object': 'text_completion', 'choices': [last], 'usage': usage})}\n\ndata:"
                " [DONE]\n\n"
            )

        return StreamingResponse(events(), media_type="text/event-stream")

    routes = [
        Route("/v1/completions", completions, methods=["POST"]),
        Route(
            "/health", lambda request: JSONResponse({"device": device, "torch": torch.__version__})
        ),
    ]
    uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
