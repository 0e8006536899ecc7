"""Reads the verdict in what a model wrote.

The pattern accepts what the published one accepts, so that answers are read as the paper's were: the word "best", then
"description" or "message", then at most one other word, then 1, 2, None or none. The first match counts.
"""

from __future__ import annotations

import re

VERDICT = re.compile(
    r"(?i:best)_*\s*(?i:description|message)"  # the key, as asked for or as people write it
    r"\W*"  # quotes, brackets, colons, spaces
    r"(?:\w+\s*)?"  # "is"
    r"(1|2|None|none)"
)
SECOND_BETTER = {"1": 0.0, "2": 1.0, "None": 0.5, "none": 0.5}


def read_verdict(text: str) -> float | None:
    """How sure it is that the second is better: 0, 1, or 1/2 for neither. None where there is no verdict."""
    match = VERDICT.search(text)
    return SECOND_BETTER[match[1]] if match else None
