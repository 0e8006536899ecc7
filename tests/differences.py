"""The lists of differences from the original systems in docs/, made from the tests that check them.

    python tests/differences.py    writes the lists into the pages

A test states the difference that it checks:

    @pytest.mark.differs("ilql", there="rewards become integers", here="rewards stay floats")

The arguments: the page; `there`, the original; `here`, this program; optionally `reference`, what the switch
`reference` of a config does about it. Tests are read as text and not imported.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGES = {"glam": "differences/glam.md", "ilql": "differences/ilql.md", "oni": "differences/oni.md"}  # below docs/
MARK = "pytest.mark.differs"
COMMAND = "python tests/differences.py"
BEGIN, END = f"<!-- begin: made by `{COMMAND}` from the tests -->\n", "<!-- end -->\n"


class Difference(NamedTuple):
    """One row of a list, as a test states it."""

    page: str
    there: str
    here: str
    reference: str = ""
    test: str = ""  # its name
    file: str = ""  # of the test, from the root


def differences() -> list[Difference]:
    """What all tests state, in the order of the tests."""
    files = sorted((ROOT / "tests").rglob("*_test.py"))
    return [found for file in files if f"@{MARK}(" in (text := file.read_text()) for found in _stated(file, text)]


def _stated(file: Path, text: str) -> Iterator[Difference]:
    for node in ast.parse(text).body:
        for mark in getattr(node, "decorator_list", []):
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == MARK:
                values = {word.arg: ast.literal_eval(word.value) for word in mark.keywords}
                (page,) = map(ast.literal_eval, mark.args)
                assert page in PAGES, f"{file} names the page {page}"
                yield Difference(page, **values, test=node.name, file=str(file.relative_to(ROOT)))


def with_list(page: str, text: str, found: list[Difference]) -> str:
    """The text of a page, with its list made again from these differences."""
    root = "../" * (PAGES[page].count("/") + 1)
    lines = [("original", "here", "test"), ("---",) * 3]
    lines += [_cells(one, root) for one in found if one.page == page]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"docs/{PAGES[page]} lacks the lines {BEGIN.strip()!r} and {END.strip()!r}")
    return f"{before}{BEGIN}{table}{END}{after}"


def _cells(one: Difference, root: str) -> tuple[str, str, str]:
    here = f"{one.here} (`reference`: {one.reference})" if one.reference else one.here
    there, here = (re.sub(r"(?<!\\)\|", r"\\|", text) for text in (one.there, here))
    return there, here, f"[`{one.test}`]({root}{one.file})"


def main() -> None:
    """Writes all lists."""
    found = differences()
    for page, path in PAGES.items():
        file = ROOT / "docs" / path
        file.write_text(with_list(page, file.read_text(), found))


if __name__ == "__main__":
    main()
