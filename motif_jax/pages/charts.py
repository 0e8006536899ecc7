"""Charts as plain HTML, without scripts or libraries: curves, histograms, and means with intervals.

Lines are SVG, stretched to the available space. Labels are HTML beside it, so that their size is the same on a phone.
All texts of games and models go through `esc`.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from motif_jax.pages.blocks import Interval, amount, csv_link, esc, exact, labels, of_intervals, ticks

COLOURS = ("first", "second", "good", "plum", "unknown", "teal", "pink", "tie")  # variables of assets/page.css
POINTS = 240  # most points of a line; longer lines are averaged
SMOOTHED = 16  # least points of a line that is shown smoothed, in front of the raw line

Point = tuple[float, float]


class Band(NamedTuple):
    """The interval around a line, given at some points of the horizontal axis and drawn behind the line."""

    x: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


class Level(NamedTuple):
    """A dashed horizontal line with its interval as a band, for comparison."""

    name: str
    value: Interval
    colour: str = "tie"  # one of COLOURS
    dash: str = "5 4"  # lengths of strokes and gaps


def curves(
    lines: Mapping[str, Sequence[Point]],
    x_name: str,
    low: float | None = None,
    high: float | None = None,
    *,
    title: str = "",
    note: str = "",
    levels: Sequence[Level] = (),
    colours: Mapping[str, str] | None = None,
    bands: Mapping[str, Band] | None = None,
) -> str:
    """A chart of lines over a common horizontal axis, whose unit is `x_name`; points that are not finite are left out.

    The vertical axis includes `low` and `high`. Lines have colours in the order of COLOURS unless `colours` has others;
    `bands` are their intervals. A line with a band is not smoothed.
    """
    colours = colours or dict(zip(lines, COLOURS * len(lines), strict=False))
    drawn = {name: thin([(x, y) for x, y in points if math.isfinite(y)]) for name, points in lines.items()}
    bands = bands or {}
    xs = [x for points in drawn.values() for x, _ in points] or [0.0, 1.0]
    ys = [y for points in drawn.values() for _, y in points]
    ys += [y for level in levels for y in (level.value.mean, *level.value.band)]
    ys += [y for band in bands.values() for y in (*band.low, *band.high)]
    ys += [bound for bound in (low, high) if bound is not None]
    marks = ticks(min(ys or [0.0]), max(ys or [1.0]))
    scale = Scale(min(xs), max(xs), marks[0], marks[-1])
    shapes = _behind(marks, levels, scale)
    for name, band in bands.items():
        outline = [*zip(band.x, band.high, strict=True), *reversed(list(zip(band.x, band.low, strict=True)))]
        shapes.append(f'<polygon points="{scale.path(outline)}" fill="var(--{colours[name]})" opacity=".18"/>')
    for name, points in drawn.items():
        shapes += _line(scale, points, points if name in bands else smooth(points), colours[name])
    legend = _legend({name: colours[name] for name in lines} if len(lines) > 1 or levels else {}, levels)
    rounded = {name: [[round(x, 6), float(f"{y:.6g}")] for x, y in points] for name, points in drawn.items()}
    data = {"x": x_name, "from": scale.left, "to": scale.right, "lines": [
        {"name": name, "colour": colours[name], "points": points} for name, points in rounded.items()
    ]}  # fmt: skip
    rows = [(name, *point) for name, points in rounded.items() for point in points]
    sheet = (("line", x_name, title or "value"), rows)
    words = labels(marks)
    above = f"<figcaption>{esc(title)}<span>{esc(note)}</span></figcaption>" if title else ""
    return (
        f'<figure class="chart" data-chart="{esc(json.dumps(data))}">{above}'
        f'<div class="plot"><div class="ys" style="--wide:{max(map(len, words)):d}ch">'
        + "".join(
            f'<span style="bottom:{100 * scale.up(mark):.1f}%">{word}</span>'
            for mark, word in zip(marks, words, strict=True)
        )
        + '</div><div class="field"><svg viewBox="0 0 1000 1000" preserveAspectRatio="none" role="img" '
        f'aria-label="{esc(title or ", ".join(lines))} over {esc(x_name)}">{"".join(shapes)}</svg></div>'
        f'<div class="xs">{_x_labels(scale, x_name)}</div></div>'
        + (f'<div class="legend">{legend}</div>' if legend else "")
        + f"{csv_link(sheet)}</figure>"
    )


class Scale(NamedTuple):
    """The axes of a chart: their smallest and largest values. Places are shares of its width and height."""

    left: float
    right: float
    bottom: float
    top: float

    def across(self, x: float) -> float:
        return (x - self.left) / (self.right - self.left) if self.right > self.left else 0.5

    def up(self, y: float) -> float:
        return (y - self.bottom) / (self.top - self.bottom)

    def path(self, points: Sequence[Point]) -> str:
        """Returns points as the coordinates of an SVG of 1000 x 1000."""
        return " ".join(f"{1000 * self.across(x):.1f},{1000 - 1000 * self.up(y):.1f}" for x, y in points)


def _line(scale: Scale, points: list[Point], smoothed: list[Point], colour: str) -> list[str]:
    """Returns a line, and the raw line behind it if it is smoothed, as SVG; a single point is a dot."""
    style = f'fill="none" stroke-linejoin="round" stroke-linecap="round" stroke="var(--{colour})"'
    raw = f'<polyline points="{scale.path(points)}" {style} stroke-width="1.2" opacity=".35"/>'
    if len(points) == 1:  # a dot is a line of length 0 with round ends
        smoothed = [points[0], points[0]]
    width = 7 if len(points) == 1 else 2.4
    line = f'<polyline points="{scale.path(smoothed)}" {style} stroke-width="{width}"/>'
    return ([raw] if len(points) >= SMOOTHED and smoothed is not points else []) + ([line] if points else [])


def _behind(marks: Sequence[float], levels: Sequence[Level], scale: Scale) -> list[str]:
    """Returns the grid of a chart, and its levels with their intervals, as SVG."""
    shapes = [
        f'<line x1="0" x2="1000" y1="{1000 - 1000 * scale.up(mark):.1f}" y2="{1000 - 1000 * scale.up(mark):.1f}" '
        f'stroke="var(--line)" stroke-width="{1.4 if mark == 0 else 1}"/>'
        for mark in marks
    ]
    for level in levels:
        below, above = map(scale.up, level.value.band)
        shapes.append(
            f'<rect x="0" width="1000" y="{1000 - 1000 * above:.1f}" fill="var(--{level.colour})" opacity=".2" '
            f'height="{1000 * (above - below):.1f}"/>' + _stroke(level, 1000, 1000 - 1000 * scale.up(level.value.mean))
        )
    return shapes


def _legend(colours: Mapping[str, str], levels: Sequence[Level]) -> str:
    lines = [f'<span><i style="background:var(--{colour})"></i>{esc(name)}</span>' for name, colour in colours.items()]
    for level in levels:
        line = f'<svg viewBox="0 0 28 8" aria-hidden="true">{_stroke(level, 28, 4)}</svg>'
        lines.append(f"<span>{line}{esc(level.name)}</span>")
    return "".join(lines)


def _stroke(level: Level, width: float, y: float) -> str:
    """The line of a level as SVG, for the chart or for the legend."""
    return (
        f'<line x1="0" x2="{width:g}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--{level.colour})" stroke-width="1.8" '
        f'stroke-dasharray="{level.dash}"/>'
    )


def _x_labels(scale: Scale, x_name: str) -> str:
    """The labels under a chart; the last one includes the name of the axis."""
    left, right = scale.left, scale.right
    marks = [mark for mark in ticks(left, right, 3) if left <= mark <= right] if right > left else [left]
    spans = []
    for mark in marks:
        share = scale.across(mark)
        kind = ' class="first"' if share < 0.04 else ' class="last"' if share > 0.85 else ""
        word = f"{amount(mark)} {esc(x_name)}" if mark == marks[-1] else amount(mark)
        spans.append(f'<span{kind} style="left:{100 * share:.1f}%">{word}</span>')
    return "".join(spans)


def thin(points: Sequence[Point], most: int = POINTS) -> list[Point]:
    """Reduces a line to at most `most` points, each the mean of about equally many."""
    if len(points) <= most:
        return list(points)
    cuts = [round(number * len(points) / most) for number in range(most + 1)]
    parts = [points[start:stop] for start, stop in itertools.pairwise(cuts)]
    return [(sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part)) for part in parts]


def spark(values: Sequence[float]) -> str:
    """A small line without axes, for a cell of a table."""
    low, high = min(values), max(values)
    points = thin([(float(x), value) for x, value in enumerate(values)], 60)
    right, size = max(points[-1][0], 1.0), (high - low) or 1.0
    path = " ".join(f"{100 * x / right:.0f},{18 - 16 * (y - low) / size:.0f}" for x, y in points)
    return (
        '<svg viewBox="0 0 100 20" style="width:8em;height:1.6em" aria-hidden="true">'
        f'<polyline points="{path}" fill="none" stroke="var(--first)" stroke-width="1.5"/></svg>'
    )


def smooth(points: list[Point]) -> list[Point]:
    """Replaces each value by the mean over its neighbours; short lines stay as they are."""
    if len(points) < SMOOTHED:
        return points
    reach = max(1, len(points) // 20)
    smoothed = []
    for at, (x, _) in enumerate(points):
        span = min(reach, at, len(points) - 1 - at)  # symmetric, so that the ends are not biased
        near = points[at - span : at + span + 1]
        smoothed.append((x, sum(y for _, y in near) / len(near)))
    return smoothed


def columns(
    counts: Sequence[float],
    words: Sequence[str],
    marks: Iterable[tuple[float, str]] = (),
    of: Sequence[str] = (),
    root: bool = False,
) -> str:
    """A histogram, with `words` below it, from left to right, and the names `of` its columns in tooltips.

    `marks`: vertical lines, as (distance from the left as a share of the width, label). `root`: draw square roots, so
    that small counts are visible beside large ones.
    """
    power = 0.5 if root else 1.0
    top = max([*counts, 1e-12]) ** power
    names = [f"{name}: " for name in of] or [""] * len(counts)
    inner = "".join(
        f'<i{"" if count else " class=none"} style="height:{100 * count**power / top:.1f}%" '
        f'title="{esc(name)}{count:,.0f}"></i>'
        for count, name in zip(counts, names, strict=True)
    )
    for share, name in marks:
        side = ' class="left"' if share > 0.7 else ""
        inner += f'<span{side} style="left:{100 * share:.1f}%"><b>{esc(name)}</b></span>'
    below = "".join(f"<span>{esc(word)}</span>" for word in words)
    sheet = (("column", "count"), [(of[at] if of else at + 1, count) for at, count in enumerate(counts)])
    return f'<div class="columns">{inner}</div><div class="axis soft">{below}</div>{csv_link(sheet)}'


def track(interval: Interval, low: float, high: float, colour: str) -> str:
    """A mean as a bar from zero with its interval, on a scale from `low` to `high`."""
    span = high - low or 1.0

    def part(start: float, stop: float) -> str:
        left, width = 100 * (start - low) / span, 100 * (stop - start) / span
        return f'<i style="left:{left:.2f}%;width:{width:.2f}%;background:var(--{colour})"></i>'

    zero, end = sorted((min(max(0.0, low), high), interval.mean))
    mean = f'<b style="left:{100 * (interval.mean - low) / span:.2f}%;background:var(--{colour})"></b>'
    return f'<span class="track">{part(zero, end)}{part(*interval.band)}{mean}</span>'


def dots(values: Iterable[float], interval: Interval, low: float, high: float, colour: str) -> str:
    """Values as dots, in front of their mean and its interval, on a scale from `low` to `high`."""
    span = high - low or 1.0
    points = "".join(
        f'<u style="left:{100 * (value - low) / span:.2f}%;background:var(--{colour})" title="{exact(value)}"></u>'
        for value in values
    )
    return track(interval, low, high, colour).removesuffix("</span>") + points + "</span>"


def reach(intervals: Iterable[Interval | None]) -> tuple[float, float]:
    """The ends of a common scale of intervals, which includes zero."""
    ends = [0.0, *(end for interval in intervals if interval for end in (interval.mean, *interval.band))]
    return min(ends), max(ends)


def bars(rows: Iterable[tuple[str, str, Sequence[Interval | None]]], names: Sequence[str]) -> str:
    """Means with intervals side by side, from rows of (figure, note, an interval per name), each with its own scale."""
    colours, rows = dict(zip(names, COLOURS * len(names), strict=False)), list(rows)
    body = []
    for what, note, intervals in rows:
        low, high = reach(intervals)
        lines = ""
        for name, interval in zip(names, intervals, strict=True):
            scale, words = '<span class="track"></span>', '<span class="soft">–</span>'
            if interval:
                scale = track(interval, low, high, colours[name])
                words = f'<span>{exact(interval.mean)} <span class="soft">{interval.words}</span></span>'
            lines += f'<div class="line" title="{esc(name)}">{scale}{words}</div>'
        small = f"<small>{esc(note)}</small>" if note else ""
        body.append(f'<div class="row"><div class="what">{esc(what)}{small}</div><div>{lines}</div></div>')
    link = csv_link(of_intervals([(what, intervals) for what, _, intervals in rows], names))
    return f'<div class="legend">{_legend(colours, ())}</div><div class="bars">{"".join(body)}</div>{link}'
