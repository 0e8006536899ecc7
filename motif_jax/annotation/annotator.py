"""The interface of annotators, and the one loop that asks one: of stages, and of rewards learnt during training.

A question shows two captions and asks whether the second is better, or shows one and asks whether it is helpful. An
answer is P(yes); a verdict in words gives 0, 1/2 or 1. The two answers to a question asked in both orders are averaged,
so that a bias to one position cancels out.

An annotator maps a stream of questions to a stream of answers, in any order. Questions may contain `PAUSE`: more of
them will come later, and the annotator should yield the answers that it has.

    questions ──> cache ──── cached ───────────────────────> take(Answered)
                    └─ new ──> annotator ──> cache, counts ──┘

Answers go to a callback, so that cached answers are delivered at once, however long the judge is silent. Each question
has one answer: further ones are counted and ignored.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from motif_jax.console import clean, print_line
from motif_jax.files import SharedLines, read_shared, slug
from motif_jax.system.metrics import Progress

Item = TypeVar("Item")
LEAST_SHARE = 0.05  # of readable answers; with fewer, the learnt reward is worthless
LEAST_ANSWERS = 100  # before the share is judged
WARN_EVERY_S = 60.0
RATED_TOGETHER = 65_536  # questions whose captions are rated together
LEAST_YES = 1e-6  # the cache keeps six digits
TOKENS = ("prompt_tokens", "cached_tokens", "output_tokens")  # fields of QuestionAnswer and of AskingCounts


class Question(NamedTuple):
    """Two captions to compare, in the order shown, or one caption to judge."""

    first: str
    second: str | None = None  # None: asks whether the first is helpful

    @property
    def turned(self) -> Question:
        assert self.second is not None, "a question about one caption has no order"
        return Question(self.second, self.first)


class QuestionAnswer(NamedTuple):
    """The answer to one question, and its number of tokens."""

    yes: float | None  # probability; None: the answer has no readable verdict, or the question was refused
    said: str = ""  # the analysis, the rules that matched, or the reason for a missing verdict
    mass: float = 1.0  # mode score: the total probability of the verdicts
    prompt_tokens: int = 0
    cached_tokens: int = 0  # the part of the prompt's tokens that the engine had cached
    output_tokens: int = 0
    refused: bool = False  # by a failing server, which may answer later

    def asked_again(self, again: QuestionAnswer) -> QuestionAnswer:
        said = f"{self.said}\n[asked again] {again.said}"
        return self._replace(yes=again.yes, said=said, **tokens_of((self, again)))


def tokens_of(answers: Sequence[QuestionAnswer]) -> dict[str, Any]:
    """The numbers of tokens of all answers together."""
    return {name: sum(getattr(answer, name) for answer in answers) for name in TOKENS}


class Annotator(Protocol):
    """Answers a stream of questions, see above."""

    model: str  # the full name, which may be known only once the model is opened; "": rules

    def answers(self, questions: Iterable[Question | None]) -> Iterator[tuple[Question, QuestionAnswer]]:
        """Consumes questions as its capacity allows, and yields every question with its answer."""

    def close(self) -> None:
        """Releases resources, if there are any that do not go with the object."""
        return


PAUSE = None  # in a stream of questions: the next question comes later


class Draws(Generic[Item]):
    """Draws from a stream of questions, or of answers."""

    def __init__(self, stream: Iterable[Item | None]):
        self._stream, self.more = iter(stream), True  # `more`: the stream is not used up

    def next(self) -> Item | None:
        """The next one; None at a pause, and once there are no more."""
        for one in self._stream:
            return one
        self.more = False
        return None


class Incomplete(Exception):
    """The annotator cannot go on; earlier answers are kept. The message gives the reason and the flag to change."""


def batches(items: Iterable[Item | None], size: int) -> Iterator[list[Item]]:
    """Yields lists of up to `size` items: when a list is full, at a pause, and at the end."""
    batch: list[Item] = []
    for item in items:
        if item is not PAUSE:
            batch.append(item)
        if len(batch) == size or (item is PAUSE and batch):
            yield batch
            batch = []
    if batch:
        yield batch


class AnswerCache:
    """Answers by question, in memory and in `<cache>/<model>-<mode>-<hash>/` (files.py).

    The hash is of everything that they depend on (backends.py). Lines have the captions, so that other datasets can use
    them. Answers without a verdict are written but not returned: such a question is asked again.
    """

    def __init__(self, metadata: Mapping[str, Any], cache: Path | None):
        """Reads earlier answers to a judge with this metadata. `cache`: None keeps them in memory only."""
        self._verdicts: dict[Question, float] = {}
        self._lines: SharedLines | None = None
        self.folder: Path | None = None  # answers are kept in memory only
        if cache is not None:
            words = (slug(metadata["opened"] or metadata["backend"]), metadata.get("mode"))
            self._lines = SharedLines(cache, "-".join(filter(None, words)), metadata, "--config.annotate.cache_dir")
            self.folder = self._lines.folder
            for question, answer in read_answers(self.folder):
                self._remember(question, answer)
            self._lines.open()

    def get(self, question: Question) -> QuestionAnswer | None:
        yes = self._verdicts.get(question)
        return None if yes is None else QuestionAnswer(yes)

    def add(self, question: Question, answer: QuestionAnswer) -> None:
        self._remember(question, answer)
        if self._lines:
            row = question._asdict() | {"second_better": None if answer.yes is None else round(answer.yes, 6)}
            row |= {"mass": round(answer.mass, 6)} if answer.mass != 1.0 else {}
            row |= {"said": answer.said} if answer.said else {}
            self._lines.add([row])

    def _remember(self, question: Question, answer: QuestionAnswer) -> None:
        if answer.yes is not None:  # many questions share a caption, which is stored once
            first, second = (text and sys.intern(text) for text in question)
            self._verdicts[Question(first or "", second)] = answer.yes

    def close(self) -> None:
        if self._lines:
            self._lines.close()


def read_answers(folder: Path) -> Iterator[tuple[Question, QuestionAnswer]]:
    """Yields the answers of all jobs, including those without a verdict, in no particular order."""
    for row in read_shared(folder):
        answer = QuestionAnswer(row["second_better"], row.get("said", ""), row.get("mass", 1.0))
        yield Question(row["first"], row["second"]), answer


class Answered(NamedTuple):
    """A question with its answer."""

    question: Question
    answer: QuestionAnswer
    seconds: float  # from question to answer; 0 from the cache
    cached: bool  # the answer is from the cache


@dataclass
class AskingCounts:
    """Counts the answers of a stage, and warns at most once a minute if almost none can be read."""

    stage: str  # begins the printed line
    asked: int = 0
    from_cache: int = 0
    no_verdict: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    strangers: int = 0  # answers to questions that are not in flight; they are ignored
    last_unreadable: str = ""
    _judged: tuple[int, int] = (0, 0)  # asked, no_verdict when the share was last judged
    _warned_s: float = -WARN_EVERY_S

    def logged(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("asked", "from_cache", "no_verdict", *TOKENS)}

    def add(self, answer: QuestionAnswer) -> None:
        self.asked += 1
        self.prompt_tokens += answer.prompt_tokens
        self.cached_tokens += answer.cached_tokens
        self.output_tokens += answer.output_tokens
        if answer.yes is None:
            self.no_verdict += 1
            self.last_unreadable = answer.said
        answers = self.asked - self._judged[0]
        if answers < LEAST_ANSWERS or time.monotonic() - self._warned_s < WARN_EVERY_S:
            return
        if problem := too_few(answers - (self.no_verdict - self._judged[1]), answers, self.last_unreadable):
            self._warned_s = time.monotonic()
            print_line(f"{self.stage}: {problem}")
        self._judged = (self.asked, self.no_verdict)


def too_few(read: int, answers: int, last: str) -> str:
    """The warning if too few of the answers were read, otherwise "". `last`: the last one without a verdict, or ""."""
    if answers < LEAST_ANSWERS or read >= LEAST_SHARE * answers:
        return ""
    quoted = f", the last one was {clean(repr(last))}" if last else ""
    return (
        f"{answers - read:,} of {answers:,} answers lack a readable verdict{quoted} "
        "(--config.annotate.model, .prompt_file, .sampling.max_tokens)"
    )


class Asking:
    """An open judge: an annotator, and the cache of its answers."""

    def __init__(self, annotator: Annotator, cache: AnswerCache | None, counts: AskingCounts):
        """`cache`: None if answers are not kept, because rules are fast or are to be asked again."""
        self.annotator, self.cache, self.counts = annotator, cache, counts
        self._flight: dict[Question, float] = {}  # questions in flight, with the time of asking

    def ask(self, questions: Iterable[Question | None], take: Callable[[Answered], None]) -> None:
        """Draws questions, with pauses, as the annotator's capacity allows; calls `take` with each answer at once."""
        self._flight = {}
        for question, answer in self.annotator.answers(self._new(questions, take)):
            asked_s = self._flight.pop(question, None)
            if asked_s is None:
                self.counts.strangers += 1
                continue
            self.counts.add(answer)
            take(Answered(question, answer, time.monotonic() - asked_s, False))
            if self.cache:
                self.cache.add(question, answer)

    def _new(self, questions: Iterable[Question | None], take: Callable[[Answered], None]) -> Iterator[Question | None]:
        for question in questions:
            if question is PAUSE:
                yield PAUSE
            elif self.cache and (cached := self.cache.get(question)):
                self.counts.from_cache += 1
                take(Answered(question, cached, 0.0, True))
            elif question not in self._flight:
                self._flight[question] = time.monotonic()
                yield question

    def close(self) -> None:
        try:
            self.annotator.close()
        finally:
            if self.cache:
                self.cache.close()


