"""Building blocks of HTML pages: one self-contained file each, dark and light, readable on a phone; and formats.

All texts of games and models go through `esc`. As a second barrier, the page's content security policy forbids all
scripts but ours, and loading anything.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import html
import io
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


class Interval(NamedTuple):
    """A mean and its 95 % confidence interval; None if unknown, as for a single episode."""

    mean: float
    low: float | None = None
    high: float | None = None
    median: float | None = None  # if known
    n: int | None = None  # number of values, if it differs from what the reader expects

    @property
    def band(self) -> tuple[float, float]:
        """The interval's ends; (mean, mean) if unknown."""
        return (self.mean, self.mean) if self.low is None or self.high is None else (self.low, self.high)

    @property
    def words(self) -> str:
        """The interval's ends in brackets, and n; unknown parts are left out."""
        ends = "" if self.low is None or self.high is None else f"[{exact(self.low)}, {exact(self.high)}]"
        return ends if self.n is None else f"{ends} n = {self.n:,}".lstrip()

    @property
    def spelt(self) -> str:
        """The mean with its interval, in a sentence."""
        return f"{exact(self.mean)} {self.words}".rstrip()


def esc(text: Any) -> str:
    """Escapes any value as HTML text; control characters are shown as U+FFFD."""
    return html.escape(str(text).translate(CONTROLS), quote=True)


def amount(value: float | None) -> str:
    """Formats a number for a label: 0.25, 1,200, 35k, 2.5M; None is a dash."""
    if value is None:
        return "–"
    short = float(f"{value:.3g}")  # first, so that 999,999 is 1M
    if not 1000 <= abs(short) < 1e15:
        return f"{short or 0:g}"
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(short) >= max(unit, 1e4):
            return f"{short / unit:,g}{name}"
    return f"{value:,.0f}"


def exact(value: float) -> str:
    """Formats a number for a table: more digits than `amount`."""
    if abs(value) >= 1e15:  # of a loss that diverges
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}"


def labels(marks: Sequence[float]) -> list[str]:
    """Formats ticks with just enough digits to distinguish them."""
    step = min((after - before for before, after in itertools.pairwise(marks)), default=1.0)
    short = [amount(mark) for mark in marks]
    if step >= 1 and len(set(short)) == len(marks):
        return short
    digits = next((places for places in range(9) if abs(round(step, places) - step) < step / 100), 9)
    return [f"{mark:,.{digits}f}" if mark else "0" for mark in marks]


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round numbers from at most `low` to at least `high`."""
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # twelve digits would not distinguish the ticks
        high = low + (abs(low) or 1.0)
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def in_words(count: int) -> str:
    """A number in words, such as 1.5 million."""
    short = float(f"{count:.3g}")  # first, so that 999,999,999 is 1 billion
    for size, word in ((1e9, "billion"), (1e6, "million")):
        if count >= 1e6 and short >= size:
            return f"{short / size:,g} {word}"
    return f"{count:,}"


def duration(seconds: float | None) -> str:
    """A duration in words, such as 12 minutes; None is a dash."""
    if seconds is None:
        return "–"
    if seconds < 90:
        return f"{seconds:.0f} second{'s' * (round(seconds) != 1)}"
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def machine_words(machine: Mapping[str, Any], short: bool = False) -> str:
    """A machine of `system.machine.describe` in a few words, as HTML; "" if it is not known. `short`: no processor."""
    if not machine.get("processor"):
        return ""
    device, cores = machine.get("device") or "", machine.get("cores")
    devices = f"{machine.get('devices', 1)} × {device}" if device and "cpu" not in device.lower() else ""
    processor = "" if short else machine["processor"]
    counted = f"{cores} core{'s' * (cores != 1)}" if cores else ""
    return esc(", ".join(filter(None, (devices, processor, counted))))


# ---- figures as CSV, in a link that contains the file, so that it works offline

FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\n]")
NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?(e[+-]?\d+)?")
TAG = re.compile(r"<[^>]*>")
PLAIN = ",;:()[]!*/?@$|"  # characters that a link need not escape


Sheet = tuple[Sequence[str], Iterable[Sequence[Any]]]  # head and rows: numbers, texts, and None for an empty cell


def of_intervals(rows: Iterable[tuple[str, Sequence[Interval | None]]], names: Sequence[str]) -> Sheet:
    """A sheet of intervals, one row per figure and name; from rows of (figure, one interval per name)."""
    values = [(figure, *pair) for figure, intervals in rows for pair in zip(names, intervals, strict=True)]
    empty = [None] * len(Interval._fields)
    return ("figure", "of", *Interval._fields), [(figure, name, *(one or empty)) for figure, name, one in values]


def csv_link(sheet: Sheet) -> str:
    """A link to the sheet as a CSV file, as HTML."""
    file, (head, rows) = io.StringIO(), sheet
    csv.writer(file, lineterminator="\r\n").writerows(map(_harmless, row) for row in (head, *rows))
    address = f"data:text/csv;charset=utf-8,{quote(file.getvalue(), safe=PLAIN, errors='replace')}"
    return f'<p class="csv"><a href="{esc(address)}" download="figures.csv">CSV</a></p>'


def _harmless(value: Any) -> Any:
    """The value as a cell that a spreadsheet does not evaluate as a formula: captions and answers are not trusted."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value).translate(CONTROLS)
    if NUMBER.fullmatch(text):
        return text.replace(",", "")
    return f"'{text}" if FORMULA.match(text) else text


