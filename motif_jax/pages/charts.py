"""Charts as blocks: curves, histograms, and means with intervals; plain HTML without scripts or libraries.

Lines are SVG, stretched to the available space. Labels are HTML beside it, so that their size is the same on a phone.
All texts of games and models go through `esc`.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from motif_jax.pages.blocks import (
    KINDS,
    Block,
    Interval,
    Span,
    amount,
    csv_link,
    esc,
    exact,
    labels,
    of_intervals,
    ticks,
)

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

    @property
    def stroke(self) -> str:
        return f'stroke="var(--{self.colour})" stroke-width="1.8" stroke-dasharray="{self.dash}"'


KINDS |= {"Band": Band, "Level": Level}


@dataclass(frozen=True)
class Curves(Block):
    """A chart of lines over a common horizontal axis, whose unit is `x_name`; points that are not finite are left out.

    The vertical axis includes `low` and `high`. Lines have colours in the order of COLOURS unless `colours` has others;
    `bands` are their intervals. A line with a band is not smoothed.
    """

    lines: Mapping[str, Sequence[Point]]
    x_name: str
    low: float | None = None
    high: float | None = None
    title: str = ""
    note: str = ""
    levels: Sequence[Level] = ()
    colours: Mapping[str, str] | None = None
    bands: Mapping[str, Band] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        finite = {name: [(x, y) for x, y in of if math.isfinite(y)] for name, of in dict(self.lines).items()}
        object.__setattr__(self, "lines", {name: thin(points) for name, points in finite.items()})
        super().__post_init__()

    def html(self) -> str:
        lines, bands, title, x_name = dict(self.lines), dict(self.bands), self.title, self.x_name
        colours = dict(self.colours or _in_turn(lines))
        xs = [x for points in lines.values() for x, _ in points] or [0.0, 1.0]
        ys = [y for points in lines.values() for _, y in points]
        ys += [y for level in self.levels for y in (level.value.mean, *level.value.band)]
        ys += [y for band in bands.values() for y in (*band.low, *band.high)]
        ys += [bound for bound in (self.low, self.high) if bound is not None]
        marks = ticks(min(ys or [0.0]), max(ys or [1.0]))
        axes = Axes(min(xs), max(xs), marks[0], marks[-1])
        rounded = {name: [[round(x, 6), float(f"{y:.6g}")] for x, y in points] for name, points in lines.items()}
        data = {"x": x_name, "from": axes.left, "to": axes.right, "lines": [
            {"name": name, "colour": colours[name], "points": points} for name, points in rounded.items()
        ]}  # fmt: skip
        words = labels(marks)
        heights = zip((100 * axes.up(mark) for mark in marks), words, strict=True)
        legend = _legend({name: colours[name] for name in lines} if len(lines) > 1 or self.levels else {}, self.levels)
        sheet = (("line", x_name, title or "value"), [(name, *one) for name in rounded for one in rounded[name]])
        parts = [
            f'<figure class="chart" data-chart="{esc(json.dumps(data))}">',
            f"<figcaption>{esc(title)}<span>{esc(self.note)}</span></figcaption>" if title else "",
            f'<div class="plot"><div class="ys" style="--wide:{max(map(len, words)):d}ch">',
            *(f'<span style="bottom:{height:.1f}%">{word}</span>' for height, word in heights),
            '</div><div class="field"><svg viewBox="0 0 1000 1000" preserveAspectRatio="none" role="img" ',
            f'aria-label="{esc(title or ", ".join(lines))} over {esc(x_name)}">',
            _behind(axes, marks, self.levels, [(colours[name], band) for name, band in bands.items()]),
            *(one for name, points in lines.items() for one in _line(axes, points, colours[name], name not in bands)),
            f'</svg></div><div class="xs">{_x_labels(axes, x_name)}</div></div>',
            f'<div class="legend">{legend}</div>' if legend else "",
            csv_link(sheet),
            "</figure>",
        ]
        return "".join(parts)


class Axes(NamedTuple):
    """The smallest and largest values of a chart's axes. Places are shares of its width and height."""

    left: float
    right: float
    bottom: float
    top: float

    def across(self, x: float) -> float:
        return (x - self.left) / (self.right - self.left) if self.right > self.left else 0.5

    def up(self, y: float) -> float:
        return (y - self.bottom) / (self.top - self.bottom)

    def down(self, y: float) -> float:
        """The place of `y` in an SVG of 1000 x 1000."""
        return 1000 - 1000 * self.up(y)

    def path(self, points: Iterable[Point]) -> str:
        """The points as coordinates of this SVG."""
        return " ".join(f"{1000 * self.across(x):.1f},{self.down(y):.1f}" for x, y in points)


