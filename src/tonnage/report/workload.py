"""Recorded traffic as a document: lengths, arrivals, shared prefixes and engine limits, with
figures on a page.
"""

from __future__ import annotations

import os.path
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tonnage.report.document import (
    Command,
    Document,
    Drawing,
    Section,
    Table,
    Text,
    charted,
    document,
    items,
    section,
)
from tonnage.report.drawing.figure import Axis, Plot, Point, Rule, Series
from tonnage.report.numbers import STATISTICS, counted, number, plain, span, statistics, whole
from tonnage.report.runs.figures import every_nth, heat_map
from tonnage.units import NS_PER_S, format_gb
from tonnage.workload.description import (
    DRAWS,
    SEED,
    Description,
    FittedArrivals,
    FittedLengths,
    KvGain,
)

if TYPE_CHECKING:
    from tonnage.workload.fit import Fit
    from tonnage.workload.live_sessions import Chosen, LiveSessions
    from tonnage.workload.traffic import Sharing


POINTS = 200  # points of a line at most
PROCESSES = {"constant": "evenly spaced arrivals", "poisson": "Poisson arrivals"}


def described(description: Description, *, figures: bool = True) -> Document:
    """Report the whole description; ``figures`` adds the drawings of the page."""
    first, lengths = (
        section("traffic", "Traffic", Text(_first(description), tone="answer")),
        _lengths(description, figures=figures),
    )
    if description.live is None:
        rest = [
            _arrivals(description, figures=figures),
            section("prefixes", "Shared prefixes", items(_sharing(description))),
        ]
    else:
        rest = [_sessions(description, description.live)]
    sections = (
        first,
        lengths,
        *rest,
        section("limits", "Engine limits", items(_limits(description))),
    )
    source = description.traffic.recording.source
    return Document(
        title=f"Workload: {os.path.basename(os.path.normpath(source))}" if figures else "",
        sections=sections,
    )


def _first(description: Description) -> str:
    recording = description.traffic.recording
    failed = f"; {counted(recording.failed, 'failed request')} left out" if recording.failed else ""
    unit = f"; times read as {recording.unit}" if recording.unit else ""
    seconds = recording.due_ns[-1] / NS_PER_S
    if description.live is not None:
        return (
            f"{counted(description.live.sessions, 'session')} of"
            f" {counted(len(recording), 'request')}{failed}."
        )
    return (
        f"{counted(len(recording), 'request')} in {span(seconds)}, {number(recording.mean_rps)}/s"
        f" on average{failed}{unit}."
    )


def _lengths(description: Description, *, figures: bool) -> Section:
    rows = tuple(
        (name, *statistics(spread), whole(spread.most))
        for name, spread in (("ISL, tokens", description.isl), ("OSL, tokens", description.osl))
    )
    table = Table(
        caption="Lengths of all requests" if figures else "",
        header=("", *STATISTICS, "max"),
        rows=rows,
    )
    related = "not defined, since one of them never varies"
    if description.correlation is not None:
        related = f"{round(description.correlation, 2) + 0.0:.2f}".replace("-", "−")
    lines = (
        f"Rank correlation of ISL and OSL (Spearman): {related}.",
        distribution_words("ISL", description.fitted_isl),
        distribution_words("OSL", description.fitted_osl),
    )
    recording = description.traffic.recording
    drawn: tuple[Drawing, ...] = ()
    if figures:
        heat = heat_map(
            np.array(recording.isl, dtype=np.int64), np.array(recording.osl, dtype=np.int64)
        )
        drawn = (
            heat,
            _distribution("ISL", description.fitted_isl, recording.isl),
            _distribution("OSL", description.fitted_osl, recording.osl),
        )
    return section("lengths", "Lengths", table, items(lines), *drawn)


def distribution_words(name: str, fitted: FittedLengths) -> str:
    """The nearest distribution of one length and how far it is off."""
    verdict = "fits" if fitted.fits else "is the nearest, and does not fit"
    beyond = (
        f", its 99.9th percentile is {fitted.lengths.longest:,} tokens and the longest seen"
        f" {fitted.seen.most:,.0f}"
    )
    return (
        f"{name}: {fitted.written} {verdict}: its mean and percentiles are off by"
        f" {fitted.error:.0%} at most, the Kolmogorov-Smirnov distance is"
        f" {fitted.distance:.3f}{beyond if fitted.overshoots else ''}."
    )


