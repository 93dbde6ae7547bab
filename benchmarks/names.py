"""How many names of models are known without a network, of the catalog, the field and public lists,
and which are not.

    ./benchmark names

``public_names.csv`` holds 818 repositories of text decoders, also of such within models of images
and sound, that four public lists name (read on 2026-11-28): the models of vLLM's tests
(tests/models/registry.py), those that Unsloth maps to their quantised copies
(unsloth/models/mapper.py), Lightning-AI's (litgpt/config.py), and the examples of vLLM's page of
supported models, which has one or two of each architecture, however rare. 600 are drawn from the
four alike by their share, with a fixed seed. Names that are refused on purpose, with the reason
(docs/scope.md; models of states alone), are not counted as known.
"""

from __future__ import annotations

import csv
import random
import sys
from collections import Counter, defaultdict
from pathlib import Path

from tonnage.errors import InputError
from tonnage.scope import refused
from tonnage.spec.catalog import find_model
from tonnage.spec.catalog.checkpoints import listed_checkpoints

HERE = Path(__file__).resolve().parent
FIELD = HERE.parent.parent / "shared" / "field"
DRAWN, SEED = 600, 58


def missing(names: list[str]) -> list[str]:
    """The names that are not known by the catalog."""
    unknown = []
    for name in names:
        try:
            find_model(name)
        except InputError:
            unknown.append(name)
    return unknown


def names_of(file: Path) -> list[str]:
    """The models of a file of measurements."""
    with file.open(encoding="utf-8", newline="") as lines:
        return [row["model"] for row in csv.DictReader(lines)]


def main() -> int:
    """Print the counts and the misses; 1 where a name of the catalog or of the field is not
    known.
    """
    with (HERE / "public_names.csv").open(encoding="utf-8", newline="") as lines:
        rows = [(row["name"], row["list"]) for row in csv.DictReader(lines)]
    lists = defaultdict(list)
    for name, origin in rows:
        lists[origin].append(name)
    sets = {"checkpoints of the catalog": [one.repository for one in listed_checkpoints()]}
    sets |= {
        f"the field's {file.stem}": names_of(file)
        for file in (FIELD / "catalog_checkpoint_names.csv", FIELD / "hf_names.csv")
        if file.is_file()
    }
    wanted = len(sets)
    sets |= {f"list {origin}": names for origin, names in lists.items()}
    sets[f"{DRAWN} drawn from the lists"] = [
        name for name, _ in random.Random(SEED).sample(rows, DRAWN)
    ]
    unknown = {kind: missing(names) for kind, names in sets.items()}
    width = max(map(len, sets))
    for kind, names in sets.items():
        known = len(names) - len(unknown[kind])
        on_purpose = sum(bool(refused("model", name)) for name in unknown[kind])
        reason = f"; {on_purpose} of the others refused with a reason" if on_purpose else ""
        print(
            f"{kind:<{width}}  {known:>4} of {len(names):>4} known "
            f" {known / len(names):6.1%}{reason}"
        )
    by_owner = Counter(name.partition("/")[0] for name in unknown[f"{DRAWN} drawn from the lists"])
    print(
        "\nnot known of those drawn, by owner:"
        f" {', '.join(f'{owner} {count}' for owner, count in by_owner.most_common())}"
    )
    for kind in lists:
        print(f"\nnot known of {kind}: {', '.join(unknown[f'list {kind}']) or 'none'}")
    return int(any(unknown[kind] for kind in list(sets)[:wanted]))


if __name__ == "__main__":
    sys.exit(main())