def _behind(axes: Axes, marks: Sequence[float], levels: Sequence[Level], bands: Sequence[tuple[str, Band]]) -> str:
    """The grid of a chart, its levels with their intervals, and bands with their colours, as SVG."""
    shapes = [_flat(axes.down(y), f'stroke="var(--line)" stroke-width="{1 if y else 1.4}"') for y in marks]
    for level in levels:
        below, above = map(axes.down, level.value.band)
        area = f'y="{above:.1f}" fill="var(--{level.colour})" opacity=".2" height="{below - above:.1f}"'
        shapes += [f'<rect x="0" width="1000" {area}/>', _flat(axes.down(level.value.mean), level.stroke)]
    for colour, band in bands:
        outline = [*zip(band.x, band.high, strict=True), *reversed(list(zip(band.x, band.low, strict=True)))]
        shapes.append(f'<polygon points="{axes.path(outline)}" fill="var(--{colour})" opacity=".18"/>')
    return "".join(shapes)


def _line(axes: Axes, points: Sequence[Point], colour: str, smoothed: bool) -> list[str]:
    """A line as SVG; if it is `smoothed`, the raw line is behind it."""
    style = f'fill="none" stroke-linejoin="round" stroke-linecap="round" stroke="var(--{colour})"'
    if len(points) == 1:  # a dot is a line of length 0 with round ends
        return [f'<polyline points="{axes.path([*points, *points])}" {style} stroke-width="7"/>']
    shapes = []
    if smoothed and len(points) >= SMOOTHED:
        shapes.append(f'<polyline points="{axes.path(points)}" {style} stroke-width="1.2" opacity=".35"/>')
        points = smooth(points)
    return [*shapes, f'<polyline points="{axes.path(points)}" {style} stroke-width="2.4"/>'] if points else []


def _flat(y: float, style: str, width: int = 1000) -> str:
    return f'<line x1="0" x2="{width}" y1="{y:.1f}" y2="{y:.1f}" {style}/>'


