"""Plans questions for the judge, fetches and records answers, and reports a judge that is down. Only on the first host.

The judge never delays training. While it is down, or fewer than 5 % of its answers can be parsed, one line a minute
says so. `policy/opinions.jsonl` records each answer: the captions, the judge, the step, and how long the answer took.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.annotation.annotator import AskingCounts, Incomplete, Question
from motif_jax.annotation.backends import CaptionBackend, find_backend, open_judge, opened
from motif_jax.annotation.stream import TOGETHER, AnsweredItem, Item, OwnProcess, Stream
from motif_jax.console import print_line
from motif_jax.envs.texts import Texts
from motif_jax.files import json_line, keep_lines
from motif_jax.rewards.online.kinds import OnlineKind
from motif_jax.rewards.online.store import Store
from motif_jax.rewards.section import SECTION, SourcesConfig, asks_pairs, judge_section
from motif_jax.structs import UserError

WARN_EVERY_S = 60.0
FILE = "opinions.jsonl"  # in the policy's directory
AHEAD = 256  # minimum number of planned questions; more where the judge answers many between two plans
NO_LIMIT = 2**62
LONGEST = 300  # characters kept of an answer


def judge_facts(config: SourcesConfig, texts: Texts) -> dict[str, Any]:
    """Facts that labels depend on, beside the goal."""
    facts = backend_for(config, texts, "defaultgoal").flat_metadata()
    facts.pop("goal", None)  # goals change during training
    if str(facts.get("model", "")).startswith(("/", ".", "~")):
        facts["model"] = Path(facts["model"]).name  # wherever the directory lies
    return facts


def backend_for(config: SourcesConfig, texts: Texts, goal: str) -> CaptionBackend:
    """The judge's backend for a goal."""
    online = config.policy.online
    section = judge_section(config.annotate, goal, online.patience_s)
    backend = find_backend(section)(section, texts, config.seed, not asks_pairs(online.kind), verdicts=True)
    assert isinstance(backend, CaptionBackend), "section.check_choice refuses the others"
    return backend


def open_stream(config: SourcesConfig, texts: Texts, goal: str, taken: int, at_once: bool) -> Stream:
    """Opens the judge for a goal; `taken` earlier questions count towards the budget.

    `at_once`: raise UserError if the judge cannot be reached now; otherwise retry in the background.
    """
    backend, cache_dir = backend_for(config, texts, goal), config.annotate.cache_dir
    open_backend = OwnProcess if backend.uses_jax else opened
    return Stream(
        lambda counts: open_judge(backend, cache_dir, counts, open_backend, TOGETHER),
        AskingCounts("train_policy"), immediate=config.policy.synchronous, at_once=at_once, taken=taken,
    )  # fmt: skip


