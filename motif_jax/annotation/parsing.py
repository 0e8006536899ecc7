"""Parses the verdict in a model's text, on two captions or on one.

On two captions, the pattern accepts the same texts as the published one: the word "best", then "description" or
"message", then at most one other word, then 1, 2, None or none. The first match counts. A match with the prompt's own
key takes precedence over one with the key of the other published prompt.

On one caption, only the field ("helpful": yes) or ("helpful": no) counts, and the last match decides: an analysis may
quote its instructions, or weigh one answer before it gives the other.

A user's prompt may ask for other words, and then has patterns for them. Again the first match decides on two captions,
and the last match on one.

Mode `score`: the model writes only the verdict, and the answer is computed from each verdict's probability.

P(second is better) = (p2 + p0 / 2) / (p1 + p2 + p0), where p1, p2 and p0 are the probabilities of the tokens that begin
these verdicts. For a single caption, P(helpful) = p1 / (p1 + p0). The sum of the probabilities is the answer's mass: a
small mass means that the model tends to write something else.
"""

from __future__ import annotations

import collections
import itertools
import math
import re
from collections.abc import Iterable, Mapping

from motif_jax.annotation.annotator import QuestionAnswer

KEYS = ("best_description", "best_message")  # of the published prompts
SECOND_BETTER = {"1": 0.0, "2": 1.0, "None": 0.5, "none": 0.5}
HELPFUL = "helpful"  # the key of a verdict on one caption
LABEL = re.compile(rf"(?ai:{HELPFUL})[\"'*`]*\s*[:=]\s*[\"'*`]*(?ai:(yes|no))\b")
LONGEST_WORD = 32  # without a bound, parsing "bestmessagebestmessage..." takes quadratic time

OWN_WORDS: dict[bool, dict[str, float]] = {  # P(yes) of the user's patterns by name; True: of one caption
    True: {"yes": 1.0, "no": 0.0},
    False: {"first": 0.0, "second": 1.0, "neither": 0.5},
}
LONGEST_PATTERN, MOST_REPEATS, MOST_WAYS = 200, 1000, 1000
SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]")
TOKEN = re.compile(  # a part of a regular expression that can match in several ways; the first two only skip text
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?"
    r"|(?:(?P<group>\))\s*)?(?:(?P<endless>[*+]|\{\d*,\})|\{(?P<low>\d*)(?:,(?P<high>\d+))?\}|(?P<maybe>\?))|(?P<either>\|)",
    re.DOTALL,
)


def _pattern(key: str) -> re.Pattern[str]:
    best, noun = key.split("_")
    return re.compile(
        rf"(?ai:{best})_*\s*(?ai:{noun})"  # the key, with or without underscore, in ASCII
        r"\W*"  # quotes, brackets, colons, spaces
        rf"(?:\w{{1,{LONGEST_WORD}}}\s*)?"  # "is"
        r"(1|2|None|none)"
    )


PATTERNS = {key: _pattern(key) for key in KEYS}


def read_verdict(text: str, key: str) -> float | None:
    """P(yes) by the verdict in a model's text: 0, 1, or 1/2 for neither; None without a verdict.

    `key` is the one that the prompt asks for: one of KEYS, or HELPFUL for a single caption.
    """
    if key == HELPFUL:
        return read_label(text)
    for name in sorted(KEYS, key=lambda other: other != key):
        if match := PATTERNS[name].search(text):
            return SECOND_BETTER[match[1]]
    return None


def read_label(text: str) -> float | None:
    """1 or 0 by the verdict in a text on whether a caption is helpful; None without a verdict."""
    labels = LABEL.findall(text)
    return float(labels[-1].lower() == "yes") if labels else None


def read_own(text: str, patterns: Mapping[str, str], one: bool) -> float | None:
    """P(yes) by the patterns of a prompt; None if no pattern matches.

    `patterns`: by names of OWN_WORDS; they have passed `pattern_problem`. Of two matches at the same position, the
    longer one counts.
    """
    spans: list[tuple[int, int, str]] = []  # for each pattern start and end of its first or last match, and its name
    for name, pattern in patterns.items():
        matches = re.finditer(pattern, text)
        kept = collections.deque(matches, maxlen=1) if one else itertools.islice(matches, 1)
        spans += [(*match.span(), name) for match in kept]
    if not spans:
        return None
    if one:
        _, _, chosen = max(spans, key=lambda span: (span[1], -span[0]))
    else:
        _, _, chosen = min(spans, key=lambda span: (span[0], -span[1]))
    return OWN_WORDS[one][chosen]


def is_plain(pattern: str) -> bool:
    """Whether a pattern is a literal text, so that it can be written as an answer."""
    return not SPECIAL.search(pattern)


def pattern_problem(pattern: str) -> str:
    """The problem of an invalid pattern, as the end of a sentence; "" for a valid one.

    `re` backtracks over all ways in which a pattern can match, so their number must be small.
    """
    if len(pattern) > LONGEST_PATTERN:
        return f"is longer than {LONGEST_PATTERN} characters"
    try:
        matches_nothing = re.search(pattern, "") is not None
    except (re.error, RecursionError, OverflowError) as error:
        return f"is not a regular expression: {error}"
    if matches_nothing:
        return "matches an empty text"
    ways = 1
    for token in TOKEN.finditer(pattern):
        low, high = int(token["low"] or 0), int(token["high"] or token["low"] or 0)
        if token["endless"]:
            return f"repeats without a bound: write {{0,20}} in place of {token['endless']}"
        if token["group"] and not token["maybe"]:
            return "repeats a group, which may take very long to read"
        ways *= 2 if token["maybe"] or token["either"] else high - low + 1
        if high > MOST_REPEATS or ways > MOST_WAYS:
            return f"can match in more than {MOST_WAYS:,} ways, which may take very long to read"
    return ""


# ---- mode score

VERDICTS = ("1", "2", "0")  # first, second, neither
MIN_MASS = 1e-3  # with less, the probabilities carry no information about the question
OPENING = "("  # prefills the model's answer if the engine allows it, so that the next token is the verdict


def verdict_of_token(token: str) -> str | None:
    """The verdict that a token begins, or None. Tokenizers write a leading space in several ways."""
    bare = token.strip(" \t\n(\"'▁Ġ:*")
    return bare if bare in VERDICTS else None


def verdict_probabilities(logprobs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The probability of each verdict, given tokens and their log-probabilities."""
    probabilities = dict.fromkeys(VERDICTS, 0.0)
    for token, logprob in logprobs:
        verdict = verdict_of_token(token)
        if verdict is not None:
            probabilities[verdict] += math.exp(logprob)
    return probabilities


def to_answer(
    probabilities: Mapping[str, float], prompt_tokens: int, cached_tokens: int, output_tokens: int, one: bool = False
) -> QuestionAnswer:
    """Computes an answer from the probabilities of the verdicts; `one`: on a single caption."""
    first, second, neither = (probabilities.get(verdict, 0.0) for verdict in VERDICTS)
    mass = first + neither if one else first + second + neither
    if not mass >= MIN_MASS:  # also NaN
        verdicts = "(1) and (0)" if one else "(1), (2) and (0)"
        said = f"no verdict: the model gives {verdicts} a probability of {mass:.2g} together"
        return QuestionAnswer(None, said, mass, prompt_tokens, cached_tokens, output_tokens)
    yes = (first if one else second + neither / 2) / mass
    return QuestionAnswer(min(max(yes, 0.0), 1.0), "", min(mass, 1.0), prompt_tokens, cached_tokens, output_tokens)
