"""The reward source `online`: a reward that is learnt from a judge during training.

    hand-off thread     captions of a batch -> rows, by one lookup; worth from the snapshot; news -> deque
    learner's thread    advance: news, answers -> store; updates of the network; plan of questions; new snapshot
    judge's thread      questions of the plan -> answers (annotation/stream.py)

A synchronous run asks in the learner's thread instead, so its result is reproducible to the bit.
"""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from motif_jax.annotation.annotator import too_few
from motif_jax.captions import Lookup, distinct_messages
from motif_jax.devices.parameters import sum_of_arrays
from motif_jax.envs.texts import texts_of
from motif_jax.names import ONLINE_REWARDS, find
from motif_jax.rewards.learnt import load_reward
from motif_jax.rewards.online.captioned import Captioned, captioned_facts
from motif_jax.rewards.online.judge_client import OnlineJudge, in_order, judge_facts, sample_pairs
from motif_jax.rewards.online.kinds import MAKERS, OnlineKind, Ranking, TrainingSettings
from motif_jax.rewards.online.store import ANSWERED, NOTHING, REFUSED, News, Opinion, Store, join, share
from motif_jax.rewards.running_stats import RunningStats
from motif_jax.rewards.section import SECTION, SourcesConfig, asks_pairs, check_past, is_anchored, parse_goals, turn_at
from motif_jax.rewards.source import Facts, RewardSource, Setting
from motif_jax.structs import UserError, naming

COMPARE_EVERY = 100  # updates between two comparisons of the hosts' checksums; the first is in the second update
PAIRS = 11  # in the seed of the pairs
DECIDING = ("kind", "goals", "threshold", "floor", "normalise", "capacity")  # values that rewards depend on
WEIGHT = 1000.0  # the statistics of an earlier reward count as this number of steps


class Snapshot(NamedTuple):
    """The immutable state that rewards are computed from."""

    lookup: Lookup
    view: Any  # result of `Kind.view`
    labelled: np.ndarray  # whether each caption has a label; the last entry, False, is for row -1. [U + 1]