class OnlineJudge:
    """Asks a judge about one goal at a time, and counts questions and answers."""

    def __init__(self, config: SourcesConfig, texts: Texts, folder: Path, goal: str):
        """Opens the judge of the first goal; raises UserError if it does not answer."""
        self._config, self._texts, self._section = config, texts, config.policy.online
        self._file, self._name = folder / FILE, str(config.annotate.model or config.annotate.backend)
        self._goal, self._log_begun = goal, False
        self.stream = open_stream(config, texts, goal, 0, at_once=True)
        self._fetched = 0  # number of answers at the last fetch
        self._down_s = self._warned_s = 0.0
        self._first_seen_s: dict[int, float] = {}  # when each open question began to wait
        self._clear_counts()

    def _clear_counts(self) -> None:
        self.steps = self.labelled = 0  # steps, and those whose caption has a label
        self._counts = dict.fromkeys(("asked", "cached", "unreadable", "tokens"), 0)
        self._seconds: dict[str, list[float]] = {"latency_s": [], "age_s": []}

    def resume(self, goal: str, asked: int, step: int) -> None:
        """Continues from a checkpoint, with this goal and the number of questions `asked` until this step."""
        self._begin_log(step)
        self.stream.taken = asked
        self.switch_goal(goal)

    def switch_goal(self, goal: str) -> None:
        """Switches to another goal, and drops open questions about the previous one."""
        if goal != self._goal:
            asked = self.stream.taken - self.stream.under_way
            self.stream.close()
            self._goal = goal
            self.stream = open_stream(self._config, self._texts, goal, asked, at_once=False)
            self._first_seen_s.clear()

    def _begin_log(self, step: int) -> None:
        """Removes rows that a killed run wrote after the checkpoint from which training resumes."""
        if not self._log_begun:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            keep_lines(self._file, "env_steps", step)
            self._log_begun = True

    def answers(self, step: int) -> list[AnsweredItem]:
        """Answers since the last call; they are counted, and written with this step, that of the update's end."""
        self._watch()
        self._begin_log(0)
        answers, now = self.stream.answers(), time.monotonic()
        self._fetched = len(answers)
        if answers:
            with open(self._file, "a") as file:
                file.write("".join(self._line(one, step) for one in answers))
        for one in answers:
            self._counts["cached" if one.cached else "asked"] += 1
            self._counts["tokens"] += one.answer.prompt_tokens + one.answer.output_tokens
            if not one.cached:
                self._seconds["latency_s"].append(one.seconds)
            if one.answer.yes is None:
                self._counts["unreadable"] += 1
            elif (since := self._first_seen_s.pop(one.item.number, None)) is not None:
                self._seconds["age_s"].append(now - since)
        return answers

    def _line(self, one: AnsweredItem, step: int) -> str:
        question, said = one.item.question, one.answer.said
        row = {"env_steps": step, "caption": question.first}
        row |= {} if question.second is None else {"other": question.second}
        row |= {"yes": one.answer.yes, "goal": self._goal, "by": self._name, "attempt": one.item.attempt + 1}
        row |= {"cached": True} if one.cached else {"seconds": round(one.seconds, 3)}
        row |= {"said": said if len(said) <= LONGEST else f"{said[: LONGEST // 2]} ... {said[-LONGEST // 2 :]}"}
        return json_line(row)

    def plan(self, store: Store, ordered: np.ndarray, steps: int) -> None:
        """Passes the waiting questions to the judge, the most urgent first, within the budget at this step."""
        now = time.monotonic()
        for question in ordered.tolist():
            self._first_seen_s.setdefault(question, now)
        rate = self._section.labels_per_1000_steps
        if not self.stream.immediate:
            ordered = ordered[: AHEAD + 4 * self._fetched]
        columns = (store.questions[name][ordered].tolist() for name in ("first", "second", "attempts"))
        items = [
            Item(number, attempt, Question(store.text(first), store.text(second) if second >= 0 else None))
            for number, first, second, attempt in zip(ordered.tolist(), *columns, strict=True)
        ]
        try:
            self.stream.plan(items, int(rate * steps / 1000) if rate else NO_LIMIT)
        except Incomplete as failed:
            raise UserError(f"{failed}; a synchronous run waits for its judge (--config.policy.synchronous)") from None

    def _watch(self) -> None:
        """Prints once a minute that the judge is down, and once that it is back."""
        patience_s, silent_s = self._section.patience_s, self.stream.silent_s
        now = time.monotonic()
        if silent_s <= patience_s:
            if self._down_s:
                print_line(f"train_policy: the judge is back online after {self._down_s:,.0f} seconds")
            self._down_s = 0.0
            return
        reason = self.stream.problem or "it does not answer"
        silent = f"the judge has not answered for {silent_s:,.0f} s"
        if self._section.when_down == "stop":
            raise UserError(f"{silent}: {reason} ({SECTION}.when_down=stop)")
        if not self._down_s or now - self._warned_s > WARN_EVERY_S:
            self._warned_s = now
            print_line(f"train_policy: {silent}; training continues without new labels: {reason}")
        self._down_s = silent_s

    def figures(self) -> dict[str, float]:
        """Metrics since the last call; ages are seconds from the first sight of a caption to its label."""
        metrics = {name: float(count) for name, count in self._counts.items()}
        if self.steps:
            metrics["labelled_share"] = self.labelled / self.steps
        for name, values in self._seconds.items():
            if values:
                metrics[f"{name}_p50"], metrics[f"{name}_p95"] = np.quantile(values, (0.5, 0.95)).tolist()
        self._clear_counts()
        metrics |= {"under_way": float(self.stream.under_way), "down_s": self._down_s}
        failures, strangers = float(self.stream.failures), float(self.stream.counts.strangers)
        return metrics | {"failures": failures, "strangers": strangers}

    def close(self) -> None:
        self.stream.close()


def in_order(store: Store, kind: OnlineKind, order: str) -> np.ndarray:
    """The waiting questions, the most urgent first.

    `order`: "recency": the last seen caption, or the newest pair, first; "count": the most frequent caption first; a
    pair has the smaller count of its captions, or the count of the caption beside the neutral moment; "uncertain": the
    least certain answer first, by `kind`.
    """
    waiting = store.waiting
    first, second = store.questions["first"][waiting], store.questions["second"][waiting]
    caption, of_two = np.maximum(first, second), store.pairs and not store.anchored  # the neutral moment has row 0
    if order == "uncertain":
        urgency = kind.doubt(store, waiting)
    elif order == "count":
        counts = store.of_captions["count"]
        urgency = np.minimum(counts[first], counts[second]) if of_two else counts[caption]
    else:
        urgency = store.questions["step"][waiting] if of_two else store.of_captions["last_step"][caption]
    return waiting[np.lexsort((waiting, urgency))[::-1]]


def sample_pairs(store: Store, number: int, sample: str, seed: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Draws pairs of captions. Returns their rows in the store, [number] twice.

    `sample`: "count": in proportion to how often a caption was seen; "distinct": uniformly.
    """
    rng = np.random.default_rng(seed)
    if not len(store.captions):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if sample == "distinct":
        rows = rng.integers(len(store.captions), size=2 * number)
    else:
        sums = np.cumsum(store.of_captions["count"])
        rows = np.searchsorted(sums, rng.integers(sums[-1], size=2 * number), side="right")
    return rows[:number], rows[number:]
