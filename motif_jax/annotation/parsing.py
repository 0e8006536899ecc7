"""Reads the verdict in what a model wrote: of two captions, or of one.

Of two captions, the pattern accepts what the published one accepts, so that answers are read as the paper's were: the
word "best", then "description" or "message", then at most one other word, then 1, 2, None or none. The first match
counts. A match with the key that the prompt asks for goes before a match with the key of the other published prompt.

Of one caption, only the field ("helpful": yes) or ("helpful": no) counts, and of several the last: an analysis may
quote what it was asked to write, or weigh one answer before it gives the other.
"""

from __future__ import annotations

import re

KEYS = ("best_description", "best_message")  # of the published prompts
SECOND_BETTER = {"1": 0.0, "2": 1.0, "None": 0.5, "none": 0.5}
HELPFUL = "helpful"  # the key of a verdict on one caption
LABEL = re.compile(rf"(?i:{HELPFUL})[\"'*`]*\s*[:=]\s*[\"'*`]*(?i:(yes|no)\b)")
LONGEST_WORD = 32  # without a bound, reading "bestmessagebestmessage..." takes a time that grows with its square


def _pattern(key: str) -> re.Pattern[str]:
    best, noun = key.split("_")
    return re.compile(
        rf"(?i:{best})_*\s*(?i:{noun})"  # the key, as asked for or as people write it
        r"\W*"  # quotes, brackets, colons, spaces
        rf"(?:\w{{1,{LONGEST_WORD}}}\s*)?"  # "is"
        r"(1|2|None|none)"
    )


PATTERNS = {key: _pattern(key) for key in KEYS}


def read_verdict(text: str, key: str) -> float | None:
    """The probability of yes by the verdict in a text: 0, 1, or 1/2 for neither. None where there is no verdict.

    Args:
      text: what the model wrote.
      key: one of KEYS, the one that the prompt asks for; or HELPFUL, for a caption alone.
    """
    if key == HELPFUL:
        return read_label(text)
    for name in sorted(KEYS, key=lambda other: other != key):
        if match := PATTERNS[name].search(text):
            return SECOND_BETTER[match[1]]
    return None


def read_label(text: str) -> float | None:
    """Whether a caption is helpful, by the verdict in a text: 1 or 0. None where there is no verdict."""
    found = LABEL.findall(text)
    return float(found[-1].lower() == "yes") if found else None
