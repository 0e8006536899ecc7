"""Asks an annotator each question several times: the share of its verdicts is a probability."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from motif_jax.annotation.annotator import PAUSE, Annotator, Question, QuestionAnswer


class Sampled:
    """An annotator whose answers are the means of another one's, which samples them."""

    def __init__(self, annotator: Annotator, samples: int):
        self._annotator, self._samples = annotator, samples

    def answers(self, questions: Iterable[Question | None]) -> Iterator[tuple[Question, QuestionAnswer]]:
        found: dict[Question, list[QuestionAnswer]] = {}
        for question, answer in self._annotator.answers(self._repeated(questions)):
            found.setdefault(question, []).append(answer)
            if len(found[question]) == self._samples:
                yield question, mean_of(found.pop(question))

    def close(self) -> None:
        self._annotator.close()

    def _repeated(self, questions: Iterable[Question | None]) -> Iterator[Question | None]:
        for question in questions:
            yield from [question] * (1 if question is PAUSE else self._samples)


def mean_of(answers: Sequence[QuestionAnswer]) -> QuestionAnswer:
    """The mean of all answers with a verdict, and what the first of them said; tokens are those of all answers."""
    readable = [answer for answer in answers if answer.yes is not None]
    first = (readable or answers)[0]
    yes = sum(answer.yes or 0.0 for answer in readable) / len(readable) if readable else None
    tokens = {
        name: sum(getattr(answer, name) for answer in answers)
        for name in ("prompt_tokens", "cached_tokens", "output_tokens")
    }
    refused = yes is None and any(answer.refused for answer in answers)
    return QuestionAnswer(yes, first.said, first.mass, **tokens, refused=refused)
