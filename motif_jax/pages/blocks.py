"""Blocks of pages: data that goes to JSON and comes back, and that only `pages` draws as HTML; and formats of figures.

A page is one self-contained file, dark and light, readable on a phone. All texts go through `esc`. As a second barrier,
the page's content security policy forbids all scripts but ours, and loading anything.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from motif_jax.structs import Meaning

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
    """A machine of `system.machine.describe` in a few words; "" if it is not known. `short`: no processor."""
    if not machine.get("processor"):
        return ""
    device, cores = machine.get("device") or "", machine.get("cores")
    devices = f"{machine.get('devices', 1)} × {device}" if device and "cpu" not in device.lower() else ""
    processor = "" if short else machine["processor"]
    counted = f"{cores} core{'s' * (cores != 1)}" if cores else ""
    return ", ".join(filter(None, (devices, processor, counted)))


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


# ---- blocks


class Block:
    """A part of a page, or of a text on it: a frozen dataclass of numbers, texts, tuples and other blocks."""

    def __init_subclass__(cls) -> None:
        if cls.__name__ in KINDS:
            raise TypeError(f"there is another block with the name {cls.__name__!r}")
        KINDS[cls.__name__] = cls

    def __post_init__(self) -> None:
        for name, value in [*vars(self).items()]:
            object.__setattr__(self, name, _frozen(value))

    def html(self) -> str:
        raise NotImplementedError


Text = str | Block | Sequence[Any]  # plain text, marked text, or several of these in a row
KINDS: dict[str, Any] = {"Interval": Interval, "Meaning": Meaning, "float": lambda x: float(x)}


def _frozen(value: Any) -> Any:
    """The value with tuples in place of arrays, lists and iterators, and of mappings, as pairs."""
    value = value.tolist() if hasattr(value, "tolist") else value  # of NumPy
    if isinstance(value, str | int | float | bool | Block | None):
        return value
    if hasattr(value, "_fields"):
        return type(value)(*map(_frozen, value))
    return tuple(map(_frozen, value.items() if isinstance(value, Mapping) else value))


def to_data(value: Any) -> Any:
    """The value as JSON, with the names of its blocks; see `from_data`."""
    if isinstance(value, Block) or hasattr(value, "_fields"):
        fields = vars(value) if isinstance(value, Block) else value._asdict()
        return {"is": type(value).__name__} | {name: to_data(one) for name, one in fields.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"is": "float", "x": str(value)}
    return [to_data(one) for one in value] if isinstance(value, tuple | list) else value


def from_data(data: Any) -> Any:
    """The value that `to_data` turned into JSON; in place of a block that is not known here, a line says so."""
    if isinstance(data, dict):
        values = {name: from_data(one) for name, one in data.items() if name != "is"}
        if "is" not in data:
            return values
        kind = KINDS.get(data["is"])
        return kind(**values) if kind else Paragraph(f"{data['is']}: a block of a plugin that is missing", "absent")
    return tuple(map(from_data, data)) if isinstance(data, list) else data


def esc(text: Any) -> str:
    """Escapes any value as HTML text; control characters are shown as U+FFFD."""
    return html.escape(str(text).translate(CONTROLS), quote=True)


def drawn(text: Text) -> str:
    """The text as HTML."""
    if isinstance(text, Block):
        return text.html()
    return esc(text) if isinstance(text, str | int | float) else "".join(map(drawn, text))


MARKS = {
    "strong": "b", "code": "code", "soft": 'span class="soft"', "empty": 'i class="soft"', "small": "small class=soft",
    "note": "small class=soft", "better": 'span class="better"', "worse": 'span class="worse"',
}  # fmt: skip


@dataclass(frozen=True)
class Span(Block):
    """Text with a mark of MARKS, or in a `colour` of assets/page.css; `shade`: how dark its background is."""

    of: Text
    mark: str = "strong"
    colour: str = ""
    shade: float | None = None

    def html(self) -> str:
        tag = MARKS[self.mark]
        if self.colour:
            tag += f' style="color:var(--{self.colour})"'
        if self.shade is not None:
            mixed = f"color-mix(in srgb, var(--first) {self.shade:.0%}, transparent)"
            tag = f'span style="background:{mixed};padding:.2em .5em"'
        return f"{'<br>' * (self.mark == 'note')}<{tag}>{drawn(self.of)}</{tag.partition(' ')[0]}>"


def soft(text: Text) -> Span:
    """Text in a paler colour."""
    return Span(text, "soft")


def code(text: Text) -> Span:
    """Text in the font of the game."""
    return Span(text, "code")


@dataclass(frozen=True)
class Link(Block):
    """A text that leads to another file."""

    of: Text
    to: str

    def html(self) -> str:
        return f'<a href="{esc(self.to)}">{drawn(self.of)}</a>'


def quoted(caption: str) -> Span:
    """A caption in the font of the game; "(no message)" if it is empty."""
    return code(caption) if caption else Span("(no message)", "empty")


def cell(interval: Interval | None, more: str = "") -> Text:
    """A mean with its interval, and `more` words after it, as a cell of a table."""
    if interval is None:
        return soft("–")
    return Span(exact(interval.mean)), " ", soft(interval.words + more)


def noted(what: Text, note: str) -> Text:
    """A text with a note below it, if there is one."""
    return (what, Span(note, "note")) if note else what


def joined(texts: Iterable[Text], between: str) -> Text:
    """The texts in a row."""
    return [part for text in texts for part in (between, text)][1:]


@dataclass(frozen=True)
class Paragraph(Block):
    """A text of its own."""

    of: Text
    kind: str = ""  # a class of assets/page.css: soft, absent, lead or eyebrow

    def html(self) -> str:
        return f"<p{_class(self.kind)}>{drawn(self.of)}</p>"


@dataclass(frozen=True)
class Heading(Block):
    """A heading; the title of a page has level 1, that of a part level 2."""

    of: Text
    level: int = 3

    def html(self) -> str:
        return f"<h{self.level}>{drawn(self.of)}</h{self.level}>"


@dataclass(frozen=True)
class Listed(Block):
    """A list of texts."""

    texts: Sequence[Text]

    def html(self) -> str:
        return f"<ul>{''.join(f'<li>{drawn(text)}</li>' for text in self.texts)}</ul>"


@dataclass(frozen=True)
class Verbatim(Block):
    """Text with its own lines."""

    of: str

    def html(self) -> str:
        return f"<pre>{esc(self.of)}</pre>"


@dataclass(frozen=True)
class Folded(Block):
    """A long text, or a block, behind a summary; shown on a click."""

    summary: str
    of: str | Block

    def html(self) -> str:
        inner = self.of if isinstance(self.of, Block) else Verbatim(self.of)
        return f"<details><summary>{esc(self.summary)}</summary>{inner.html()}</details>"


GROUPS = {"wide": 'pair" style="grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr))'}


@dataclass(frozen=True)
class Box(Block):
    """Blocks beside each other, or in a box: `charts`, `pair` or `card` of assets/page.css; or `wide` ones."""

    blocks: Sequence[Block]
    kind: str = ""

    def html(self) -> str:
        return f"<div{_class(GROUPS.get(self.kind, self.kind))}>{''.join(block.html() for block in self.blocks)}</div>"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


@dataclass(frozen=True)
class Tiles(Block):
    """A row of tiles with key figures, from pairs (value, name) whose value is known; with a link to them as CSV."""

    values: Iterable[tuple[object, str]]

    def html(self) -> str:
        rows = [(what, value) for value, what in self.values if value]
        inner = "".join(f'<div class="tile"><b>{esc(value)}</b><span>{esc(what)}</span></div>' for what, value in rows)
        return f'<div class="tiles">{inner}</div>{csv_link((("figure", "value"), rows)) if rows else ""}'


@dataclass(frozen=True)
class ShareBar(Block):
    """One bar cut into parts, with a legend and a link to the shares as CSV, from (name, share, colour variable)."""

    shares: Sequence[tuple[str, float, str]]
    thin: bool = False

    def html(self) -> str:
        parts = legend = ""
        for name, share, colour in self.shares:
            words, paint = f"{esc(name)} {share:.1%}", f"background:var(--{colour})"
            parts += f'<div style="width:{share:.3%};{paint}" title="{words}"></div>' if share > 0 else ""
            legend += f'<span><i style="{paint}"></i>{words}</span>'
        rows = [(name, round(share, 6)) for name, share, _ in self.shares]
        link = csv_link((("part", "share"), rows)) if rows else ""
        return f'<div class="bar{" thin" if self.thin else ""}">{parts}</div><div class="legend">{legend}</div>{link}'


@dataclass(frozen=True)
class Table(Block):
    """A table, with a link to it as CSV.

    `numbers`: columns to align right. `kind`: a class of assets/page.css: `fits` for a narrow table, `figures` for one
    whose cells are stacked on a phone, each with the name of its column. `sheet`: the CSV, if not the cells' text.
    """

    head: Sequence[str]
    rows: Iterable[Sequence[Text]]
    numbers: Iterable[int] = ()
    kind: str = ""
    sheet: Sheet | None = None

    def html(self) -> str:
        right, rows, head = {*self.numbers}, [[*map(drawn, row)] for row in self.rows], self.head
        mark = [' class="number"' if index in right else "" for index in range(len(head))]
        top = "".join(f"<th{side}>{esc(name)}</th>" for name, side in zip(head, mark, strict=True))
        if self.kind == "figures":
            mark = [f' data-of="{esc(name)}"' if name else "" for name in head]
        cells = ("".join(f"<td{side}>{cell}</td>" for cell, side in zip(row, mark, strict=True)) for row in rows)
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        sheet = self.sheet or (head, [[html.unescape(TAG.sub(" ", cell)).strip() for cell in row] for row in rows])
        link = csv_link(sheet) if any(head) else ""  # without names it has no figures
        shown = f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>"
        return f'<div class="scroll"><table{_class(self.kind)}>{shown}</table></div>{link}'


# ---- the first screen of a report, and its parts


@dataclass(frozen=True)
class Hero(Block):
    """The first screen: a line about the run, the title, one paragraph, and perhaps a block beside them."""

    eyebrow: Text
    title: Text
    lead: Text
    beside: Block | None = None

    def html(self) -> str:
        words = Paragraph(self.eyebrow, "eyebrow"), Heading(self.title, 1), Paragraph(self.lead, "lead")
        wide, beside = (" wide", self.beside.html()) if self.beside else ("", "")
        return f'<header class="hero{wide}"><div>{"".join(one.html() for one in words)}</div>{beside}</header>'


@dataclass(frozen=True)
class Contents(Block):
    """Links to the parts of these titles."""

    titles: Sequence[str]

    def html(self) -> str:
        links = "".join(f'<a href="#{anchor(title)}">{esc(title)}</a>' for title in self.titles)
        return f'<nav class="pages" aria-label="parts">{links}</nav>'


@dataclass(frozen=True)
class Part(Block):
    """Blocks under a title. `linked`: `Contents` links to it."""

    title: str
    blocks: Sequence[Block]
    linked: bool = False

    def html(self) -> str:
        name = f' id="{anchor(self.title)}"' if self.linked else ""
        body = (f"<section><h2{name}>{esc(self.title)}</h2>", *(one.html() for one in self.blocks), "</section>")
        return "\n".join(body)


def anchor(title: str) -> str:
    """The name of a part, for links, as HTML."""
    return esc(title.lower().replace(" ", "-"))


# ---- files


def asset(name: str) -> str:
    """The text of a style, script or element in `pages/assets`."""
    return (Path(__file__).parent / "assets" / name).read_text(encoding="utf-8")


def page(title: str, blocks: Iterable[Block], *, main: bool = False, player: bool = False) -> str:
    """An HTML file. `main`: narrow, as a text; `player`: with the style and the script of the player of replays."""
    texts = [asset(name) for name in ("charts.js", *["player.js"] * player)]
    body = [f"<style>{asset('player.css')}</style>"] * player + ["<main>"] * main + [block.html() for block in blocks]
    body += ["</main>"] * main
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