class OnlineSource(Captioned):
    """Rewards captions by a judge's answers so far."""

    def __init__(self, facts: Facts, config: SourcesConfig | None = None, judge: OnlineJudge | None = None):
        """Begins without captions and labels.

        `facts`: see `make_facts`. Without `config` it cannot `advance`; only the first host has a `judge`.
        """
        super().__init__(facts["count_exponent"], facts["one_step_late"])
        self._facts, self._judge = dict(facts), judge
        self._section: Any = config and config.policy.online
        self._turns = parse_goals(facts["goals"])
        self.store = Store(asks_pairs(facts["kind"]), facts["capacity"], is_anchored(facts))
        self.kind = MAKERS[facts["kind"]](facts)
        self.steps = self._updates = self._asked = self._turn = 0
        self._passed: collections.deque[News] | None = None if config is None else collections.deque()
        self._opinion: Opinion | None = None  # labels new captions until the judge answers
        self._rest = NOTHING  # news for the next message to other hosts
        self._swap()

    @classmethod
    def make(cls, setting: Setting) -> RewardSource:
        """See `RewardSource`. Raises UserError if the judge does not answer."""
        config, section = setting.config, setting.config.policy.online
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
            labelled = int(snapshot.labelled[rows].sum())
            stats = RunningStats() if snapshot.view is None else RunningStats.of(scores[index])
            seen = News(distinct, counts, new, times, scores=stats, labelled=labelled)
            self._passed.append(seen._replace(steps=len(messages)))
        return self.kind.worth(snapshot.view, scores)[index]

    # ---- the learner's thread

    def advance(self, batch: Any, hosts: Any) -> None:
        assert self._passed is not None
        self.steps += batch.steps
        self._updates += 1
        passed = [self._passed.popleft() for _ in range(len(self._passed))]
        answers, failed = NOTHING, None
        try:
            answers = self._answers()
        except Exception as error:  # raised when all hosts have exchanged their news
            failed = error
        news, self._rest = share(join([answers, *passed]), self._rest, hosts)
        if len(news) > 1 and self._updates % COMPARE_EVERY == 2:
            hosts.check_same("an online reward", self.arrays())
        if failed:
            raise failed
        turn = turn_at(self._turns, self.steps)
        if new_goal := self._turns[turn].goal != self._turns[self._turn].goal:
            self._start_turn(turn)
        self._turn = turn
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
                labels += self._take(self._answers())
        self.kind.learn(self.store, labels, scores)
        self._swap()

    def _answers(self) -> News:
        """The judge's answers since the last call; empty on all hosts but the first."""
        answers = self._judge.answers(self.steps) if self._judge else []
        questions = np.array([one.item.number for one in answers], np.int64)
        yes = np.array([np.nan if one.answer.yes is None else one.answer.yes for one in answers], np.float64)
        return News(questions=questions, yes=yes)

    def _start_turn(self, turn: int) -> None:
        """Switches to another goal, and drops the labels of the previous one. A network keeps its parameters."""
        self._turn = turn  # `goal` is that of the new one
        self._rest = self._rest._replace(questions=NOTHING.questions, yes=NOTHING.yes)
        self.store.forget_labels()
        if self._judge:
            self._judge.switch_goal(self.goal)

    def _see(self, seen: News) -> int:
        """Counts captions and plans questions about them; returns the number of pairs with a known label."""
        rows = self.store.see(seen, self.steps, self._opinion if self.goal == self._turns[0].goal else None)
        if not self.store.pairs:
            self.store.want(rows, self.steps)
            return 0
        if self.store.anchored:
            self.store.compare_with_neutral(rows, self.steps)
            return 0
        if len(self.store.waiting) >= self._section.queue:
            return 0
        seed = (self._facts["teaching"]["seed"], PAIRS, self._updates)
        pairs = sample_pairs(self.store, self._section.pairs_per_update, self._section.sample, seed)
        return self.store.add_pairs(*pairs, self.steps)

    def _take(self, news: News) -> int:
        """Takes answers; returns the number of new labels."""
        before = len(self.store.answered)
        for question, yes in zip(news.questions.tolist(), news.yes.tolist(), strict=True):
            self.store.take(question, None if yes != yes else yes, self._section.attempts)
        self._asked += len(news.questions)
        return len(self.store.answered) - before

    def _swap(self) -> None:
        """Makes a new snapshot."""
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

    # ---- metrics and report

    def figures(self) -> dict[str, float]:
        states = self.store.questions["state"]
        counts = {"captions": len(self.store.captions), "labels": (states == ANSWERED).sum()}
        counts |= {"refused": (states == REFUSED).sum(), "waiting": len(self.store.waiting), "full": self.store.is_full}
        counts["answers"], counts["answers_read"] = self.store.answers
        metrics = {name: float(count) for name, count in counts.items()}
        if metrics["labels"]:
            metrics["yes_share"] = float((self.store.questions["label"][states == ANSWERED] > 0.5).mean())
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
            self._judge.close()


def make_facts(config: SourcesConfig, judge: Facts) -> Facts:
    """Facts that rewards depend on, beside the arrays; `judge`: the result of `judge_facts`."""
    section = vars(config.policy.online)
    settings = {name: config.seed if name == "seed" else section[name] for name in TrainingSettings._fields}
    facts = {name: section[name] for name in DECIDING} | {"judge": judge, "teaching": settings}
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
    if not reward.reads_only_messages:
        raise UserError(f"the reward in {section.init_from!r} reads more than messages ({SECTION}.init_from)")
    if isinstance(kind, Ranking):
        if reward.options["message"] != section.message:
            encoders = f"{reward.options['message']!r}, not {section.message!r}"
            what = f"the reward in {section.init_from!r} has the encoder {encoders}"
            raise UserError(f"{what} ({SECTION}.message, .init_from)")
        kind.start_from(reward.params, RunningStats(WEIGHT, reward.statistics.mean, reward.statistics.variance))
        return None
    quantile = config.policy.threshold_quantile
    threshold = reward.statistics.quantile(quantile) if quantile >= 0 else 0.0
    return lambda messages: (reward(messages).normalised > threshold).astype(np.float32)