def _distribution(name: str, fitted: FittedLengths, values: tuple[int, ...]) -> Drawing:
    """The shares of requests up to each length, as seen and as drawn of the fitted distribution."""
    shares = np.linspace(0, 99.9, POINTS + 1)
    drawn = fitted.lengths.draw(DRAWS, np.random.default_rng(SEED))
    lines = []
    for tone, (title, lengths) in enumerate((("seen", np.array(values)), (fitted.written, drawn))):
        at = np.percentile(lengths, shares)
        points = tuple(
            Point(float(x), float(y), f"{y:.1f} % of {title}: up to {x:,.0f} tokens")
            for x, y in zip(at, shares, strict=True)
        )
        lines.append(Series(title, points, tone=tone, line=True, marks=False))
    rows = zip(STATISTICS, statistics(fitted.seen), statistics(fitted.drawn), strict=True)
    x = Axis(
        f"{name}, tokens", log=fitted.seen.least >= 1 and fitted.seen.most > 20 * fitted.seen.least
    )
    y, key = Axis("share of the requests up to this length, %"), f"distribution-{name.lower()}"
    reading = "Where the two lines lie together, the distribution draws the lengths that were seen."
    plot = Plot(key, f"{name}: seen and fitted", x, y, tuple(lines))
    return charted(
        plot, reading, f"{name} in tokens, seen and fitted", ("", "seen", "fitted"), rows
    )


def _arrivals(description: Description, *, figures: bool) -> Section:
    bursts = description.burstiness
    rows = tuple(
        (f"{dispersion.width_s} s", number(dispersion.index), number(dispersion.peak_to_mean))
        for dispersion in bursts.dispersion
    )
    table = Table(
        caption="Counts of requests in intervals" if figures else "",
        header=("intervals of", "index of dispersion", "peak to mean"),
        rows=rows,
        note=(
            "The index of dispersion is the variance of the counts over their mean: 1 for Poisson"
            " arrivals."
        ),
    )
    hourly = (
        "not known, the traffic is shorter than two hours"
        if bursts.hourly_peak_to_mean is None
        else number(bursts.hourly_peak_to_mean)
    )
    gaps = ", ".join(
        f"{statistic} {number(getattr(bursts.gaps, statistic))} s" for statistic in STATISTICS
    )
    lines = (
        f"Gaps between requests: {gaps}; coefficient of variation {number(bursts.cv)} (Poisson:"
        " 1).",
        f"Busiest hour to mean hour: {hourly}.",
        process_words(description.fitted_arrivals),
    )
    return section(
        "arrivals", "Arrivals", table, items(lines), _over_time(description) if figures else None
    )


def process_words(fitted: FittedArrivals) -> str:
    """The process that reproduces the arrivals, or why none does."""
    named = PROCESSES.get(fitted.nearest, fitted.nearest)
    if fitted.process != "trace":
        return (
            f"Fitted: {named}; mean and percentiles of the gaps are off by {fitted.error:.0%} at"
            " most."
        )
    if fitted.disagreement == "gaps":
        times = f"more than {plain(float(f'{fitted.error:.1g}'))} times their value"
        off = f"{fitted.error:.0%}" if fitted.error < 10 else times
        return (
            f"No process fits: the gaps of {named} are off by {off}. The recorded moments have to"
            " be replayed."
        )
    ratio = number(fitted.dispersion_error)
    return (
        f"No process fits: the gaps are those of {named} within {fitted.error:.0%}, but the counts"
        f" of intervals vary {ratio} times as much as theirs: arrivals depend on each other. The"
        " recorded moments have to be replayed."
    )


