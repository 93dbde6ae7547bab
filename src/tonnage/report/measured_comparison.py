"""The measured answer beside the predicted one, where the question brought measurements of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tonnage.report.blocks import section
from tonnage.report.costs import owned_and_cheapest
from tonnage.report.document import Section, Table, Text
from tonnage.report.numbers import ABSENT, number, usd
from tonnage.report.reading import Json, at, deployment, figure_of, listed, same, words_of

READINGS: tuple[tuple[str, Callable[[Json], str]], ...] = (
    ("deployment", deployment),
    ("load", lambda c: words_of(c, "load")),
    ("requests/s per instance", lambda c: number(figure_of(c, "requests_per_second_per_instance"))),
    ("requests/s per 8 GPUs", lambda c: number(figure_of(c, "requests_per_second_per_8_gpus"))),
    ("systems exactly", lambda c: number(figure_of(c, "systems_exact"), 4)),
    ("systems", lambda c: words_of(c, "systems")),
    ("TTFT mean, ms", lambda c: number(figure_of(c, "ttft_ms", "mean"))),
    ("TTFT p95, ms", lambda c: number(figure_of(c, "ttft_ms", "p95"))),
    ("E2E mean, ms", lambda c: number(figure_of(c, "e2e_ms", "mean"))),
)


def beside(plan: Json) -> Section:
    """The section; empty where nothing was measured."""
    measured = at(plan, "measured")
    best = at(measured, "choice")
    if best is None:
        return section("measured", "Measured beside predicted")
    alike = _twin(listed(measured, "predicted"), best)
    twin = _twin(listed(plan, "candidates"), best)
    columns: list[tuple[str, Json, Json | None]] = [("measured", best, measured)]
    columns += [("predicted, same loop", alike, None)] if alike is not None else []
    columns += [("predicted, decides", twin, plan if same(twin, at(plan, "choice")) else None)] if twin is not None else []
    rows = [(name, *(read(candidate) or ABSENT for _, candidate, _ in columns)) for name, read in READINGS]
    owned = [next(iter(owned_and_cheapest(priced or {})), None) for _, _, priced in columns]
    rows.append(("USD a year, owned", *(ABSENT if way is None else usd(way.per_year) for way in owned)))
    rows.append(("USD per 1,000 requests", *(ABSENT if way is None else usd(way.per_1000) for way in owned)))
    kept = tuple(row for row in rows if set(row[1:]) != {ABSENT})
    header = ("", *(name for name, _, _ in columns))
    table = Table(caption="The same deployment, measured and predicted", header=header, rows=kept)
    return section("measured", "Measured beside predicted", table, Text(text=_difference(best, alike or twin)))


def _difference(best: Json, twin: Json | None) -> str:
    if twin is None:
        return "The measured deployment is not among the predicted ones."
    ratio = (figure_of(twin, "requests_per_second_per_instance") or 0.0) / (figure_of(best, "requests_per_second_per_instance") or 1.0)
    more = "more" if ratio >= 1 else "less"
    return f"The prediction carries {abs(ratio - 1):.0%} {more} per instance than was measured."


def _twin(candidates: Sequence[Json], best: Json) -> Json | None:
    """The predicted candidate of the same GPU, precision and degrees; the one of the same engine first."""
    keys = ("gpu", "precision", "tp", "pp", "dp", "ep")
    alike: list[Json] = [c for c in candidates if all(at(c, key) == at(best, key) for key in keys)]

    def distance(candidate: Json) -> tuple[bool, float]:
        return words_of(candidate, "engine") not in words_of(best, "engine"), figure_of(candidate, "systems_exact") or 0.0

    return min(alike, key=distance, default=None)
