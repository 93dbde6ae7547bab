"""For how long a fuzzer draws, from which seed, and the texts that it puts in place of others."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

SECONDS = float(os.environ.get("TONNAGE_FUZZ_S", "60"))
SEED = int(os.environ.get("TONNAGE_FUZZ_SEED") or secrets.randbelow(10**6))
GROWTH_MB = 300  # that a process may grow by while it is fuzzed, after its first hundred draws


def draws(what: str) -> Iterator[tuple[str, Random]]:
    """A label and a generator for each draw until the seconds are over; the count is printed, and
    memory must stay flat."""
    end, count, before = time.monotonic() + SECONDS, 0, 0.0
    while time.monotonic() < end:
        count += 1
        yield f"TONNAGE_FUZZ_SEED={SEED}, draw {count}", Random(f"{what} {SEED} {count}")
        if count == 100:
            before = resident_mb()
    grown = resident_mb() - before if before else 0.0
    print(
        f"\n{what}: {count:,} draws in {SECONDS:.0f} s from seed {SEED}; {grown:+.0f} MB of memory"
        " after the first hundred",
        flush=True,
    )
    assert grown < GROWTH_MB, f"{what}: {grown:.0f} MB more memory"


def resident_mb(pid: int | str = "self") -> float:
    """Memory that a process has, in MB, of this one without what it has freed; the most that this
    one had where there is no /proc."""
    with contextlib.suppress(AttributeError, OSError):  # glibc alone has it
        ctypes.CDLL(None).malloc_trim(0)
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def nasty(random: Random, canary: Path) -> str:
    """A text that is a command, a path, code, markup or nothing that can be written."""
    run = f"touch {canary}"
    texts = (
        *(
            f"$({run})",
            f"`{run}`",
            f"; {run} #",
            f"' ; {run} ; '",
            f'" && {run} && "',
            f"\n{run}\n",
            f"| {run}",
            f"a\n```\n```sh\n{run}\n```",
        ),
        *(
            "../../../victim",
            "/tmp/../victim",
            "..",
            ".",
            "~",
            "-rf",
            "--middleware=canary",
            "--trust-remote-code",
            "a/b",
            "con",
            "a\\b",
        ),
        *(
            '"""\nimport canary\n"""',
            "'''\nimport canary\n'''",
            '" + __import__("canary") + "',
            "{canary}",
            "%(canary)s",
            "{{ canary }}",
        ),
        *(
            "!!python/object/apply:os.system ['true']",
            "&a [*a]",
            "- a: 1\n- b: 2",
            "a: b",
            "# a",
            "---\n",
            "|\n a",
            "null",
            "yes",
            "0x10",
            "1e400",
        ),
        *(
            "<script>canary()</script>",
            "]]>",
            "\x1b[2J",
            "\x07",
            "\x85",
            "\u2028",
            "\u202e",
            "\ud800",
            "\0",
            "聊天",
            "🚀",
            "é" * 70,
            "",
            " ",
            "\t",
        ),
        *(
            "a" * 3_000,
            "9" * 5_000,
            "${IFS}",
            "$HOME",
            "%s%n",
            "nan",
            "-1",
            "[" * 200,
            "'",
            '"',
            "\\",
        ),
    )
    return random.choice(texts)


def changed(document: Any, random: Random, canary: Path) -> tuple[Any, str]:
    """A document with one of its texts, keys or numbers changed, and what was changed."""
    places = list(_places(document, ()))
    path = random.choice(places)
    text = nasty(random, canary)

    def put(value: Any, rest: tuple[Any, ...]) -> Any:
        if not rest:
            if isinstance(value, str) and random.random() < 0.4:
                cut = random.randrange(len(value) + 1)
                return value[:cut] + text + value[cut:]
            return text
        head = rest[0]
        if isinstance(value, dict):
            if head == KEY:
                return {(text if key == rest[1] else key): part for key, part in value.items()}
            return {
                key: put(part, rest[1:]) if key == head else part for key, part in value.items()
            }
        return [put(part, rest[1:]) if place == head else part for place, part in enumerate(value)]

    return put(document, path), f"{path} became {text[:60]!r}"


KEY = object()


def _places(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Every text three times, every number and key once, so that texts are drawn most."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield (*path, KEY, key)
            yield from _places(part, (*path, key))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from _places(part, (*path, place))
    elif isinstance(value, str):
        yield from (path, path, path)
    else:
        yield path