def _over_time(description: Description) -> Drawing:
    from tonnage.workload.burstiness import counts

    due = np.array(description.traffic.recording.due_ns) / NS_PER_S
    width = next(
        (seconds for seconds in (1, 10, 60, 600, 3_600, 86_400) if due[-1] / seconds <= POINTS),
        int(due[-1] / POINTS) + 1,
    )
    rates = (
        counts(due, width) / width
        if due[-1] >= width
        else np.array([len(due) / max(due[-1], 1e-9)])
    )
    points = tuple(
        Point((place + 0.5) * width, float(rate), f"{span(place * width)} on: {rate:.3g}/s")
        for place, rate in enumerate(rates)
    )
    mean, title = (
        description.traffic.recording.mean_rps,
        f"Requests per second, in intervals of {span(width)}",
    )
    x, y, line = (
        Axis("time since the first request, s"),
        Axis("requests/s"),
        Series("requests/s", points, 0, line=True, marks=False),
    )
    plot = Plot(
        "arrivals-over-time",
        title,
        x,
        y,
        (line,),
        rules=(Rule("y", mean, f"mean {number(mean)}/s"),),
    )
    rows = (
        (plain(points[i].x), number(points[i].y)) for i in every_nth(np.arange(len(points)), 24)
    )
    reading = "The line shows what the mean hides: bursts, and a rate that drifts."
    return charted(plot, reading, "Requests per second over time", ("s", "requests/s"), rows)


def _sharing(description: Description) -> tuple[str, ...]:
    cached = description.traffic.cached_tokens
    measured: tuple[str, ...] = ()
    if cached is not None:
        measured = (
            (
                "The server said that it had"
                f" {cached / sum(description.traffic.recording.isl):.1%} of"
                " the prompt tokens in its cache."
            ),
        )
    if description.sharing is None:
        return measured or (
            (
                "The file does not say which prompts share a prefix: it has neither hash_ids nor"
                " sessions."
            ),
        )
    return (
        *measured,
        *(
            _by_blocks(description.sharing)
            if description.sharing.by == "blocks"
            else _by_sessions(description.sharing)
        ),
    )


def _sessions(description: Description, live: LiveSessions) -> Section:
    spreads = (
        ("requests", live.requests),
        ("first prompt, tokens", live.first_prompt),
        ("new tokens of a prompt", live.new_tokens),
        ("think time, s", live.think_s),
        ("tool time, s", live.tool_s),
        ("length of a session, s", live.session_s),
        ("context kept, tokens", live.kept_tokens),
        ("longest context, tokens", live.peak_tokens),
    )
    measured = [(name, spread) for name, spread in spreads if spread is not None]
    rows = tuple((name, *statistics(spread), whole(spread.most)) for name, spread in measured)
    sub = (
        "" if not live.sub_agents else f", which send {live.sub_agent_requests:.1%} of the requests"
    )
    lines = [
        (
            f"A prefix cache without end finds {live.hit_tokens:.2%} of the prompt tokens; "
            f"it helps {live.requests_with_hits:.1%} of the requests."
        ),
        f"{counted(live.sub_agents, 'sub-agent')}{sub}.",
    ]
    if (gain := description.gain) is not None:
        kept_bytes, peak_bytes = (
            round(spread.mean * gain.token_bytes) for spread in (live.kept_tokens, live.peak_tokens)
        )
        lines.append(
            f"{gain.model} {gain.precision.upper()}: a live session keeps {format_gb(kept_bytes)}"
            f" of KV cache, the mean over its time, and {format_gb(peak_bytes)} at its longest; 100"
            f" of them {format_gb(100 * kept_bytes)}."
        )
        recording = description.traffic.recording
        beyond = [
            isl + osl > gain.context for isl, osl in zip(recording.isl, recording.osl, strict=True)
        ]
        if any(beyond):
            lines.append(
                f"{sum(beyond) / len(beyond):.1%} of the requests exceed the {gain.context:,}"
                f" tokens of {gain.model}; size and simulate leave them out."
            )
    return section(
        "sessions",
        "Sessions",
        Table(header=("", *STATISTICS, "max"), rows=rows),
        items(tuple(lines)),
    )


def _by_blocks(shared: Sharing) -> tuple[str, ...]:
    size = "" if shared.block_tokens is None else f" of {shared.block_tokens} tokens"
    tokens = "" if shared.hit_tokens is None else f", {shared.hit_tokens:.1%} of the prompt tokens"
    return (
        f"{shared.seen_blocks:.1%} of the {whole(shared.blocks)} blocks{size} were seen before.",
        (
            f"A prefix cache without end finds {shared.hit_blocks:.1%} of the blocks{tokens}; "
            f"it helps {shared.requests_with_hits:.1%} of the requests."
        ),
    )


