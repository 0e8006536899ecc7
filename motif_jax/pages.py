"""Building blocks of the HTML pages that stages write: one file each, offline, dark and light, readable on a phone.

Everything that comes from a game or a model goes through `esc`.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

STYLE = """
:root { color-scheme: light dark; --ink: #1c2128; --soft: #626c78; --line: #d9dee4; --paper: #fff; --card: #f5f7f9;
  --first: #2f6fd0; --second: #d9772b; --tie: #98a2ad; --unknown: #c9403a; --good: #2c8a4b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ed; --soft: #98a3b0; --line: #323a44; --paper: #14181d;
  --card: #1d232a; --first: #6ba1f2; --second: #eb9a55; --tie: #76818d; --unknown: #ef6b64; --good: #5cba7b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 62rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem; } p {
margin: .4rem 0; } .soft { color: var(--soft); font-size: .9rem; } .tiles { display: grid; grid-template-columns:
repeat(auto-fit, minmax(9rem, 1fr)); gap: .6rem; margin: 1.2rem 0; } .tile { background: var(--card); border-radius:
.5rem; padding: .6rem .8rem; } .tile b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: .85rem; } .bar { display: flex; height: 1.6rem; border-radius: .4rem;
overflow: hidden; } .legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin-top: .4rem; font-size: .9rem;
} .legend i { display: inline-block; width: .7rem; height: .7rem; border-radius: .2rem; margin-right: .4rem; } .scroll
{ overflow-x: auto; } table { border-collapse: collapse; width: 100%; min-width: 36rem; font-size: .92rem; } th {
text-align: left; color: var(--soft); font-weight: 500; } th, td { padding: .35rem .7rem .35rem 0; border-bottom: 1px
solid var(--line); vertical-align: top; } td.tight { white-space: nowrap; } td.number, th.number { text-align: right;
font-variant-numeric: tabular-nums; white-space: nowrap; } .better { font-weight: 600; } .worse { color: var(--soft);
} code, pre { font: .86rem/1.45 ui-monospace, monospace; } td code { white-space: pre-wrap; overflow-wrap: anywhere; }
pre { background: var(--card); border-radius: .5rem; padding: .8rem; white-space: pre-wrap; overflow-wrap: anywhere; }
details summary { cursor: pointer; color: var(--soft); } .columns { display: flex; align-items: flex-end; gap: 2px;
  height: 7rem; border-bottom: 1px solid var(--line); } .columns i { flex: 1; background: var(--first); min-height:
  1px; }
.axis { display: flex; justify-content: space-between; }
"""


def esc(text: Any) -> str:
    """As text, whatever it contains."""
    return html.escape(str(text), quote=True)


def page(title: str, body: Iterable[str]) -> str:
    """A whole file."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{esc(title)}</title><style>{STYLE}</style></head><body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def tiles(values: Iterable[tuple[str, str]]) -> str:
    """Figures at a glance: (value, what it is)."""
    inner = "".join(f'<div class="tile"><b>{esc(value)}</b><span>{esc(what)}</span></div>' for value, what in values)
    return f'<div class="tiles">{inner}</div>'


def share_bar(shares: Sequence[tuple[str, float, str]]) -> str:
    """One bar cut in parts: (name, share, colour variable)."""
    parts = "".join(
        f'<div style="width:{share:.3%};background:var(--{colour})" title="{esc(name)} {share:.1%}"></div>'
        for name, share, colour in shares
    )
    legend = "".join(
        f'<span><i style="background:var(--{colour})"></i>{esc(name)} {share:.1%}</span>'
        for name, share, colour in shares
    )
    return f'<div class="bar">{parts}</div><div class="legend">{legend}</div>'


def columns(counts: Sequence[float], left: str, middle: str, right: str) -> str:
    """A histogram with three words under it."""
    top = max([*counts, 1e-12])
    inner = "".join(f'<i style="height:{100 * count / top:.1f}%" title="{count:,.0f}"></i>' for count in counts)
    words = "".join(f"<span>{esc(word)}</span>" for word in (left, middle, right))
    return f'<div class="columns">{inner}</div><div class="axis soft">{words}</div>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()) -> str:
    """A table; cells are HTML already. `numbers` are the columns set to the right."""
    right = set(numbers)
    mark = [' class="number"' if index in right else "" for index in range(len(head))]
    top = "".join(f"<th{kind}>{esc(name)}</th>" for name, kind in zip(head, mark, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row, mark, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def folded(summary: str, text: str) -> str:
    """Long text that opens on a click."""
    return f"<details><summary>{esc(summary)}</summary><pre>{esc(text)}</pre></details>"


def curves(series: Mapping[str, Sequence[tuple[float, float]]], x_name: str, low: float, high: float) -> str:
    """Lines over a common axis: points (x, y) by name, y between low and high."""
    colours = ("first", "second", "good", "tie", "unknown")
    width, height, left, bottom = 640, 220, 44, 24
    points = [x for line in series.values() for x, _ in line] or [0.0]
    first, last = min(points), max(max(points), min(points) + 1e-9)

    def place(x: float, y: float) -> str:
        across = left + (x - first) / (last - first) * (width - left - 8)
        up = (min(max(y, low), high) - low) / max(high - low, 1e-9)
        return f"{across:.1f},{height - bottom - up * (height - bottom - 8):.1f}"

    body = []
    for share in (0.0, 0.5, 1.0):
        y = low + share * (high - low)
        from_x, from_y = place(first, y).split(",")
        body.append(f'<line x1="{from_x}" x2="{width - 8}" y1="{from_y}" y2="{from_y}" stroke="var(--line)"/>')
        body.append(f'<text x="{left - 6}" y="{float(from_y) + 4}" text-anchor="end">{y:.3g}</text>')
    body.append(f'<text x="{left}" y="{height - 6}">{first:.3g}</text>')
    body.append(f'<text x="{width - 8}" y="{height - 6}" text-anchor="end">{esc(x_name)} {last:.3g}</text>')
    for (_, line), colour in zip(series.items(), colours, strict=False):
        path = " ".join(place(x, y) for x, y in line if y == y)
        body.append(f'<polyline points="{path}" fill="none" stroke="var(--{colour})" stroke-width="2.2"/>')
    legend = "".join(
        f'<span><i style="background:var(--{colour})"></i>{esc(name)}</span>'
        for name, colour in zip(series, colours, strict=False)
    )
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" style="width:100%;max-width:44rem;font-size:11px" '
        f'fill="var(--soft)">{"".join(body)}</svg><div class="legend">{legend}</div>'
    )
