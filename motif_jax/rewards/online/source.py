"""The reward source `online`: a reward that is learnt from a judge during training.

    hand-off thread     captions of a batch -> rows, by one lookup; worth from the snapshot; news -> deque
    learner's thread    advance: news, answers -> store; updates of the network; plan of questions; new snapshot
    judge's thread      questions of the plan -> answers (annotation/stream.py)

A synchronous run asks in the learner's thread instead, so its result is reproducible to the bit.

The judge never delays training. While it is down, or fewer than 5 % of its answers can be parsed, one line a minute
says so. `policy/opinions.jsonl` records each answer: the captions, the judge, the step, and how long the answer took.
"""

from __future__ import annotations

import collections
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from motif_jax.annotation.annotator import Answered, AskingCounts, Incomplete, Question, too_few
from motif_jax.annotation.backends import CaptionBackend, make_judge, open_judge, opened
from motif_jax.annotation.client import ANSWER_S
from motif_jax.annotation.stream import TOGETHER, Item, OwnProcess, Stream
from motif_jax.captions import Lookup, distinct_messages
from motif_jax.console import print_line
from motif_jax.devices.parameters import sum_of_arrays
from motif_jax.envs.texts import Texts, texts_of
from motif_jax.files import json_line, keep_lines
from motif_jax.names import ONLINE_REWARDS, find, import_named
from motif_jax.rewards.learnt_source import load_reward
from motif_jax.rewards.online.kinds import OF_CONFIG, OnlineKind, Ranking, TrainingSettings
from motif_jax.rewards.online.store import REFUSED, News, Opinion, Store, join, share
from motif_jax.rewards.section import (
    JUDGED,
    SECTION,
    SourcesConfig,
    asks_pairs,
    check_past,
    is_anchored,
    judge_section,
    online_section,
    parse_goals,
    turn_at,
)
from motif_jax.rewards.source import Captioned, Facts, RewardSource, Setting, captioned_facts
from motif_jax.rewards.statistics import RunningStats
from motif_jax.structs import UserError, naming

COMPARE_EVERY = 100  # updates between two comparisons of the hosts' checksums; the first is in the second update
PAIRS = 11  # in the seed of the pairs
WEIGHT = 1000.0  # the statistics of an earlier reward count as this number of steps


class Snapshot(NamedTuple):
    """The immutable state that rewards are computed from."""

    lookup: Lookup
    view: Any  # result of `Kind.view`
    labelled: np.ndarray  # whether each caption has a label; the last entry, False, is for row -1. [U + 1]


