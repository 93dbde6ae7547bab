"""The command ``tonnage``: verbs, errors and exit codes.

Verbs are imported when they are called, so that ``--help`` stays fast.

Exit codes are those of ``errors.EXIT_CODES``; 3 says of ``size`` that no deployment meets the limits, and of ``bench`` that the
measurement cannot be believed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Parameter

from tonnage.errors import BAD_INPUT, DONE, FAILED, INTERRUPTED, Path, TonnageError, UnknownName, spelled
from tonnage.version import VERSION

VERBS = {
    "size": "How many systems does this traffic need inside these latency limits?",
    "ui": "A local page: size with sliders, compare, simulate, measure; and the same over HTTP.",
    "report": "A saved plan as text, as Markdown or as a page.",
    "explain": "Why a saved plan chose what it did, and what every other kind would have taken.",
    "diff": "Two saved plans: what was asked differently, and how the answers differ.",
    "simulate": "What one instance does under a load, or the course's lesson on batching (--ticks).",
    "bench": "Measure a live endpoint, with a verdict on whether the measurement can be believed.",
    "serve": "The OpenAI API of a model and GPUs that are not there, timed by the simulator.",
    "gateway": "Balance requests between instances, by the routers that the simulator has.",
    "deploy": "The choice of a plan as files for Docker Compose, Kubernetes, KServe, Triton and others.",
    "compress": "The checkpoint that a plan assumes, made by llm-compressor or Model Optimizer, and judged.",
    "verify": "Running engines asked whether they are what their plan counts on, under the plan's load.",
    "watch": "A running deployment beside its plan: load, latencies, and how much more it carries.",
    "demo": "The whole chain in a minute: simulated GPUs served, measured, one killed, and all of it predicted.",
    "learn": "Seven lessons as notebooks, from the first request to a calibrated plan.",
    "import": "Single requests of another tool's run, as a run folder.",
    "compare": "Two runs, measured or simulated: how their latencies and rates compare.",
    "score": "Predict every row of a measured file and print the errors.",
    "memory": "Where an instance's GPU memory goes, with the arithmetic.",
    "workload": "Recorded traffic: described, or fitted by a scenario that reproduces it.",
    "catalog": "The models, GPUs, systems and engines known by name.",
    "mcp": "The same questions as tools for an agent (Model Context Protocol).",
    "schema": "The JSON Schema of a scenario file.",
    "completion": "What a shell needs to complete verbs and flags.",
    "calibrate": "Fit the step model to a few measurements of your own.",
}


def _default(value: object) -> str | None:
    """A default as help shows it; None where there is none to show, or a switch is off."""
    return None if value is None or value is False else str(value)


app = App(
    name="tonnage",
    help="How many GPU systems does this LLM traffic need at this latency? Sized by simulation, checked against measurements.",
    version=VERSION,
    help_format="plaintext",
    default_parameter=Parameter(show_default=_default),
)
FUNCTIONS = {"import": "import_run:import_run", "deploy": "deploy:app"}
"""File and name of a verb where these are not the verb's own: a word of Python, and a verb with another one below it."""

for _place, (_verb, _help) in enumerate(VERBS.items()):
    app.command(f"tonnage.cli.{FUNCTIONS.get(_verb, f'{_verb}:{_verb}')}", name=_verb, help=_help, sort_key=_place)


def main(tokens: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(sys.argv[1:] if tokens is None else tokens))


def run(tokens: Sequence[str]) -> int:
    """Run one command line; whatever goes wrong becomes one line on standard error and an exit code."""
    try:
        _check_verb(tokens)
        code = app(list(tokens), exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        from tonnage.cli.spellings import explained

        return _fail(explained(error, app, tokens), BAD_INPUT)
    except TonnageError as error:
        return _fail(spelled(error.marked, flag), error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted; nothing was left half written", INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except (MemoryError, ModuleNotFoundError) as error:
        return _fail(_missing(error), FAILED)
    return code if isinstance(code, int) else DONE


def _missing(error: MemoryError | ModuleNotFoundError) -> str:
    """What a run lacks: memory, or a package that the image of the simulated engine leaves out."""
    if isinstance(error, MemoryError):
        return "not enough memory for a run of this size; ask for fewer requests or shorter outputs"
    if error.name not in ("numba", "pyarrow"):
        raise error
    return f"this needs {error.name}, which is not installed: pip install tonnage"


def _check_verb(tokens: Sequence[str]) -> None:
    """Refuse an unknown verb. Raises UnknownName: with the nearest verbs."""
    if tokens and not tokens[0].startswith("-") and tokens[0] not in VERBS:
        raise UnknownName("command", tokens[0], VERBS)


def flag(path: Path) -> str:
    """How the command spells an option, such as "--peak-rps"."""
    return f"--{path[-1].replace('_', '-')}"


def _fail(message: str, code: int) -> int:
    for line in message.splitlines():
        print(f"tonnage: {line}", file=sys.stderr)
    return code
