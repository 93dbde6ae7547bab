"""Drawing: ticks that hold the data, places inside the page, marks that differ without colour."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from tests.report.example_plan import full
from tests.report.plans.test_figures import FIGURES
from tonnage.plan.cost import WayCost, YearlyCost
from tonnage.report.drawing.draw import BOLD, NARROW, WIDE, draw, draw_gantt, draw_plot
from tonnage.report.drawing.figure import (
    Axis,
    Bars,
    Box,
    Boxes,
    Cell,
    Cloud,
    Figure,
    Gantt,
    HeatMap,
    Lane,
    Page,
    Plot,
    Point,
    Rule,
    Scatter,
    Series,
    Span,
)


@pytest.mark.parametrize("name", FIGURES)
def test_drawing_is_well_formed_for_both_widths_and_stays_on_the_page(name: str) -> None:
    figure = FIGURES[name](full())
    assert figure is not None
    both = list(ET.fromstring(f"<both>{draw(figure)}</both>"))
    assert [svg.get("class") for svg in both] == ["figure wide", "figure narrow"]
    for svg, page in zip(both, (WIDE, NARROW), strict=True):
        _, _, width, height = map(float, str(svg.get("viewBox")).split())
        assert width == page.width
        assert svg.get("aria-label")
        places = [(float(t.get("x", "0")), float(t.get("y", "0"))) for t in svg.iter("text")]
        assert all(0 <= x <= width and 0 <= y <= height for x, y in places)
        marks = [g for g in svg.iter("g") if g.get("class") == "mark"]
        assert marks
        assert all(g.get("aria-label") and g.find("title") is not None for g in marks)


BOX = Box(name="8 clients", p1=40, p25=50, p50=55, p75=70, p99=400, mean=62, tip="TTFT")


LANES = tuple(
    Lane(
        name=f"{i}",
        spans=(Span(name="waits", start=i / 10, end=i / 10 + 0.2, tone=0),),
        tip=f"request {i}",
    )
    for i in range(60)
)


KINDS: dict[str, Figure] = {
    "boxes": Boxes(
        key="b",
        title="TTFT",
        axis=Axis(title="ms", log=True),
        boxes=(BOX, replace(BOX, name="a load with a very long name " * 3)),
    ),
    "heat": HeatMap(
        key="h",
        title="Lengths",
        x=Axis(title="prompt, tokens"),
        y=Axis(title="output, tokens"),
        columns=tuple(range(0, 1300, 100)),
        rows=(0, 100, 200),
        cells=(
            Cell(column=0, row=0, count=1, tip="one"),
            Cell(column=11, row=1, count=5_000, tip="many"),
        ),
    ),
    "gantt": Gantt(key="g", title="Requests", axis=Axis(title="seconds"), start=0.0, lanes=LANES),
    "few lanes": Gantt(
        key="g",
        title="Slots",
        axis=Axis(title="ticks"),
        start=0.0,
        lanes=(*LANES[:3], Lane("", (), ""), *LANES[3:6]),
    ),
    "scatter": Scatter(
        key="s",
        title="TTFT against prompts",
        x=Axis(title="tokens"),
        y=Axis(title="ms"),
        series=(Series(name="mean", points=(Point(x=10, y=20, tip="ten"),), tone=1, line=True),),
        clouds=(
            Cloud(
                name="one request", dots=tuple((float(i), 3.0 * i) for i in range(2_000)), tone=0
            ),
        ),
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_figures_of_runs_are_well_formed_for_both_widths_and_stay_on_the_page(name: str) -> None:
    for svg, page in zip(
        ET.fromstring(f"<both>{draw(KINDS[name])}</both>"), (WIDE, NARROW), strict=True
    ):
        _, _, width, height = map(float, str(svg.get("viewBox")).split())
        assert width == page.width
        places = [(float(t.get("x", "0")), float(t.get("y", "0"))) for t in svg.iter("text")]
        assert places
        assert all(0 <= x <= width and 0 <= y <= height for x, y in places)
        boxes = [
            [float(rect.get(side, "0")) for side in ("x", "y", "width", "height")]
            for rect in svg.iter("rect")
        ]
        drawn = [box for box in boxes if box[0] >= 0]  # swatches of a legend are drawn around 0
        assert all(x + wide <= width + 0.1 and y + tall <= height for x, y, wide, tall in drawn)
        assert all(g.get("aria-label") for g in svg.iter("g") if g.get("class") == "mark")


def test_few_lanes_are_tall_and_named_and_what_is_faint_is_named_apart() -> None:
    spans = (Span("decode", 0, 1, 0), Span("held up", 1, 3, 0, faint=True), Span("decode", 3, 4, 0))
    _, drawn = draw_gantt(
        Gantt(
            "g",
            "Slots",
            Axis("ticks"),
            0.0,
            (Lane("a", spans, "a"), Lane("", (), ""), Lane("b", spans, "b")),
        ),
        WIDE,
    )
    picture = ET.fromstring(f"<g>{drawn}</g>")
    paths = {str(path.get("class")): str(path.get("d")) for path in picture.iter("path")}
    assert set(paths) == {"span bar fill0", "span bar fill0 faint"}
    assert [path.count("M") for path in paths.values()] == [2, 1]
    begins = [float(place) for place in re.findall(r"M([\d.]+)", paths["span bar fill0"])]
    widths = [float(width) for width in re.findall(r"h([\d.]+)v", paths["span bar fill0"])]
    assert begins[1] - begins[0] == pytest.approx(3 * widths[0], abs=0.2)
    assert [
        text.text
        for text in picture.iter("text")
        if text.get("class") == "tick" and text.get("text-anchor") == "end"
    ][-3:] == [
        "a",
        None,
        "b",
    ]
    assert [text.text for text in picture.iter("text") if text.get("class") == "label"] == [
        "decode",
        "held up",
    ]


def test_bar_that_dwarfs_the_others_is_broken_off_and_its_number_stays() -> None:
    def dear(way: WayCost) -> WayCost:
        parts = (replace(way.parts[0], usd_per_year=42.6e6),)
        return replace(way, total_usd_per_year=42.6e6, parts=parts) if way.where == "api" else way

    cost = full().cost
    assert isinstance(cost, YearlyCost)
    bars = FIGURES["cost"](replace(full(), cost=replace(cost, ways=tuple(map(dear, cost.ways)))))
    assert isinstance(bars, Bars)
    assert bars.cut == 1.5 * 831_000
    drawn = draw(bars)
    assert drawn.count('class="break"') == 2
    assert "42,600,000 USD" in drawn
    assert 'class="break"' not in draw(FIGURES["cost"](full()) or bars)


LABEL = re.compile(
    r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)" class="limit-label">([^<]*)<'
)


@pytest.mark.parametrize("page", [WIDE, NARROW])
def test_the_words_of_a_limit_keep_off_the_curves_where_there_is_room(page: Page) -> None:
    points = tuple(Point(x=10.0 * i, y=600.0 * 1.3**i, tip="") for i in range(1, 9))
    plot = Plot(
        key="latency",
        title="latency",
        x=Axis(title="load"),
        y=Axis(title="ms", log=True),
        series=(Series(name="E2E", tone=2, points=points),),
        rules=(
            Rule(along="y", value=500.0, label="TTFT p95 ≤ 500 ms"),
            Rule(along="y", value=520.0, label="TPOT p95 ≤ 520 ms"),
        ),
    )
    _, drawn = draw_plot(plot, page)
    circles = [
        (float(x), float(y))
        for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="12"', drawn)
    ]
    boxes = []
    for x, y, anchor, words in LABEL.findall(drawn):
        begin = float(x) - (len(words) * BOLD if anchor == "end" else 0)
        boxes.append((begin, begin + len(words) * BOLD, float(y) - 11, float(y) + 3))
    assert len(circles) == 8
    assert [
        spot
        for spot in circles
        for a, b, c, d in boxes
        if a - 5 < spot[0] < b + 5 and c - 5 < spot[1] < d + 5
    ] == []
    (a, b, c, d), (e, f, g, h) = boxes
    assert b <= e or f <= a or d <= g or h <= c
