"""Mode `score`: the model writes only the verdict, and the answer is computed from each verdict's probability.

P(second is better) = (p2 + p0 / 2) / (p1 + p2 + p0), where p1, p2 and p0 are the probabilities of the tokens that begin
these verdicts. For a single caption, P(helpful) = p1 / (p1 + p0). The sum of the probabilities is the answer's mass: a
small mass means that the model tends to write something else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from motif_jax.annotation.annotator import QuestionAnswer

VERDICTS = ("1", "2", "0")  # first, second, neither
MIN_MASS = 1e-3  # with less, the probabilities carry no information about the question
OPENING = "("  # prefills the model's answer if the engine allows it, so that the next token is the verdict


def verdict_of_token(token: str) -> str | None:
    """The verdict that a token begins, or None. Tokenizers write a leading space in several ways."""
    bare = token.strip(" \t\n(\"'▁Ġ:*")
    return bare if bare in VERDICTS else None


def shares(logprobs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The probability of each verdict, given tokens and their log-probabilities."""
    found = dict.fromkeys(VERDICTS, 0.0)
    for token, logprob in logprobs:
        verdict = verdict_of_token(token)
        if verdict is not None:
            found[verdict] += math.exp(logprob)
    return found


def to_answer(
    found: Mapping[str, float], prompt_tokens: int, cached_tokens: int, output_tokens: int, one: bool = False
) -> QuestionAnswer:
    """Computes an answer from the probabilities of the verdicts; `one`: on a single caption."""
    mass = found["1"] + found["0"] if one else sum(found.values())
    if not mass >= MIN_MASS:  # also NaN
        verdicts = "(1) and (0)" if one else "(1), (2) and (0)"
        said = f"no verdict: the model gives {verdicts} a probability of {mass:.2g} together"
        return QuestionAnswer(None, said, mass, prompt_tokens, cached_tokens, output_tokens)
    yes = (found["1"] if one else found["2"] + found["0"] / 2) / mass
    return QuestionAnswer(min(max(yes, 0.0), 1.0), "", min(mass, 1.0), prompt_tokens, cached_tokens, output_tokens)