class OnlineSource(Captioned):
    """Rewards captions by a judge's answers so far."""

    def __init__(self, facts: Facts, config: SourcesConfig | None = None, judge: OnlineJudge | None = None):
        """`facts`: see `make_facts`. Without `config` it cannot `advance`; only the first host has a `judge`."""
        super().__init__(facts["count_exponent"], facts["one_step_late"])
        self._facts, self._judge = dict(facts), judge
        self._section: Any = config and config.policy.online
        self._turns = parse_goals(facts["goals"])
        self.store = Store(asks_pairs(facts["kind"]), facts["capacity"], is_anchored(facts))
        self.kind: OnlineKind = import_named(JUDGED[facts["kind"]].kind)(facts)
        self.steps = self._updates = self._asked = self._turn = 0
        self._passed: collections.deque[News] | None = None if config is None else collections.deque()
        self._opinion: Opinion | None = None  # labels new captions until the judge answers
        self._swap()

    @classmethod
    def make(cls, setting: Setting) -> RewardSource:
        """See `RewardSource`. Raises UserError if the judge does not answer."""
        config, section = setting.config, online_section(setting.config)
        if judgeless := find(ONLINE_REWARDS, section.kind):
            return judgeless.make(setting)
        texts, goal = texts_of(config.env, config.annotate.lexicon), parse_goals(section.goals)[0].goal
        facts, first = make_facts(config, judge_facts(config, texts)), jax.process_index() == 0
        source = cls(facts, config, OnlineJudge(config, texts, setting.workdir / "policy", goal) if first else None)
        source._opinion = starting_opinion(config, source.kind)
        source._swap()
        return source

    @classmethod
    def rebuild(cls, arrays: Any, facts: Facts) -> RewardSource:
        if judgeless := find(ONLINE_REWARDS, facts["kind"]):
            return judgeless.rebuild(arrays, facts)
        source = cls(facts)
        source._take_arrays(arrays)
        return source

    # ---- the hand-off thread

    def worth(self, messages: np.ndarray) -> np.ndarray:
        snapshot = self._snapshot  # the learner's thread may swap it meanwhile
        rows = snapshot.lookup.find(messages)
        stored = rows >= 0
        distinct, of_stored, counts = np.unique(rows[stored], return_inverse=True, return_counts=True)
        new, of_new, times = distinct_messages(messages[~stored])
        index = np.empty(len(messages), np.int64)
        index[stored], index[~stored] = of_stored, len(distinct) + of_new
        shown = np.concatenate([snapshot.lookup.messages[distinct], new])
        scores = self.kind.score(snapshot.view, shown, np.append(distinct, np.full(len(new), -1)))
        if self._passed is not None:
            stats = RunningStats() if snapshot.view is None else RunningStats.of(scores[index])
            seen = News(shown, np.append(counts, times), scores=stats, steps=len(messages))
            self._passed.append(seen._replace(labelled=int(snapshot.labelled[rows].sum())))
        return self.kind.worth(snapshot.view, scores)[index]

    # ---- the learner's thread

    def advance(self, batch: Any, hosts: Any) -> None:
        assert self._passed is not None
        self.steps += batch.steps
        self._updates += 1
        passed = [self._passed.popleft() for _ in range(len(self._passed))]
        answers, failed = News(), None
        try:
            answers = self._judge.answers(self.steps) if self._judge else answers
        except Exception as error:  # raised when all hosts have exchanged their news
            failed = error
        news = share(join([answers, *passed]), hosts)
        if len(news) > 1 and self._updates % COMPARE_EVERY == 2:
            hosts.check_same("an online reward", self.arrays())
        if failed:
            raise failed
        before, self._turn = self.goal, turn_at(self._turns, self.steps)
        if new_goal := self.goal != before:  # labels of the earlier one are dropped; a network keeps its parameters
            self.store.forget_labels()
            if self._judge:
                self._judge.switch_goal(self.goal)
        labels, scores = 0, RunningStats()
        for one in news:
            labels += self._see(one)
            labels += 0 if new_goal else self._take(one)  # after a change of goal, the answers are about the old one
            scores = scores.merge(one.scores)
        ordered = in_order(self.store, self.kind, self._section.order)
        self.store.drop(ordered[self._section.queue :])  # they wait again when their captions are next seen
        ordered = ordered[: self._section.queue]
        if self._judge:
            self._judge.steps += sum(one.steps for one in news)
            self._judge.labelled += sum(one.labelled for one in news)
            self._judge.plan(self.store, ordered, self.steps)
            if self._judge.stream.immediate and len(news) == 1:
                labels += self._take(self._judge.answers(self.steps))
        self.kind.learn(self.store, labels, scores)
        self._swap()

    def _see(self, seen: News) -> int:
        """Counts captions and plans questions about them; returns the number of pairs with a known label."""
        rows = self.store.see(seen, self.steps, self._opinion if self.goal == self._turns[0].goal else None)
        if not self.store.pairs:
            self.store.want(rows, self.steps)
            return 0
        if self.store.anchored:
            self.store.compare_with_neutral(rows, self.steps)
            return 0
        captions, section = self.store.captions, self._section
        if len(self.store.waiting) >= section.queue or not len(captions):
            return 0
        rng = np.random.default_rng((self._facts["teaching"]["seed"], PAIRS, self._updates))
        if section.sample == "distinct":
            drawn = rng.integers(len(captions), size=2 * section.pairs_per_update)
        else:  # in proportion to how often a caption was seen
            sums = np.cumsum(self.store.of_captions["count"])
            drawn = np.searchsorted(sums, rng.integers(sums[-1], size=2 * section.pairs_per_update), side="right")
        first, second = np.split(drawn, 2)
        return self.store.add_pairs(first, second, self.steps)

    def _take(self, news: News) -> int:
        """Takes answers; returns the number of new labels."""
        before = len(self.store.answered)
        for question, yes in zip(news.questions.tolist(), news.yes.tolist(), strict=True):
            self.store.take(question, None if yes != yes else yes, self._section.attempts)
        self._asked += len(news.questions)
        return len(self.store.answered) - before

    def _swap(self) -> None:
        self._snapshot = Snapshot(self.store.captions.lookup, self.kind.view(self.store), self.store.labelled())

    # ---- checkpoints

    def arrays(self) -> Any:
        counters = np.array([self.steps, self._updates, self._asked, self._turn], np.int64)
        return {"counters": counters, "store": self.store.arrays(), "kind": self.kind.arrays()}

    def _take_arrays(self, arrays: Any) -> None:
        self.steps, self._updates, self._asked, self._turn = np.asarray(arrays["counters"]).tolist()
        self.store.restore(arrays["store"])
        self.kind.restore(arrays.get("kind", {}))  # absent where it is empty and hosts sent it
        self._swap()

    def facts(self) -> Facts:
        return self._facts

    def restore(self, arrays: Any, facts: Facts) -> None:
        """See `RewardSource`; refuses another judge, and another goal for past steps."""
        before, now = facts["judge"], self._facts["judge"]
        if before != now:
            what = f"the labels in the checkpoint come from judge {before}, not {now}"
            raise UserError(f"{what}: choose another --workdir (--config.annotate)")
        self._take_arrays(arrays)
        check_past(facts["goals"], self._facts["goals"], self.steps)
        if self._judge:
            self._judge.resume(self.goal, self._asked, self.steps)

    def figures(self) -> dict[str, float]:
        store, states = self.store, self.store.questions["state"]
        counts = {"captions": len(store.captions), "full": len(store.captions) >= store.capacity}
        counts |= {"labels": len(store.answered), "refused": (states == REFUSED).sum(), "waiting": len(store.waiting)}
        counts["answers"], counts["answers_read"] = store.answers
        metrics = {name: float(count) for name, count in counts.items()}
        if metrics["labels"]:
            metrics["yes_share"] = float((store.questions["label"][store.answered] > 0.5).mean())
        metrics |= self.kind.figures() | (self._judge.figures() if self._judge else {})
        return {f"online_{name}": value for name, value in metrics.items()}

    @property
    def goal(self) -> str:
        """The goal that the judge is asked about now."""
        return self._turns[self._turn].goal

    def failure(self) -> str:
        """See `RewardSource`: too few answers about the current goal could be parsed."""
        answers, read = self.store.answers
        return too_few(read, answers, self._judge.stream.counts.last_unreadable if self._judge else "")

    def about(self) -> Facts:
        return {"kind": self._facts["kind"], "goal": self.goal, "checksum": sum_of_arrays(self.arrays())}

    def close(self) -> None:
        if self._judge:
            self._judge.stream.close()


