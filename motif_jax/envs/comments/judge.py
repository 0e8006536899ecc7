"""A language model as a judge of comments: the score is the probability that a comment satisfies a goal sentence.

`annotation/` asks the model over HTTP about one comment at a time, with the question in `texts/classify.toml`. Answers
are cached by model, question and goal: the games of a process ask about a comment once, and later runs do not ask
again. Processes that run at the same time may both ask.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from motif_jax.annotation.annotator import Annotator, Incomplete, Question, QuestionAnswer
from motif_jax.annotation.backends import check_backend, open_annotator
from motif_jax.annotation.memory import AnswerMemory
from motif_jax.annotation.prompts import MODES, is_sentence
from motif_jax.annotation.texts import Texts
from motif_jax.config.table import Text
from motif_jax.structs import UserError

FLAG = "--config.env.options"
FORUM = Texts("an internet forum", {}, Path(__file__).parent / "texts", "")
MAX_TOKENS = 512  # of an analysis
IN_FLIGHT = 64  # concurrent requests
OPTIONS = {"server.url": "scores"}  # values of config.annotate whose options have another name here


class Judging(NamedTuple):
    """Options of a judge."""

    goal: str = ""  # the sentence that comments should satisfy
    model: str = ""  # "": the server's only model
    mode: str = "reason"  # an analysis, then yes or no; "score": the probability of yes
    key_variable: str = "MOTIF_JAX_API_KEY"  # of the environment


USUAL = Judging()


class JudgeScorer:
    """Implements `scores.Scorer`; it connects on the first call of `score`, and again after `close`."""

    def __init__(
        self,
        url: str,
        judging: Judging,
        unknown: float | None,
        timeout_s: float,
        patience_s: float,
        cache: Path | None,
    ):
        """Raises UserError for values that cannot work.

        `unknown`: the score of a comment without a verdict; None: an error. If `cache` is None, answers are not stored.
        """
        if not is_sentence(judging.goal):
            raise UserError(
                f"the option 'goal' must be a sentence that tells a judge what comments should be like, not "
                f"{judging.goal!r} ({FLAG})"
            )
        Text(MODES).check("mode", FLAG, judging.mode)
        self._section = _section(url, judging, timeout_s, patience_s)
        with _named_as_options():
            check_backend(self._section, FORUM, one=True)
        self._cache = cache
        self._unknown = unknown
        self._annotator: Annotator | None = None
        self._memory: AnswerMemory | None = None
        self._undecided: dict[Question, QuestionAnswer] = {}  # without a verdict, which `AnswerMemory` does not keep

    def score(self, texts: Sequence[str]) -> list[float]:
        """See `Scorer`: the probability that each comment satisfies the goal."""
        questions = [Question(text) for text in texts]
        try:
            with _named_as_options():
                answers = self._ask(dict.fromkeys(questions))
                return [self._value(question.first, answers[question]) for question in questions]
        except BaseException:  # the caller gives up and may not close this
            self.close()
            raise

    def close(self) -> None:
        """Closes the connections and writes the last answers to disk."""
        annotator, memory, self._annotator, self._memory = self._annotator, self._memory, None, None
        try:
            if annotator is not None:
                annotator.close()
        finally:
            if memory is not None:
                memory.close()

    def _ask(self, questions: dict[Question, None]) -> dict[Question, QuestionAnswer]:
        if self._annotator is None:
            self._annotator, about = open_annotator(self._section, FORUM, seed=0, one=True)
            self._memory = AnswerMemory(self._cache, about, one=True)
        memory = self._memory
        assert memory is not None
        known = {question: memory.get(question) or self._undecided.get(question) for question in questions}
        found = {question: answer for question, answer in known.items() if answer}
        for question, answer in self._annotator.answers([one for one in questions if one not in found]):
            memory.add(question, answer)
            found[question] = answer
            if answer.yes is None:
                self._undecided[question] = answer
        return found

    def _value(self, text: str, answer: QuestionAnswer) -> float:
        score = self._unknown if answer.yes is None else answer.yes
        if score is None:
            raise UserError(
                f"the judge gives no verdict on {text!r:.120}, it says {answer.said!r:.200}: set the option 'unknown' "
                f"({FLAG})"
            )
        return score


def _section(url: str, judging: Judging, timeout_s: float, patience_s: float) -> ConfigDict:
    """Returns a `config.annotate` for the judge. Decoding is greedy, so that rewards are repeatable."""
    return ConfigDict({
        "backend": "server", "model": judging.model, "mode": judging.mode, "goal": judging.goal, "prompt": "default",
        "prompt_file": "", "system_role": True,
        "sampling": {"temperature": 0.0, "top_p": 1.0, "top_k": -1, "max_tokens": MAX_TOKENS},
        "server": {
            "url": url, "key_variable": judging.key_variable, "in_flight": IN_FLIGHT, "timeout_s": timeout_s,
            "patience_s": patience_s, "start_s": patience_s, "prefill": False, "extra": "{}",
        },
    })  # fmt: skip


@contextlib.contextmanager
def _named_as_options() -> Iterator[None]:
    """Replaces flags of `config.annotate` in errors by the options of the world."""

    def option(found: re.Match[str]) -> str:
        return f"{FLAG}: {OPTIONS.get(found[1], found[1].rpartition('.')[2])}"

    try:
        yield
    except (UserError, Incomplete) as error:
        raise UserError(re.sub(r"--config\.annotate\.([\w.]*\w)", option, str(error))) from error
