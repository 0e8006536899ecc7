"""The figures of a page as CSV: a link beside a table or a chart that contains the file, so that it works offline.

Numbers have no thousands separators. A text that a spreadsheet would evaluate as a formula gets an apostrophe in front,
because captions, names of models and answers are not trusted.
"""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from motif_jax.pages.formats import CONTROLS, Interval, esc

FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\n]")
NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?(e[+-]?\d+)?")
TAG = re.compile(r"<[^>]*>")
PLAIN = ",;:()[]!*/?@$|"  # characters that a link need not escape


class Sheet(NamedTuple):
    """A table of plain values: numbers, texts, and None for an empty cell."""

    head: Sequence[str]
    rows: Sequence[Sequence[Any]]


def of_cells(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Sheet:
    """The sheet of a table whose cells are HTML."""
    return Sheet(head, [[html.unescape(TAG.sub(" ", cell)).strip() for cell in row] for row in rows])


def of_intervals(rows: Iterable[tuple[str, Sequence[Interval | None]]], names: Sequence[str]) -> Sheet:
    """A sheet of intervals, one row per figure and name; from rows of (figure, one interval per name)."""
    return Sheet(
        ("figure", "of", *Interval._fields),
        [
            (figure, name, *(interval or Interval(None)))  # type: ignore[arg-type]
            for figure, intervals in rows
            for name, interval in zip(names, intervals, strict=True)
        ],
    )


def csv_link(sheet: Sheet) -> str:
    """A link to the sheet as a CSV file, as HTML."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\r\n").writerows(
        [_harmless(value) for value in row] for row in (sheet.head, *sheet.rows)
    )
    address = f"data:text/csv;charset=utf-8,{quote(file.getvalue(), safe=PLAIN, errors='replace')}"
    return f'<p class="csv"><a href="{esc(address)}" download="figures.csv">CSV</a></p>'


def _harmless(value: Any) -> Any:
    """The value as a cell that a spreadsheet does not evaluate."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value).translate(CONTROLS)
    if NUMBER.fullmatch(text):
        return text.replace(",", "")
    return f"'{text}" if FORMULA.match(text) else text
