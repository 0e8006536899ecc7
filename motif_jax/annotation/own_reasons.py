"""Backend `model` in mode reason: a language model in this process writes an analysis and a verdict, which is parsed.

After an analysis without a verdict the model is asked again, in the same conversation. Then it is not left to write:
its answer is the most probable of the verdicts of the prompt, if these are literal.

What is sampled depends on the seed, the question and the number of its sample, not on the questions beside it, up to
rounding: other questions may change the width of the batch, and with it the last digits of probabilities.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import jax
import numpy as np

from motif_jax.annotation.annotator import Question, QuestionAnswer, Sampling, batches_between_pauses
from motif_jax.annotation.prompts import Message, QuestionTemplate
from motif_jax.language.chat import ChatFormat
from motif_jax.language.generation import TokenSampling
from motif_jax.language.loaded import Language
from motif_jax.structs import UserError

BATCH = 32  # questions whose answers come together
RETRY_TOKENS = 64  # most tokens of the second answer, where it is written


class OwnReasons:
    """An annotator that parses what a model in this process writes."""

    def __init__(
        self, language: Language, template: QuestionTemplate, chat: ChatFormat, sampling: Sampling, seed: int,
        model: str,
    ):  # fmt: skip
        """Raises UserError if the model's context is too short for a question and its answer."""
        self._language, self._template, self._chat, self.model = language, template, chat, model
        self._seed, self._max_tokens = seed, sampling.max_tokens
        self._sampling = TokenSampling(sampling.temperature, max(sampling.top_k, 0), sampling.top_p)
        self._ends = chat.end(language.tokeniser)
        self._lengths = [len(language.tokeniser.encode(verdict)) for verdict in template.verdicts]
        self._samples: Counter[Question] = Counter()  # by question, so far
        self._encode([template.messages(Question("", None if template.one else ""))])  # the shortest question

    def answers(self, questions: Iterable[Question | None]) -> Iterator[tuple[Question, QuestionAnswer]]:
        """See `Annotator`."""
        for batch in batches_between_pauses(questions, BATCH):
            yield from zip(batch, self._answer(batch), strict=True)

    def close(self) -> None:
        """Nothing to release: the parameters go with the object."""

    def _answer(self, questions: Sequence[Question]) -> list[QuestionAnswer]:
        talks = [self._template.messages(question) for question in questions]
        rows = self._encode(talks)
        written = self._write(rows, self._keys(questions), self._sampling, self._max_tokens)
        answers = [
            QuestionAnswer(self._template.read(text), text, 1.0, len(row), 0, tokens)
            for row, (text, tokens) in zip(rows, written, strict=True)
        ]
        more = max(self._lengths, default=RETRY_TOKENS)
        again = {place: self._again(talks[place], answer) for place, answer in enumerate(answers) if answer.yes is None}
        again = {place: row for place, row in again.items() if self._fits(row, more)}
        for (place, row), (text, tokens) in zip(again.items(), self._verdicts([*again.values()]), strict=True):
            answers[place] = answers[place].asked_again(self._template.read(text), text, (len(row), 0, tokens))
        return answers

    def _again(self, messages: list[Message], answer: QuestionAnswer) -> list[int]:
        return self._chat.encode(self._language.tokeniser, self._template.again(messages, answer.said))

    def _verdicts(self, rows: Sequence[list[int]]) -> list[tuple[str, int]]:
        """The second answers, which are the most probable verdicts, and their numbers of tokens."""
        if not rows:
            return []
        if not self._lengths:  # of patterns it is not known what to write
            keys = jax.random.split(jax.random.key(self._seed), len(rows))  # without effect: nothing is drawn
            return self._write(rows, keys, TokenSampling(0.0), RETRY_TOKENS)
        best = self._language.score(rows, self._template.verdicts).argmax(1)
        return [(self._template.verdicts[place], self._lengths[place]) for place in best.tolist()]

    def _write(
        self, rows: Sequence[list[int]], keys: jax.Array, sampling: TokenSampling, max_tokens: int
    ) -> list[tuple[str, int]]:
        """What the model writes after each conversation, and its number of tokens, the one that ends it included."""
        written = self._language.generate_tokens(rows, max_tokens, keys, sampling, ends=self._ends)
        return [(self._language.tokeniser.decode(tokens), min(len(tokens) + 1, max_tokens)) for tokens in written]

    def _encode(self, talks: Sequence[list[Message]]) -> list[list[int]]:
        """The tokens of conversations; raises UserError if an answer may not fit behind one."""
        rows = [self._chat.encode(self._language.tokeniser, messages) for messages in talks]
        longest = max(rows, key=len)
        if not self._fits(longest, self._max_tokens):
            raise UserError(
                f"a question has {len(longest):,} tokens, and its answer up to {self._max_tokens:,}, but the model "
                f"{self.model!r} reads at most {self._language.config.max_positions:,} "
                "(--config.annotate.sampling.max_tokens, --config.annotate.model)"
            )
        return rows

    def _fits(self, row: list[int], more: int) -> bool:
        most = self._language.config.max_positions
        return not most or len(row) + more <= most

    def _keys(self, questions: Sequence[Question]) -> jax.Array:
        """A random key for each question, from the seed, the question and the number of its sample. [B]"""
        seeds = []
        for question in questions:
            named = json.dumps([self._seed, *question, self._samples[question]])
            seeds.append(int.from_bytes(hashlib.sha256(named.encode()).digest()[:4], "big"))
            self._samples[question] += 1
        return jax.vmap(jax.random.key)(np.array(seeds, np.uint32))