class Ratings(Asking):
    """Asks about single captions, and answers all questions from the log-odds that they are good.

    A caption's worth is its log-odds minus those of the moment without a message, whose worth is 0. P(second is better)
    is the sigmoid of the difference of worth, and P(one caption is helpful) that of its worth.
    """

    def __init__(self, annotator: Annotator, cache: AnswerCache | None, counts: AskingCounts, together: int = 0):
        """`together`: the most questions that are answered together; 0: many, and their progress is shown."""
        super().__init__(annotator, cache, counts)
        self._together = together
        self._rated: dict[str, float] = {}  # log-odds
        self._unread: dict[str, QuestionAnswer] = {}  # of the last captions that were asked about

    def ask(self, questions: Iterable[Question | None], take: Callable[[Answered], None]) -> None:
        """See `Asking.ask`. Many questions are drawn together, and each is answered when its captions are rated."""
        if self.cache is None:  # answers are not kept: another call rates anew
            self._rated = {}
        for batch in batches(questions, self._together or RATED_TOGETHER):
            self._answer_all([*dict.fromkeys(batch)], take)

    def _answer_all(self, questions: Sequence[Question], take: Callable[[Answered], None]) -> None:
        self._unread, started, waiting = {}, time.monotonic(), defaultdict[str, list[Question]](list)
        for one in questions:
            for caption in self._unknown(one):
                waiting[caption].append(one)

        def answer(candidates: Sequence[Question]) -> None:
            for one in candidates:
                if not self._unknown(one):
                    take(Answered(one, self._answer(one), time.monotonic() - started, False))

        answer(questions)
        self._rate((waiting.keys() | {""}) - self._rated.keys(), lambda caption: answer(waiting[caption]))

    def _rate(self, captions: set[str], then: Callable[[str], None]) -> None:
        """Asks about captions; calls `then` with each one that is answered, with or without a verdict."""
        progress = None if self._together else Progress(self.counts.stage, len(captions), "messages")
        numbers = itertools.count(1)

        def take(answered: Answered) -> None:
            caption, yes = answered.question.first, answered.answer.yes
            if yes is None:
                self._unread[caption] = answered.answer
            else:  # 0 and 1 may come from rounding
                self._rated[caption] = math.log(max(yes, LEAST_YES)) - math.log(max(1 - yes, LEAST_YES))
            if progress:
                progress.update(next(numbers))
            then(caption)

        with contextlib.closing(progress) if progress else contextlib.nullcontext():
            super().ask(map(Question, sorted(captions)), take)

    @staticmethod
    def _sides(question: Question) -> tuple[str, str]:
        """The captions whose worth is compared."""
        return ("", question.first) if question.second is None else (question.first, question.second)

    def _unknown(self, question: Question) -> set[str]:
        """Those of its captions about which the judge is still to be asked."""
        sides = self._sides(question)
        return {caption for caption in sides if caption not in self._rated and caption not in self._unread}

    def _answer(self, question: Question) -> QuestionAnswer:
        worse, better = self._sides(question)
        for caption in (worse, better):
            if caption not in self._rated:
                return self._unread[caption]
        return QuestionAnswer(1 / (1 + math.exp(self._rated[worse] - self._rated[better])))


class Sampled:
    """An annotator whose answers are the means of another one's, which samples them.

    The mean is of all answers with a verdict, with the text of the first of them; tokens of all answers are added up.
    """

    def __init__(self, annotator: Annotator, samples: int):
        self._annotator, self._samples, self.model = annotator, samples, annotator.model

    def answers(self, questions: Iterable[Question | None]) -> Iterator[tuple[Question, QuestionAnswer]]:
        repeated = (one for question in questions for one in [question] * (self._samples if question else 1))
        samples: dict[Question, list[QuestionAnswer]] = {}
        for question, answer in self._annotator.answers(repeated):
            samples.setdefault(question, []).append(answer)
            if len(samples[question]) == self._samples:
                answers = samples.pop(question)
                readable = [answer for answer in answers if answer.yes is not None]
                first = (readable or answers)[0]
                yes = sum(answer.yes or 0.0 for answer in readable) / len(readable) if readable else None
                refused = yes is None and any(answer.refused for answer in answers)
                yield question, first._replace(yes=yes, refused=refused, **tokens_of(answers))

    def close(self) -> None:
        self._annotator.close()
