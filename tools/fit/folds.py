"""What the first stage of the fit leaves out in turn, chosen before anything was scored.

Left out are whole NIM groups, whole models and whole GPUs of the static file, and half of the
models of the throughput file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from tools.fit.data import Row, curve_rows, group_of
from tools.fit.terms import CURRENT, NIM, STATIC

Group = tuple[str, str, str, int]
"""Model, GPU, precision and TP (``data.group_of``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """One part that is left out: the terms are fitted on ``train``, by engine, and scored on
    ``test``, rows of ``engine``.

    Attributes:
        groups: the groups of NIM that are left out, if it is a part of that file.
    """

    title: str
    name: str
    engine: str
    train: dict[str, list[Row]]
    test: list[Row]
    groups: tuple[Group, ...] = ()


def held_out_folds(rows: dict[str, list[Row]]) -> Iterable[Fold]:
    """Every fold in turn. The ten points of ``CURVE`` are in no training part."""
    groups = sorted({group_of(row) for row in rows[NIM]})
    for k, title in ((1, "NIM, one group left out"), (2, "NIM, two of four groups left out")):
        for out in itertools.combinations(groups, k):
            name = " + ".join(f"{m} {g.split('-')[0]} {p} tp{tp}" for m, g, p, tp in out)
            train = {
                STATIC: rows[STATIC],
                NIM: [row for row in rows[NIM] if group_of(row) not in out],
            }
            test = [row for row in rows[NIM] if group_of(row) in out]
            yield Fold(title=title, name=name, engine=NIM, train=train, test=test, groups=out)
    yield Fold(
        title="NIM, a curve that no row of its precision and TP was fitted to",
        name="llama-3-8b h100 fp8 tp1",
        engine=NIM,
        train={STATIC: rows[STATIC], NIM: rows[NIM]},
        test=curve_rows(),
    )
    for column, title in (
        ("model", "static batches, a model left out"),
        ("gpu", "static batches, a GPU left out"),
    ):
        for name in sorted({row[column] for row in rows[STATIC]}):
            train = {STATIC: [row for row in rows[STATIC] if row[column] != name]}
            yield Fold(
                title=title,
                name=name,
                engine=STATIC,
                train=train,
                test=[row for row in rows[STATIC] if row[column] == name],
            )
    models = sorted({row["model"] for row in rows[CURRENT]})
    for half in (models[::2], models[1::2]):
        train = {CURRENT: [row for row in rows[CURRENT] if row["model"] not in half]}
        test = [row for row in rows[CURRENT] if row["model"] in half]
        yield Fold(
            title="throughput, engine terms fitted on the other models",
            name=" + ".join(half),
            engine=CURRENT,
            train=train,
            test=test,
        )
