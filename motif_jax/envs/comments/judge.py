"""A language model as a judge of comments: a sentence says what is wished, the score is how probably a comment is so.

The model is asked by `annotation/` over HTTP, about one comment at a time; `texts/classify.toml` is the question. Its
answers are kept in the cache of answers, by model, question and sentence: the games of a process ask about a comment
once, and later runs do not ask again. Processes at the same time may.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from motif_jax.annotation.annotator import Annotator, Answer, Incomplete, Question
from motif_jax.annotation.backends import check_backend, open_annotator
from motif_jax.annotation.memory import AnswerMemory
from motif_jax.annotation.prompts import MODES, is_sentence
from motif_jax.annotation.texts import Texts
from motif_jax.config.table import Text
from motif_jax.structs import UserError

FLAG = "--config.env.options"
FORUM = Texts("an internet forum", {}, Path(__file__).parent / "texts", "")
MAX_TOKENS = 512  # of an analysis
IN_FLIGHT = 64  # comments at a time
OPTIONS = {"server.url": "scores"}  # values of config.annotate that are options of other names here


class Judging(NamedTuple):
    """How a judge is asked."""

    goal: str = ""  # a sentence
    model: str = ""  # "": the only one that the server has
    mode: str = "reason"  # an analysis, then yes or no; "score": the probability of yes
    key_variable: str = "MOTIF_JAX_API_KEY"  # of the environment


USUAL = Judging()


class JudgeScorer:
    """A `scores.Scorer`; it connects when the first comment is scored, and again after `close`."""

    def __init__(
        self,
        url: str,
        judging: Judging,
        unknown: float | None,
        timeout_s: float,
        patience_s: float,
        cache: Path | None = None,
    ):
        """Raises UserError for values that cannot work.

        Args:
          url: of a server that speaks OpenAI's chat completions, such as http://127.0.0.1:8000/v1.
          judging: see `Judging`.
          unknown: the score of a comment on which there is no verdict; None: an error.
          timeout_s, patience_s: of one attempt, and while nothing is answered.
          cache: folder of answer caches; None: answers are not kept on disk.
        """
        if not is_sentence(judging.goal):
            raise UserError(
                f"a judge is told in a sentence what is wished of comments, and {judging.goal!r} is none: set the "
                f"option 'goal' ({FLAG})"
            )
        Text(MODES).check("mode", FLAG, judging.mode)
        self._section = _section(url, judging, timeout_s, patience_s)
        with _named_as_options():
            check_backend(self._section, FORUM, one=True)
        self._cache = cache
        self._unknown = unknown
        self._annotator: Annotator | None = None
        self._memory: AnswerMemory | None = None
        self._undecided: dict[Question, Answer] = {}  # without a verdict, which `AnswerMemory` does not keep

    def score(self, texts: Sequence[str]) -> list[float]:
        """See `Scorer`: the probability that each comment is as wished."""
        questions = [Question(text) for text in texts]
        try:
            with _named_as_options():
                answers = self._ask(dict.fromkeys(questions))
                return [self._value(question.first, answers[question]) for question in questions]
        except BaseException:  # the world is given up, and nobody may be left to close this
            self.close()
            raise

    def close(self) -> None:
        """Closes the connections, and writes the last answers to disk."""
        annotator, memory, self._annotator, self._memory = self._annotator, self._memory, None, None
        try:
            if annotator is not None:
                annotator.close()
        finally:
            if memory is not None:
                memory.close()

    def _ask(self, questions: dict[Question, None]) -> dict[Question, Answer]:
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

    def _value(self, text: str, answer: Answer) -> float:
        score = self._unknown if answer.yes is None else answer.yes
        if score is None:
            raise UserError(
                f"the judge gives no verdict on {text!r:.120}, it says {answer.said!r:.200}: set the option 'unknown' "
                f"({FLAG})"
            )
        return score


def _section(url: str, judging: Judging, timeout_s: float, patience_s: float) -> ConfigDict:
    """What `annotation/backends.py` takes for `config.annotate`. The model draws nothing: a reward is no chance."""
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
    """Errors that name values of `config.annotate` name the options of the world instead."""

    def option(found: re.Match[str]) -> str:
        return f"{FLAG}: {OPTIONS.get(found[1], found[1].rpartition('.')[2])}"

    try:
        yield
    except (UserError, Incomplete) as error:
        raise UserError(re.sub(r"--config\.annotate\.([\w.]*\w)", option, str(error))) from error