def make_facts(config: SourcesConfig, judge: Facts) -> Facts:
    """Facts that rewards depend on, beside the arrays; `judge`: the result of `judge_facts`."""
    section = vars(online_section(config))
    values = section | {"seed": config.seed}
    settings = {name: values[OF_CONFIG.get(name, name)] for name in TrainingSettings._fields}
    deciding = ("kind", "goals", "threshold", "floor", "normalise", "capacity")
    facts = {name: section[name] for name in deciding} | {"judge": judge, "teaching": settings}
    if is_anchored(section):  # facts without an anchor are as before there were anchors
        facts["anchor"] = section["anchor"]
    return facts | captioned_facts(config.policy)


def starting_opinion(config: SourcesConfig, kind: OnlineKind) -> Opinion | None:
    """Gives ranking the parameters of `init_from`; for other kinds, returns a function from messages to 0 or 1."""
    section = config.policy.online
    if not section.init_from:
        return None
    with naming(f"{SECTION}.init_from"):
        reward = load_reward(Path(section.init_from).expanduser(), "last")
    encoder = reward.options["message"]
    if not reward.reads_only_messages or (isinstance(kind, Ranking) and encoder != section.message):
        needed = f"reads more than messages, or has the encoder {encoder!r}, not {section.message!r}"
        raise UserError(f"the reward in {section.init_from!r} {needed} ({SECTION}.message, .init_from)")
    if isinstance(kind, Ranking):
        kind.start_from(reward.params, RunningStats(WEIGHT, reward.statistics.mean, reward.statistics.variance))
        return None
    quantile = config.policy.threshold_quantile
    threshold = reward.statistics.quantile(quantile) if quantile >= 0 else 0.0
    return lambda messages: (reward(messages).normalised > threshold).astype(np.float32)


# ---- the judge

WARN_EVERY_S = 60.0
AHEAD = 256  # minimum number of planned questions; more where the judge answers many between two plans
NO_LIMIT = 2**62
LONGEST = 300  # characters kept of an answer


