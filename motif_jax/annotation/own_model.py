"""Backend `model`: a language model in this process, by our own scoring, from a directory or a GGUF file.

The model is shown a question up to the bracket of its verdict, "(", and the probabilities of the next token are read:
1, 2 or 0 (neither). In mode rate they are the two words of the prompt, after its examples in one order and in the
other, and the log-odds are averaged. A pair is shown in both orders. With z the log-odds that the second caption is
better, and z' those of the turned question, which shows it first,

    P(second is better) = sigmoid((z - z') / 2)

so a model that prefers a place, whatever stands there, cancels itself out; the mean of two probabilities would not,
where the preference is strong. The beginning that all questions have in common is read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from motif_jax.annotation.annotator import Question, QuestionAnswer, batches_between_pauses
from motif_jax.annotation.parsing import MIN_MASS, OPENING, VERDICTS
from motif_jax.annotation.prompts import QuestionTemplate
from motif_jax.console import print_line
from motif_jax.language.chat import ChatFormat
from motif_jax.language.loaded import Language
from motif_jax.language.next_tokens import NextTokens
from motif_jax.structs import UserError
from motif_jax.tokens import Tokeniser

BATCH = 256  # questions whose answers come together
LEAST = 200  # questions before it is said that their order decides
MANY = 0.5  # share of pairs whose better caption changes with the order


class OwnModel:
    """An annotator that scores verdicts with a model in this process."""

    def __init__(self, language: Language, template: QuestionTemplate, chat: ChatFormat | None, model: str):
        """`chat`: how the conversation becomes a text; None if the template is a text to continue."""
        self._language, self._template, self._chat, self.model = language, template, chat, model
        verdicts = template.words or ((VERDICTS[0], VERDICTS[2]) if template.one else VERDICTS)  # yes first, of one
        ids = [language.tokeniser.encode(verdict) for verdict in verdicts]
        if len({*map(tuple, ids)}) < len(ids) or any(len(tokens) != 1 for tokens in ids):
            raise UserError(
                f"the tokeniser of {model!r} has no tokens for the verdicts {', '.join(map(repr, verdicts))} "
                "(--config.annotate.model, .prompt_file)"
            )
        self._begins = begins(language.tokeniser)
        self._next = NextTokens(language, [tokens[0] for tokens in ids])
        self.pairs = self.reversed = 0  # pairs so far, and those whose better caption changes with the order
        self._told = False

    def answers(self, questions: Iterable[Question | None]) -> Iterator[tuple[Question, QuestionAnswer]]:
        """See `Annotator`."""
        for batch in batches_between_pauses(questions, BATCH):
            yield from zip(batch, self._one(batch) if self._template.one else self._two(batch), strict=True)
            self._tell()

    def close(self) -> None:
        """Nothing to release: the parameters go with the object."""

    def _probabilities(self, rows: Sequence[list[int]]) -> np.ndarray:
        """The probabilities of the verdicts after each text. [B, 2 or 3]"""
        return np.exp(self._next(rows))

    def _rows(self, question: Question) -> list[list[int]]:
        """The texts of a question, as tokens; their answers are averaged."""
        tokeniser = self._language.tokeniser
        if self._chat is None:
            return [[*self._begins, *tokeniser.encode(text)] for text in self._template.texts(question)]
        return [self._chat.encode(tokeniser, self._template.messages(question)) + tokeniser.encode(OPENING)]

    def _one(self, questions: Sequence[Question]) -> list[QuestionAnswer]:
        asked = [self._rows(question) for question in questions]
        # One way to ask after the other, as each has a beginning of its own.
        found = np.stack([self._probabilities(rows) for rows in zip(*asked, strict=True)])
        z, mass = odds(found[:, :, 1], found[:, :, 0]).mean(0), found.sum(2).mean(0)
        sizes = [sum(map(len, rows)) for rows in asked]
        return [_answer(*answer) for answer in zip(z.tolist(), mass.tolist(), sizes, strict=True)]

    def _two(self, questions: Sequence[Question]) -> list[QuestionAnswer]:
        rows = [self._rows(one)[0] for one in [*questions, *(question.turned for question in questions)]]
        found = self._probabilities(rows)
        found[:, :2] += found[:, 2:] / 2  # "neither" is half of each
        z = odds(found[:, 0], found[:, 1]).reshape(2, -1)  # of the second place, in each order
        mass = found[:, :2].sum(1).reshape(2, -1).mean(0)
        self.pairs += len(questions)
        self.reversed += int(((z[0] > 0) == (z[1] > 0)).sum())
        totals = np.reshape([*map(len, rows)], (2, -1)).sum(0)
        answers = zip(((z[0] - z[1]) / 2).tolist(), mass.tolist(), totals.tolist(), strict=True)
        return [_answer(*answer) for answer in answers]

    def _tell(self) -> None:
        """Prints once that the model's answers depend on the order of the captions."""
        if self._told or self.pairs < LEAST:
            return
        self._told = True
        if self.reversed > MANY * self.pairs:
            print_line(
                f"annotate: {self.reversed / self.pairs:.0%} of {self.pairs:,} pairs get the other caption in the "
                "reverse order: the model chooses a position rather than a caption, and averaging both orders leaves "
                "little information (try another --config.annotate.prompt or .model)"
            )


def begins(tokeniser: Tokeniser) -> list[int]:
    """The special tokens with which texts of a model begin, as those of Llama 3 do."""
    plain, whole = tokeniser.encode("a"), tokeniser.encode("a", special_tokens=True)
    starts = (at for at in range(len(whole)) if whole[at : at + len(plain)] == plain)
    return whole[: next(starts, 0)]


def odds(no: np.ndarray, yes: np.ndarray) -> np.ndarray:
    """The log-odds of the second of two probabilities."""
    return np.log(np.maximum(yes, 1e-30)) - np.log(np.maximum(no, 1e-30))


def _answer(z: float, mass: float, tokens: int) -> QuestionAnswer:
    if not mass >= MIN_MASS:  # also NaN
        return QuestionAnswer(None, f"no verdict: the verdicts have a probability of {mass:.2g} together", mass, tokens)
    return QuestionAnswer(float(1 / (1 + np.exp(-np.clip(z, -30, 30)))), "", float(min(mass, 1.0)), tokens)
