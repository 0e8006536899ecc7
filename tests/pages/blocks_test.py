"""Blocks are data: they go to JSON and come back, draw the same HTML, and only `pages` writes it."""

import ast
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

import motif_jax
from motif_jax.pages import blocks, charts
from motif_jax.pages.blocks import Block, Interval, Paragraph, Span, Table, cell, drawn, from_data, noted, to_data
from motif_jax.pages.charts import Band, Level

pytestmark = pytest.mark.quick
PACKAGE = Path(motif_jax.__file__).parent
INTERVAL = Interval(1.0, 0.5, math.inf)
POINTS = [(float(x), x % 7 / 3) for x in range(500)]
BLOCKS: list[Block] = [
    Paragraph(["a", Span(("b", blocks.code("<c>"))), blocks.soft("d")], "soft"),
    Paragraph(noted(blocks.Link("a", "../b"), "note")),
    blocks.Heading("title", 2),
    blocks.Folded("more", "line\nline"),
    blocks.Folded("more", Table(("a",), [["1"]])),
    blocks.Listed(name for name in "ab"),
    blocks.Box([blocks.Tiles([(np.float32(0.5), "half"), (None, "unknown")]), blocks.Verbatim("x")], "pair"),
    blocks.ShareBar([("a", np.float64(0.25), "first"), ("b", 0.75, "tie")]),
    Table(("", "b"), [[cell(INTERVAL), charts.Track(INTERVAL, 0.0, 2.0, "first", [1.0])]], {1}),
    Table(("a",), [], kind="fits", sheet=(("b",), [(None,)])),
    Table(("a",), [[Span("0.5", shade=0.1)], [Span("x", colour="good")], [charts.spark(range(100))]]),
    charts.Curves({"is": POINTS, "b": [(0, math.nan), (1, 2)]}, "steps", 0.0, title="t", colours={"is": "a", "b": "b"},
                  levels=[Level("random", INTERVAL)], bands={"b": Band([0, 1], [1, 1], [2, 2])}),
    charts.Columns(np.arange(3), ("low", "high"), [(0.5, "middle")], of=("a", "b", "c")),
    charts.Bars([("a", "note", (INTERVAL, None))], ("one", "two")),
    charts.Letters([("a", "good", "+1.00", (((("a", 0.5),), "tie"),))]),
]  # fmt: skip


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: type(block).__name__)
def test_a_block_comes_back_from_json(block):
    read = from_data(json.loads(json.dumps(to_data(block), allow_nan=False)))
    assert read == block
    assert read.html() == block.html()


def test_a_block_that_is_not_known_leaves_a_line():
    block = from_data({"is": "OfAPlugin", "texts": ["a", {"is": "Paragraph", "of": "b"}]})
    assert drawn(block) == '<p class="absent">OfAPlugin: a block of a plugin that is missing</p>'
    with pytest.raises(TypeError, match="another block with the name 'Paragraph'"):
        type("Paragraph", (Block,), {})


def test_only_pages_write_html():
    markup = re.compile("</(p|h[1-6]|div|span|small|code|pre|table|section|details)>|class=")
    for file in sorted({*PACKAGE.rglob("*.py")} - {*PACKAGE.rglob("pages/*.py")}):
        texts = (node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant))
        assert not [text for text in texts if isinstance(text, str) and markup.search(text)], file