def _in_turn(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name."""
    return dict(zip(names, itertools.cycle(COLOURS), strict=False))


def _legend(colours: Mapping[str, str], levels: Sequence[Level]) -> str:
    lines = [f'<span><i style="background:var(--{colour})"></i>{esc(name)}</span>' for name, colour in colours.items()]
    for level in levels:
        line = f'<svg viewBox="0 0 28 8" aria-hidden="true">{_flat(4, level.stroke, 28)}</svg>'
        lines.append(f"<span>{line}{esc(level.name)}</span>")
    return "".join(lines)


def _x_labels(axes: Axes, x_name: str) -> str:
    """The labels under a chart; the last one includes the name of the axis."""
    left, right, spans = axes.left, axes.right, []
    marks = [mark for mark in ticks(left, right, 3) if left <= mark <= right] if right > left else [left]
    for mark in marks:
        share, unit = axes.across(mark), f" {esc(x_name)}" if mark == marks[-1] else ""
        kind = ' class="first"' if share < 0.04 else ' class="last"' if share > 0.85 else ""
        spans.append(f'<span{kind} style="left:{100 * share:.1f}%">{amount(mark)}{unit}</span>')
    return "".join(spans)


def thin(points: Sequence[Point], most: int = POINTS) -> list[Point]:
    """Reduces a line to at most `most` points, each the mean of about equally many."""
    if len(points) <= most:
        return list(points)
    cuts = [round(number * len(points) / most) for number in range(most + 1)]
    parts = [points[start:stop] for start, stop in itertools.pairwise(cuts)]
    return [(sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part)) for part in parts]


def smooth(points: Sequence[Point]) -> list[Point]:
    """Replaces each value by the mean over its neighbours."""
    reach, smoothed = max(1, len(points) // 20), []
    for at, (x, _) in enumerate(points):
        span = min(reach, at, len(points) - 1 - at)  # symmetric, so that the ends are not biased
        near = points[at - span : at + span + 1]
        smoothed.append((x, sum(y for _, y in near) / len(near)))
    return smoothed


@dataclass(frozen=True)
class Spark(Block):
    """A small line without axes, for a cell of a table; from the lowest to the highest value."""

    points: Sequence[Point]
    low: float
    high: float

    def html(self) -> str:
        right, size = max(self.points[-1][0], 1.0), (self.high - self.low) or 1.0
        path = " ".join(f"{100 * x / right:.0f},{18 - 16 * (y - self.low) / size:.0f}" for x, y in self.points)
        line = f'<polyline points="{path}" fill="none" stroke="var(--first)" stroke-width="1.5"/>'
        return f'<svg viewBox="0 0 100 20" style="width:8em;height:1.6em" aria-hidden="true">{line}</svg>'


def spark(values: Sequence[float]) -> Spark:
    """A small line of these values."""
    return Spark(thin([(float(x), value) for x, value in enumerate(values)], 60), min(values), max(values))


@dataclass(frozen=True)
class Columns(Block):
    """A histogram, with `words` below it, from left to right, and the names `of` its columns in tooltips.

    `marks`: vertical lines, as (distance from the left as a share of the width, label). `root`: draw square roots, so
    that small counts are visible beside large ones.
    """

    counts: Sequence[float]
    words: Sequence[str]
    marks: Iterable[tuple[float, str]] = ()
    of: Sequence[str] = ()
    root: bool = False

    def html(self) -> str:
        power, counts, of = 0.5 if self.root else 1.0, self.counts, self.of
        top, inner = max([*counts, 1e-12]) ** power, ""
        for count, name in zip(counts, of or [""] * len(counts), strict=True):
            kind, about = "" if count else " class=none", f"{esc(name)}: " if of else ""
            inner += f'<i{kind} style="height:{100 * count**power / top:.1f}%" title="{about}{count:,.0f}"></i>'
        for share, name in self.marks:
            side = ' class="left"' if share > 0.7 else ""
            inner += f'<span{side} style="left:{100 * share:.1f}%"><b>{esc(name)}</b></span>'
        below = "".join(f"<span>{esc(word)}</span>" for word in self.words)
        link = csv_link((("column", "count"), zip(of or range(1, len(counts) + 1), counts, strict=True)))
        return f'<div class="columns">{inner}</div><div class="axis soft">{below}</div>{link}'


@dataclass(frozen=True)
class Track(Block):
    """A mean as a bar from zero with its interval, and `values` as dots, on a scale from `low` to `high`."""

    interval: Interval
    low: float
    high: float
    colour: str
    values: Iterable[float] = ()

    def html(self) -> str:
        interval, low, high = self.interval, self.low, self.high
        span, paint = high - low or 1.0, f"background:var(--{self.colour})"

        def left(value: float) -> str:
            return f"left:{100 * (value - low) / span:.2f}%"

        parts = ""
        for start, stop in (sorted((min(max(0.0, low), high), interval.mean)), interval.band):
            parts += f'<i style="{left(start)};width:{100 * (stop - start) / span:.2f}%;{paint}"></i>'
        parts += f'<b style="{left(interval.mean)};{paint}"></b>'
        parts += "".join(f'<u style="{left(value)};{paint}" title="{exact(value)}"></u>' for value in self.values)
        return f'<span class="track">{parts}</span>'


def reach(intervals: Iterable[Interval | None]) -> tuple[float, float]:
    """The ends of a common scale of intervals, which includes zero."""
    ends = [0.0, *(end for interval in intervals if interval for end in (interval.mean, *interval.band))]
    return min(ends), max(ends)


@dataclass(frozen=True)
class Bars(Block):
    """Means with intervals side by side, from rows of (figure, note, an interval per name), each with its own scale."""

    rows: Iterable[tuple[str, str, Sequence[Interval | None]]]
    names: Sequence[str]

    def html(self) -> str:
        colours, rows, body = _in_turn(self.names), [*self.rows], ""
        for what, note, intervals in rows:
            ends, lines = reach(intervals), ""
            for name, interval in zip(self.names, intervals, strict=True):
                scale, words = '<span class="track"></span>', '<span class="soft">–</span>'
                if interval:
                    scale = Track(interval, *ends, colours[name]).html()
                    words = f'<span>{exact(interval.mean)} <span class="soft">{interval.words}</span></span>'
                lines += f'<div class="line" title="{esc(name)}">{scale}{words}</div>'
            small = f"<small>{esc(note)}</small>" if note else ""
            body += f'<div class="row"><div class="what">{esc(what)}{small}</div><div>{lines}</div></div>'
        link = csv_link(of_intervals([(what, intervals) for what, _, intervals in rows], self.names))
        return f'<div class="legend">{_legend(colours, ())}</div><div class="bars">{body}</div>{link}'


@dataclass(frozen=True)
class Letters(Block):
    """A text token by token, side by side, each over columns of bars: the most probable ones in its place.

    A token is (text, colour or "", words beside it, (odds, colour) of each column), and odds are pairs (text, share).
    """

    tokens: Sequence[tuple[str, str, str, Sequence[tuple[Sequence[tuple[str, float]], str]]]]

    def html(self) -> str:
        cells = []
        for token, colour, words, odds in self.tokens:
            beside = Span(words, "small").html() if words else ""
            bars = "".join(self._bars(likely, paint, token) for likely, paint in odds)
            name = Span(token, colour=colour).html()
            cells.append(f'<td style="white-space:nowrap">{name} {beside}<br>{bars}</td>')
        return f'<div class="scroll"><table class="fits"><tr>{"".join(cells)}</tr></table></div>'

    def _bars(self, likely: Sequence[tuple[str, float]], colour: str, taken: str) -> str:
        lines = []
        for name, odds in likely:
            mark = "b" if name == taken else "span"
            lines.append(
                f'<div style="background:linear-gradient(to right,color-mix(in srgb,var(--{colour}) 35%,transparent) '
                f'{odds:.0%},transparent {odds:.0%});white-space:nowrap;font-size:.78rem;min-width:3.4rem">'
                f"<{mark}>{esc(name)}</{mark}> {odds:.0%}</div>"
            )
        return f'<div style="margin:.25rem 0">{"".join(lines)}</div>'
