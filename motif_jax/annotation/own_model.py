"""Backend `model`: a language model in this process, by our own scoring, from a directory or a GGUF file.

The model is shown a question up to the bracket of its verdict, "(", and the probabilities of the next token are read:
1, 2 or 0 (neither). In mode rate they are the two words of the prompt, after its examples in one order and in the
other, and the log-odds are averaged. A pair is shown in both orders. With z the log-odds that the second caption is
better, and z' those of the turned question, which shows it first,

    P(second is better) = sigmoid((z - z') / 2)

so that a preference for a position cancels out; in the mean of two probabilities a strong one would not. The common
beginning of all questions is read once.

In mode reason (`OwnReasons`) the model writes an analysis and a verdict, which is parsed. After an analysis without a
verdict it is asked again, in the same conversation; its answer is then the most probable of the prompt's verdicts, if
these are literal. Samples depend on the seed, the question and the number of the sample, not on the other questions of
the batch, up to rounding: these may change the width of the batch, and with it the last digits of probabilities.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import jax
import numpy as np

from motif_jax.annotation.annotator import Annotator, Question, QuestionAnswer, batches
from motif_jax.annotation.prompts import MIN_MASS, OPENING, VERDICTS, Message, QuestionTemplate
from motif_jax.annotation.section import SamplingSection
from motif_jax.console import print_line
from motif_jax.language.chat import ChatFormat
from motif_jax.language.generation import TokenSampling
from motif_jax.language.loaded import Language, NextTokens
from motif_jax.structs import UserError
from motif_jax.tokens import Tokeniser

SCORED, WRITTEN = 256, 32  # maximum number of questions per batch, in modes score and rate, and in mode reason
LEAST_PAIRS = 200  # before the share of reversed pairs is judged
MANY_REVERSED = 0.5  # share of pairs whose better caption changes with the order
RETRY_TOKENS = 64  # maximum tokens of the second answer, where it is written


class OwnModel(Annotator):
    """An annotator that scores verdicts with a model in this process."""

    def __init__(
        self,
        language: Language,
        template: QuestionTemplate,
        chat: ChatFormat | None,
        model: str,
        together: int = SCORED,
    ):
        """`chat`: how the conversation becomes a text; None if the template is a text to continue.

        `together`: maximum number of questions that are computed together, of SCORED at most.
        """
        self._together = min(together, SCORED)
        self._language, self._template, self._chat, self.model = language, template, chat, model
        verdicts = template.words or ((VERDICTS[0], VERDICTS[2]) if template.one else VERDICTS)  # one caption: yes, no
        ids = [language.tokeniser.encode(verdict) for verdict in verdicts]
        if len({*map(tuple, ids)}) < len(ids) or any(len(tokens) != 1 for tokens in ids):
            raise UserError(
                f"the tokeniser of {model!r} has no tokens for the verdicts {', '.join(map(repr, verdicts))} "
                "(--config.annotate.model, .prompt_file)"
            )
        self._begins = begins(language.tokeniser)
        self._next = NextTokens(language, [tokens[0] for tokens in ids])
        self.pairs = self.reversed = 0  # pairs so far, and those whose better caption changes with the order

    def answers(self, questions: Iterable[Question | None]) -> Iterator[tuple[Question, QuestionAnswer]]:
        for batch in batches(questions, self._together):
            yield from zip(batch, self._one(batch) if self._template.one else self._two(batch), strict=True)

    def _rows(self, question: Question) -> list[list[int]]:
        """The texts of a question, as tokens; their answers are averaged."""
        tokeniser = self._language.tokeniser
        if self._chat is None:
            return [[*self._begins, *tokeniser.encode(text)] for text in self._template.texts(question)]
        return [self._chat.encode(tokeniser, self._template.messages(question)) + tokeniser.encode(OPENING)]

    def _one(self, questions: Sequence[Question]) -> list[QuestionAnswer]:
        asked = [self._rows(question) for question in questions]
        # First all texts with one order of the examples, then the others: each order has a common beginning.
        probabilities = np.stack([np.exp(self._next(rows)) for rows in zip(*asked, strict=True)])  # [orders, B, 2]
        odds, mass = log_odds(probabilities[:, :, 1], probabilities[:, :, 0]), probabilities.sum(2).mean(0)
        plain = len(odds) - len(self._template.without)
        z = odds[:plain].mean(0) - (odds[plain:].mean(0) if self._template.without else 0)
        sizes = [sum(map(len, rows)) for rows in asked]
        return list(map(_answer, z.tolist(), mass.tolist(), sizes))

    def _two(self, questions: Sequence[Question]) -> list[QuestionAnswer]:
        rows = [self._rows(question)[0] for question in [*questions, *(question.turned for question in questions)]]
        probabilities = np.exp(self._next(rows))  # of the verdicts. [2B, 3]
        probabilities[:, :2] += probabilities[:, 2:] / 2  # "neither" is half of each
        z = log_odds(probabilities[:, 0], probabilities[:, 1]).reshape(2, -1)  # of the second position, in each order
        mass = probabilities[:, :2].sum(1).reshape(2, -1).mean(0)
        before = self.pairs
        self.pairs += len(questions)
        self.reversed += int(((z[0] > 0) == (z[1] > 0)).sum())
        if before < LEAST_PAIRS <= self.pairs and self.reversed > MANY_REVERSED * self.pairs:  # once
            print_line(
                f"annotate: {self.reversed / self.pairs:.0%} of {self.pairs:,} pairs get the other caption in the "
                "reverse order: the model chooses a position rather than a caption, and averaging both orders leaves "
                "little information (try another --config.annotate.prompt or .model)"
            )
        totals = np.reshape([*map(len, rows)], (2, -1)).sum(0)
        return list(map(_answer, ((z[0] - z[1]) / 2).tolist(), mass.tolist(), totals.tolist()))


def begins(tokeniser: Tokeniser) -> list[int]:
    """The special tokens that the tokeniser puts before a text, as that of Llama 3 does."""
    plain, special = tokeniser.encode("a"), tokeniser.encode("a", special_tokens=True)
    starts = (at for at in range(len(special)) if special[at : at + len(plain)] == plain)
    return special[: next(starts, 0)]


def log_odds(no: np.ndarray, yes: np.ndarray) -> np.ndarray:
    """The log-odds of the second of two probabilities."""
    return np.log(np.maximum(yes, 1e-30)) - np.log(np.maximum(no, 1e-30))


def _answer(z: float, mass: float, tokens: int) -> QuestionAnswer:
    if not mass >= MIN_MASS:  # also NaN
        return QuestionAnswer(None, f"no verdict: the verdicts have a probability of {mass:.2g} together", mass, tokens)
    return QuestionAnswer(float(1 / (1 + np.exp(-np.clip(z, -30, 30)))), "", float(min(mass, 1.0)), tokens)


# ---- mode reason


class OwnReasons(Annotator):
    """An annotator that parses what a model in this process writes."""

    def __init__(
        self, language: Language, template: QuestionTemplate, chat: ChatFormat, sampling: SamplingSection, seed: int,
        model: str, together: int = WRITTEN,
    ):  # fmt: skip
        """Raises UserError if the model's context is too short for a question and its answer.

        `together`: maximum number of answers that are written together, of WRITTEN at most.
        """
        self._together = min(together, WRITTEN)
        self._language, self._template, self._chat, self.model = language, template, chat, model
        self._seed, self._max_tokens = seed, sampling.max_tokens
        self._limit = language.config.max_positions or np.inf  # of tokens of a text
        self._sampling = TokenSampling(sampling.temperature, max(sampling.top_k, 0), sampling.top_p)
        self._ends = chat.end(language.tokeniser)
        self._lengths = [len(language.tokeniser.encode(verdict)) for verdict in template.verdicts]
        self._samples: Counter[Question] = Counter()  # by question, so far
        self._encode([template.messages(Question("", None if template.one else ""))])  # the shortest question

    def answers(self, questions: Iterable[Question | None]) -> Iterator[tuple[Question, QuestionAnswer]]:
        for batch in batches(questions, self._together):
            yield from zip(batch, self._answer(batch), strict=True)

    def _answer(self, questions: Sequence[Question]) -> list[QuestionAnswer]:
        conversations = [self._template.messages(question) for question in questions]
        rows = self._encode(conversations)
        written = self._write(rows, self._keys(questions), self._sampling, self._max_tokens)
        answers = list(map(self._read, rows, written))
        again: dict[int, list[int]] = {}  # the second request by index
        for index, answer in enumerate(answers):
            if answer.yes is None:
                messages = self._template.again(conversations[index], answer.said)
                row = self._chat.encode(self._language.tokeniser, messages)
                if len(row) + max(self._lengths, default=RETRY_TOKENS) <= self._limit:
                    again[index] = row
        for (index, row), verdict in zip(again.items(), self._verdicts([*again.values()]), strict=True):
            answers[index] = answers[index].asked_again(self._read(row, verdict))
        return answers

    def _read(self, row: list[int], written: tuple[str, int]) -> QuestionAnswer:
        text, tokens = written
        return QuestionAnswer(self._template.read(text), text, 1.0, len(row), 0, tokens)

    def _verdicts(self, rows: Sequence[list[int]]) -> list[tuple[str, int]]:
        """The second answers, which are the most probable verdicts, and their numbers of tokens."""
        if not rows:
            return []
        if not self._lengths:  # the verdicts are patterns, so they cannot be scored
            keys = jax.random.split(jax.random.key(self._seed), len(rows))  # unused: at temperature 0 nothing is drawn
            return self._write(rows, keys, TokenSampling(0.0), RETRY_TOKENS)
        best = self._language.score(rows, self._template.verdicts).argmax(1)
        return [(self._template.verdicts[index], self._lengths[index]) for index in best.tolist()]

    def _write(
        self, rows: Sequence[list[int]], keys: jax.Array, sampling: TokenSampling, max_tokens: int
    ) -> list[tuple[str, int]]:
        """The model's text after each conversation, and its number of tokens, with the one that ends it."""
        written = self._language.generate_tokens(rows, max_tokens, keys, sampling, ends=self._ends)
        return [(self._language.tokeniser.decode(tokens), min(len(tokens) + 1, max_tokens)) for tokens in written]

    def _encode(self, conversations: Sequence[list[Message]]) -> list[list[int]]:
        """The tokens of conversations; raises UserError if an answer may not fit behind one."""
        rows = [self._chat.encode(self._language.tokeniser, messages) for messages in conversations]
        longest = max(map(len, rows))
        if longest + self._max_tokens > self._limit:
            raise UserError(
                f"a question has {longest:,} tokens, and its answer up to {self._max_tokens:,}, but the model "
                f"{self.model!r} reads at most {self._limit:,} "
                "(--config.annotate.sampling.max_tokens, --config.annotate.model)"
            )
        return rows

    def _keys(self, questions: Sequence[Question]) -> jax.Array:
        """A random key for each question, from the seed, the question and the number of its sample. [B]"""
        seeds = []
        for question in questions:
            named = json.dumps([self._seed, *question, self._samples[question]])
            seeds.append(int.from_bytes(hashlib.sha256(named.encode()).digest()[:4], "big"))
            self._samples[question] += 1
        return jax.vmap(jax.random.key)(np.array(seeds, np.uint32))