def asset(name: str) -> str:
    """The text of a style, script or element in `pages/assets`."""
    return (Path(__file__).parent / "assets" / name).read_text(encoding="utf-8")


def page(title: str, body: Iterable[str], scripts: Sequence[str] = ()) -> str:
    """An HTML file: a title, a body of HTML, and scripts of `pages/assets` at its end."""
    texts = [asset(name) for name in ("charts.js", *scripts)]
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts)
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {hashes}"
    return asset("page.html").format(
        policy=policy, title=esc(title), style=asset("page.css"), body="\n".join(body),
        scripts="".join(f"\n<script>{text}</script>" for text in texts),
    )  # fmt: skip


def data_script(name: str, value: Any) -> str:
    """A script element with a value as JSON, escaped so that the value cannot close the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return f'<script type="application/json" id="{esc(name)}">{text}</script>'


def tiles(values: Iterable[tuple[object, str]]) -> str:
    """A row of tiles with key figures, from pairs (value, name) whose value is known; with a link to them as CSV."""
    rows = [(what, value) for value, what in values if value]
    inner = "".join(f'<div class="tile"><b>{esc(value)}</b><span>{esc(what)}</span></div>' for what, value in rows)
    return f'<div class="tiles">{inner}</div>{csv_link((("figure", "value"), rows)) if rows else ""}'


def share_bar(shares: Sequence[tuple[str, float, str]], thin: bool = False) -> str:
    """One bar cut into parts, with a legend and a link to the shares as CSV, from (name, share, colour variable)."""
    parts = legend = ""
    for name, share, colour in shares:
        words, paint = f"{esc(name)} {share:.1%}", f"background:var(--{colour})"
        parts += f'<div style="width:{share:.3%};{paint}" title="{words}"></div>' if share > 0 else ""
        legend += f'<span><i style="{paint}"></i>{words}</span>'
    link = csv_link((("part", "share"), [(name, round(share, 6)) for name, share, _ in shares])) if shares else ""
    return f'<div class="bar{" thin" if thin else ""}">{parts}</div><div class="legend">{legend}</div>{link}'


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Iterable[int] = (),
    *,
    kind: str = "",
    sheet: Sheet | None = None,
) -> str:
    """A table, with a link to it as CSV; cells are HTML, the names of the columns are text.

    `numbers`: columns to align right. `kind`: a class of assets/page.css: `fits` for a narrow table, `figures` for one
    whose cells are stacked on a phone, each with the name of its column. `sheet`: the CSV, if not the cells' text.
    """
    right, rows = set(numbers), list(rows)
    mark = [' class="number"' if index in right else "" for index in range(len(head))]
    top = "".join(f"<th{side}>{esc(name)}</th>" for name, side in zip(head, mark, strict=True))
    if kind == "figures":
        mark = [f' data-of="{esc(name)}"' if name else "" for name in head]
    cells = ("".join(f"<td{side}>{cell}</td>" for cell, side in zip(row, mark, strict=True)) for row in rows)
    body, named = "".join(f"<tr>{row}</tr>" for row in cells), f' class="{kind}"' if kind else ""
    sheet = sheet or (head, [[html.unescape(TAG.sub(" ", cell)).strip() for cell in row] for row in rows])
    link = csv_link(sheet) if any(head) else ""  # without names it has no figures
    return f'<div class="scroll"><table{named}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>{link}'


def quoted(caption: str) -> str:
    """A caption in the font of the game; "(no message)" if it is empty."""
    return f"<code>{esc(caption)}</code>" if caption else '<i class="soft">(no message)</i>'


def cell(interval: Interval | None, more: str = "") -> str:
    """A mean with its interval, and `more` words after it, as a cell of a table."""
    if interval is None:
        return '<span class="soft">–</span>'
    return f'<b>{exact(interval.mean)}</b> <span class="soft">{interval.words}{more}</span>'


def noted(what: str, note: str) -> str:
    """HTML with a note below it, if there is one."""
    return f"{what}<br><small class=soft>{esc(note)}</small>" if note else what


def folded(summary: str, text: str) -> str:
    """A long text behind a summary, shown on a click."""
    return f"<details><summary>{esc(summary)}</summary><pre>{esc(text)}</pre></details>"