def judge_facts(config: SourcesConfig, texts: Texts) -> dict[str, Any]:
    """Facts that labels depend on, beside the goal."""
    backend = backend_for(config, texts, "defaultgoal")
    facts = backend.identity()
    del facts["goal"]  # goals change during training
    if str(facts.get("model", "")).startswith(("/", ".", "~")):
        facts["model"] = Path(facts["model"]).name  # wherever the directory lies
    return facts


def backend_for(config: SourcesConfig, texts: Texts, goal: str, start_s: float = 0.0) -> CaptionBackend:
    """The judge's backend for a goal; `start_s`: to wait for a server, see `ServerSection`."""
    online = config.policy.online
    section = judge_section(config.annotate, goal, online.patience_s)
    section = replace(section, server=replace(section.server, start_s=start_s))
    return make_judge(section, texts, config.seed, not asks_pairs(online.kind), verdicts=True)


def open_stream(config: SourcesConfig, texts: Texts, goal: str, taken: int, at_once: bool) -> Stream:
    """Opens the judge for a goal; `taken` earlier questions count towards the budget.

    `at_once`: raise UserError if the judge cannot be reached now; otherwise retry in the background.
    """
    # In the background, training goes on meanwhile, and says that the judge does not answer.
    start_s = config.annotate.server.start_s or (0.0 if at_once else ANSWER_S)
    backend, cache_dir = backend_for(config, texts, goal, start_s), config.annotate.cache_dir
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
        self._file, self._name = folder / "opinions.jsonl", str(config.annotate.model or config.annotate.backend)
        self._goal, self._log_begun = goal, False
        self._fetched = 0  # number of answers at the last fetch
        self.stream = open_stream(config, texts, goal, 0, at_once=True)
        self._down_s = self._warned_s = 0.0
        self._first_seen_s: dict[int, float] = {}  # when each open question began to wait
        self._clear_counts()

    def _clear_counts(self) -> None:
        self.steps = self.labelled = 0  # steps, and those whose caption has a label
        self._counts = dict.fromkeys(("asked", "cached", "unreadable", "tokens"), 0)
        self._seconds: dict[str, list[float]] = {"latency_s": [], "age_s": []}

    def resume(self, goal: str, asked: int, step: int) -> None:
        """Continues from a checkpoint of this step, with the number of questions `asked` so far."""
        self._begin_log(step)
        self.stream.taken = asked
        self.switch_goal(goal)

    def switch_goal(self, goal: str) -> None:
        """Drops open questions about the previous goal, if this is another one."""
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

    def answers(self, step: int) -> News:
        """Answers since the last call; they are counted, and written with this step, that of the update's end."""
        self._watch()
        self._begin_log(0)
        answers, now = self.stream.answers(), time.monotonic()
        self._fetched = len(answers)
        if answers:
            with open(self._file, "a") as file:
                file.write("".join(self._line(item, one, step) for item, one in answers))
        for item, one in answers:
            self._counts["cached" if one.cached else "asked"] += 1
            self._counts["tokens"] += one.answer.prompt_tokens + one.answer.output_tokens
            if not one.cached:
                self._seconds["latency_s"].append(one.seconds)
            if one.answer.yes is None:
                self._counts["unreadable"] += 1
            elif (since := self._first_seen_s.pop(item.number, None)) is not None:
                self._seconds["age_s"].append(now - since)
        yes = [np.nan if one.answer.yes is None else one.answer.yes for _, one in answers]
        questions = np.array([item.number for item, _ in answers], np.int64)
        return News(questions=questions, yes=np.array(yes, np.float64))

    def _line(self, item: Item, one: Answered, step: int) -> str:
        question, said = one.question, one.answer.said
        row = {"env_steps": step, "caption": question.first}
        row |= {} if question.second is None else {"other": question.second}
        row |= {"yes": one.answer.yes, "goal": self._goal, "by": self._name, "attempt": item.attempt + 1}
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
        now, silent_s = time.monotonic(), self.stream.silent_s
        if silent_s <= self._section.patience_s:
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
        failures, strangers = float(self.stream.failures), float(self.stream.counts.strangers)
        metrics |= {"under_way": float(self.stream.under_way), "down_s": self._down_s}
        return metrics | {"failures": failures, "strangers": strangers}


def in_order(store: Store, kind: OnlineKind, order: str) -> np.ndarray:
    """The waiting questions, the most urgent first.

    `order`: "recency": the last seen caption, or the newest pair; "count": the most frequent caption, where a pair has
    the smaller count of its captions, or that of the one beside the neutral moment; "uncertain": the least certain
    answer, by `kind`.
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
