"""Draws docs/images/curve.svg: the course's measured curve and the prediction of it, limits marked.

    ./benchmark picture

How well deployments are predicted that were left out of the fit is in docs/accuracy.md.
"""

from __future__ import annotations

import math
from pathlib import Path

from tonnage import api
from tonnage.formats.measured_files import read_points

ROOT = Path(__file__).resolve().parent.parent
CURVE = ROOT / "examples" / "nim-llama-3-8b-h100-fp8.csv"
PICTURE = ROOT / "docs" / "images" / "curve.svg"

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 70, 30, 56, 60
MOST_X, LEAST_Y, MOST_Y = 120.0, 20.0, 2000.0
INK, MEASURED, PREDICTED, LIMIT = "#1f2933", "#d55e00", "#0072b2", "#6b7280"

Curve = list[tuple[float, float]]


def x_of(rate: float) -> float:
    """Pixels from the left of a rate in requests/s per 8 GPUs."""
    return LEFT + rate / MOST_X * (WIDTH - LEFT - RIGHT)


def y_of(milliseconds: float) -> float:
    """Pixels from the top of a TTFT, on a logarithmic axis."""
    share = math.log(milliseconds / LEAST_Y) / math.log(MOST_Y / LEAST_Y)
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 13,
    colour: str = INK,
    anchor: str = "start",
    more: str = "",
) -> str:
    """One line of text."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"'
        f" {more}>{words}</text>"
    )


def axes() -> list[str]:
    """Grid, ticks and titles."""
    parts = []
    for rate in range(0, 121, 20):
        parts.append(
            f'<line x1="{x_of(rate):.1f}" x2="{x_of(rate):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"'
            ' stroke="#e5e7eb"/>'
        )
        parts.append(text(x_of(rate), HEIGHT - BOTTOM + 20, str(rate), anchor="middle"))
    for ms in (20, 50, 100, 200, 500, 1000, 2000):
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_of(ms):.1f}" y2="{y_of(ms):.1f}"'
            ' stroke="#e5e7eb"/>'
        )
        parts.append(text(LEFT - 8, y_of(ms) + 4, f"{ms:,}", anchor="end"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(
        text(
            (LEFT + WIDTH - RIGHT) / 2,
            HEIGHT - 16,
            "requests per second on 8 GPUs",
            anchor="middle",
        )
    )
    parts.append(
        text(
            20,
            middle,
            "mean TTFT, ms",
            anchor="middle",
            more=f'transform="rotate(-90 20 {middle:.0f})"',
        )
    )
    return parts


def line(points: Curve, colour: str) -> str:
    """A line through points."""
    path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>'


def dots(points: Curve, labels: list[str]) -> list[str]:
    """Measured points, each with its number of clients."""
    parts = []
    for (x, y), label in zip(points, labels, strict=True):
        parts.append(f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="5" fill="{MEASURED}"/>')
        parts.append(text(x_of(x) + 8, y_of(y) + 14, label, size=11, colour=MEASURED))
    return parts


def main() -> None:
    """Simulate the curve and write the picture."""
    points = read_points(CURVE)
    clients = [p.concurrency or 0 for p in points]
    measured = [(8 * (p.requests_s or 0.0), p.statistic_ms("ttft", "mean") or 0.0) for p in points]
    runs = api.simulate_sweep(
        model="llama-3-8b",
        gpu="h100-sxm-80gb",
        precision="fp8",
        engine="nim-2024",
        isl=2000,
        osl=200,
        concurrency=clients,
    )
    predicted = [(8 * r.summary.requests_per_second, r.summary.ttft_ms.mean) for r in runs]
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
            ' font-family="system-ui, sans-serif" role="img">'
        ),
        "<title>TTFT against throughput, measured and predicted</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        text(
            LEFT,
            22,
            "Llama-3-8B, H100 SXM, FP8, TP 1, 2,000 tokens in, 200 out, NIM, 1 to 250 clients",
            size=14,
        ),
        text(LEFT, 42, "● measured (NVIDIA course)", colour=MEASURED),
        text(LEFT + 200, 42, "— predicted", colour=PREDICTED),
        *axes(),
    ]
    for ms in (300, 500):
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_of(ms):.1f}" y2="{y_of(ms):.1f}"'
            f' stroke="{LIMIT}" stroke-dasharray="6 4"/>'
        )
        parts.append(text(LEFT + 8, y_of(ms) - 5, f"limit {ms} ms", size=12, colour=LIMIT))
    parts += [line(predicted, PREDICTED), *dots(measured, [str(c) for c in clients]), "</svg>"]
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text("\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