def _by_sessions(shared: Sharing) -> tuple[str, ...]:
    turns = (
        ""
        if shared.turns_per_session is None
        else f" of {number(shared.turns_per_session)} requests on average"
    )
    return (
        (
            f"{counted(shared.sessions or 0, 'session')}{turns}; {shared.requests_with_hits:.1%} of"
            " the requests continue one."
        ),
        (
            f"A prefix cache without end finds {(shared.hit_tokens or 0):.1%} of the prompt tokens"
            " at most: that is if each turn begins with the whole turn before."
        ),
    )


def _limits(description: Description) -> tuple[str, ...]:
    limits = description.limits
    lines = (
        (
            f"p99: {limits.max_input_tokens:,} tokens in and {limits.max_output_tokens:,} out,"
            f" {limits.max_sequence_tokens:,} together; {limits.beyond:.1%} of the requests are"
            " longer."
        ),
    )
    if description.gain is None:
        return (
            *lines,
            (
                "With --model the KV memory is shown that these limits gain over the model's whole"
                " context."
            ),
        )
    return (*lines, _gain(description.gain))


def _gain(gain: KvGain) -> str:
    where = f"{gain.model} {gain.precision.upper()} on {gain.gpus} × {gain.gpu}, {gain.engine}"
    if gain.limit >= gain.context:
        return (
            f"{where}: the limits reach the model's context of {gain.context:,} tokens and gain"
            " nothing."
        )
    return (
        f"{where}: a sequence of {gain.limit:,} tokens takes {format_gb(gain.limit_bytes)} of KV"
        f" memory on each GPU, one of the model's whole context ({gain.context:,} tokens)"
        f" {format_gb(gain.context_bytes)}: {format_gb(gain.saved_bytes)} less."
        f" {gain.limit_requests:,} of them fit at once, and {gain.context_requests:,} of the whole"
        " context."
    )


KEPT = {
    "pairs": (
        "The lengths are drawn in pairs from those that were seen: prompts and outputs are"
        " correlated."
    ),
    "weights": "Lengths that no distribution fits within 10 % are drawn from those that were seen.",
    "distributions": "Prompts and outputs are drawn from these distributions, each by itself.",
}


def fitted(fit: Fit, output: Path | None) -> Document:
    """Report how well each part fits, what is in the scenario, and how to go on."""
    described = fit.description
    if fit.chosen is not None:
        return _chosen(fit, fit.chosen, output)
    lines = (
        distribution_words("ISL", described.fitted_isl),
        distribution_words("OSL", described.fitted_osl),
        KEPT[fit.lengths],
        process_words(described.fitted_arrivals),
    )
    trace = described.fitted_arrivals.process == "trace"
    rate = "" if trace else f" --request-rate {fit.scenario.demand.peak_rps:g}"
    return _fit(fit, lines, output, beside="and beside it", model="llama-3.1-8b", load=rate)


def _fit(
    fit: Fit, lines: tuple[str, ...], output: Path | None, *, beside: str, model: str, load: str
) -> Document:
    """The lines; of a file that was written its name, those of the files ``beside`` it, and the
    command that simulates it.
    """
    files = f", {beside} {', '.join(sorted(fit.files))}" if fit.files else ""
    name = "" if fit.scenario.model else f" --model {model}"
    written = (
        items((f"Written: {output}{files}.",)),
        Command(f"tonnage simulate {output}{name}{load}"),
    )
    return document(section("fit", "", items(lines), *(() if output is None else written)))


def _chosen(fit: Fit, chosen: Chosen, output: Path | None) -> Document:
    """The sessions that stand for all."""
    off = max(chosen.errors.items(), key=lambda error: error[1], default=("", 0.0))
    lines = (
        (
            f"{counted(len(chosen.recorded), 'session')} of {chosen.of} stand for all: the means of"
            f" {', '.join(chosen.errors)} differ by {off[1]:.1%} at most ({off[0]})."
        ),
        "Pauses, sub-agents and shared prefixes are the recorded ones.",
    )
    return _fit(
        fit,
        lines,
        output,
        beside="and next to it",
        model="glm-4.6 --gpu h200 --tp 8",
        load=" --concurrency 20",
    )
