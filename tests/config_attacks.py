"""What is tried with values of a config: every kind of value that somebody could give."""

import copy
import math
from collections.abc import Callable

from conftest import get_config
from ml_collections import ConfigDict

from motif_jax.config.table import Kind, List, Number, Text, Whole
from motif_jax.structs import UserError

WHOLE = get_config().to_dict()
SECTIONS = {name: ConfigDict(found) if isinstance(found, dict) else found for name, found in WHOLE.items()}
NUMBERS = (0, 1, -1, 10**20, 0.0, -0.0, 0.5, 5e-324, 1.7e308, math.inf, -math.inf, math.nan)
TEXTS = ("", "x", "1", "9" * 5000, "\0", "\udce9", "é", "x\n\x1b[31m", "\N{SUPERSCRIPT TWO}", "nan", ":", "http://[")
OTHERS = (None, True, 3, 3.5, "3", b"3", (), [], (3,), ("x",), (None,), object())


def attacks(kind: Kind) -> list[object]:
    """What is tried with a value: its own limits, what lies beyond them, and what is of no use to it."""
    found = list(OTHERS)
    if isinstance(kind, Whole):
        return [*found, *NUMBERS, kind.low, kind.low - 1, kind.high, kind.high + 1]
    if isinstance(kind, Number):
        limits = [limit for limit in (kind.low, kind.high) if limit is not None]
        return [*found, *NUMBERS, *limits, *(math.nextafter(limit, side) for limit in limits for side in (-9e9, 9e9))]
    if isinstance(kind, List):
        return [*found, *((item,) for item in attacks(kind.of))]
    return [*found, *NUMBERS, *TEXTS, *(kind.choices if isinstance(kind, Text) else ())]


def config_with(key: str, value: object, **others: object) -> ConfigDict:
    """The config with one value replaced, whatever type it has; configs share the sections that are not changed."""
    changes = {**{name.replace("__", "."): other for name, other in others.items()}, key: value}
    changed = copy.deepcopy({section: WHOLE[section] for section in (name.partition(".")[0] for name in changes)})
    for name, given in changes.items():
        *sections, last = name.split(".")
        inner = changed
        for section in sections:
            inner = inner[section]
        inner[last] = given
    return ConfigDict(SECTIONS | changed)


def refusal(attempt: Callable[[], object]) -> str:
    """The sentence that refuses; "" if nothing does."""
    try:
        attempt()
    except UserError as error:
        return str(error)
    return ""
