"""The CSV files in docs/results/, made from the tables of its pages, so that each number is written once.

    python tests/result_tables.py    writes them

A page names the file, `[name.csv](name.csv)`, before the table that it holds.
"""

import csv
import io
import itertools
import re
from pathlib import Path

RESULTS = Path(__file__).parent.parent / "docs/results"
COMMAND = "python tests/result_tables.py"
NAMED = re.compile(r"\[(\w+\.csv)\]\(\1\)")
NUMBER = r"-?\d[\d,]*(?:\.\d+)?"
INTERVAL = re.compile(rf"({NUMBER}) \[({NUMBER}), ({NUMBER})\]")


def result_tables() -> dict[str, str]:
    """The contents of each CSV file, by its name."""
    tables = {}
    for page in sorted(RESULTS.glob("*.md")):
        text = page.read_text()
        for named in NAMED.finditer(text):
            after = text[named.end() :]
            table = after[after.index("\n|") + 1 :].partition("\n\n")[0]
            assert named[1] not in tables, f"{named[1]} is named twice"
            tables[named[1]] = _as_csv(table.splitlines())
    return tables


def _as_csv(lines: list[str]) -> str:
    header, _, *rows = ([_plain(cell) for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines)
    for above, row in itertools.pairwise(rows):
        row[0] = row[0] or above[0]  # an empty first cell repeats the one above
    columns = []
    for name, cells in zip(header, zip(*rows, strict=True), strict=True):
        bounds = [INTERVAL.fullmatch(cell) for cell in cells]
        means = [_number(found[1] if found else cell) for found, cell in zip(bounds, cells, strict=True)]
        columns.append([name or "row", *means])
        if any(bounds):
            for which, group in (("low", 2), ("high", 3)):
                columns.append([f"{name}, {which}", *(_number(found[group]) if found else "" for found in bounds)])
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(zip(*columns, strict=True))
    return file.getvalue()


def _plain(cell: str) -> str:
    """The text of a cell, without the marks of Markdown."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell).replace("**", "").replace("`", "").strip()


def _number(cell: str) -> str:
    return cell.replace(",", "") if re.fullmatch(NUMBER, cell) else cell


def main() -> None:
    """Writes all files."""
    for name, text in result_tables().items():
        (RESULTS / name).write_text(text)


if __name__ == "__main__":
    main()
