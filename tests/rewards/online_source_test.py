"""Online rewards agree with slow simulations of them, step by step, over recorded play."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import online_parts_test
import optax
import pytest
from conftest import get_config
from flax import nnx
from nethack_texts import NETHACK
from online_parts_test import messages
from pool_test import play

from benchmarks.random_policy import RandomPolicy
from motif_jax.actors.pool import ActorPool
from motif_jax.annotation.annotator import Question
from motif_jax.annotation.backends import Lexicon
from motif_jax.captions import decode
from motif_jax.networks.reward import MessageClassifier, RewardModel
from motif_jax.rewards.online.kinds import SEED
from motif_jax.rewards.online.source import PAIRS
from motif_jax.rewards.statistics import RunningStats

pytestmark = pytest.mark.usefixtures("optimised")  # sums of floats in another order teach something else
BATCHES = 5
READS = ("event_message", "event_message_count")
LEXICONS = {goal: Lexicon(NETHACK, goal) for goal in ("defaultgoal", "gold")}


@pytest.fixture(scope="module")
def rollouts():
    game = {"task": "score", "max_episode_steps": 60}
    with ActorPool(game, READS, num_workers=0, games_per_worker=8, rollout_length=16) as pool:
        return [arrays for _, arrays, _ in play(pool, RandomPolicy(23), BATCHES)][:BATCHES]


def make(tmp_path, **values):
    return online_parts_test.make(tmp_path, **{"batch_size": 16, "updates_early": 2} | values)


def assert_rewards(source, batches, reward_of, learn, tolerance=0.0):
    """The source's rewards, and those of a simulation: reward_of(text), and learn(texts) after each batch."""
    for batch in batches:
        texts = [[decode(message) for message in row] for row in batch["event_message"]]
        expected = [
            [reward_of(text) / count**3 for text, count in zip(row, times, strict=True)]
            for row, times in zip(texts, batch["event_message_count"].tolist(), strict=True)
        ]
        np.testing.assert_allclose(source.rewards(batch), expected, rtol=1e-6, atol=tolerance)
        source.advance(SimpleNamespace(steps=batch["reward"].size), None)
        learn([text for row in texts for text in row])


@pytest.mark.parametrize("later", ["gold", "defaultgoal"])
def test_retrieval_rewards_captions_called_helpful_and_its_goal_changes(rollouts, tmp_path, later):
    """From step 192 = 3 batches of 16 x 4 on, the judge is asked about gold, and older labels do not count."""
    labels, batch = {}, 0

    def learn(texts):
        nonlocal batch
        batch += 1
        if batch == 3 and later == "gold":
            labels.clear()
        goal = later if batch >= 3 else "defaultgoal"
        labels.update({text: LEXICONS[goal].answer(Question(text)).yes for text in texts})

    source = make(tmp_path, goals=f"defaultgoal@0,{later}@192")
    assert_rewards(source, rollouts, lambda text: labels.get(text, 0.0), learn)
    assert source.about()["goal"] == later
    if later == "defaultgoal":  # this play has no gold
        figures = source.figures()
        assert 1 in labels.values()
        assert figures["online_labels"] == figures["online_asked"] == len(labels)


def test_the_budget_goes_to_the_captions_seen_last_or_most_often(rollouts, tmp_path):
    for order in ("recency", "count"):
        seen, last, labels, steps = {}, {}, {}, 0

        def learn(texts, seen=seen, last=last, labels=labels, order=order):
            nonlocal steps
            steps += len(texts)
            for text in sorted(set(texts), key=lambda text: text.encode("latin-1").ljust(256, b"\0")):
                last[text] = steps
                seen.setdefault(text, 0)  # captions of a batch are numbered in the order of their bytes
            for text in texts:
                seen[text] += 1
            rows = {text: row for row, text in enumerate(seen)}
            urgency = last if order == "recency" else seen
            waiting = sorted(
                (text for text in seen if text not in labels), key=lambda text: (urgency[text], rows[text])
            )
            for text in waiting[::-1][: int(20 * steps / 1000) - len(labels)]:
                labels[text] = LEXICONS["defaultgoal"].answer(Question(text)).yes

        source = make(tmp_path, order=order, labels_per_1000_steps=20.0)
        assert_rewards(source, rollouts, lambda text, labels=labels: labels.get(text, 0.0), learn)
        assert len(labels) == int(20 * steps / 1000) == source.figures()["online_labels"]


class Simulated:
    """A network that is taught as the spec says; it gets whole messages, and the same one as often as it is shown."""

    def __init__(self, network, optimizer, loss):
        graph, self.params = nnx.split(network, nnx.Param)
        self.state = optimizer.init(self.params)
        self.lessons, self.known = 0, {}
        apply = jax.jit(lambda params, *given: nnx.merge(graph, params)(*given))

        @jax.jit
        def step(params, state, *batch):
            gradients = jax.grad(lambda params: loss(lambda *given: apply(params, *given), *batch))(params)
            updates, state = optimizer.update(gradients, state, params)
            return optax.apply_updates(params, updates), state

        self.apply, self.step = apply, step

    def teach(self, *batch):
        self.params, self.state = self.step(self.params, self.state, *batch)
        self.lessons += 1
        self.known = {}

    def __call__(self, text, as_input=lambda message: message):
        if text not in self.known:
            self.known[text] = np.asarray(self.apply(self.params, as_input(messages(text))))[0]
        return self.known[text]


@pytest.mark.differs("oni", there="before the first lesson, rewards come from random parameters", here="they are 0")
def test_classification_pays_where_its_network_says_helpful(rollouts, tmp_path):
    seed = get_config().seed
    labels = {}  # in the order of their rows

    def loss(apply, messages, targets, key):
        return optax.softmax_cross_entropy_with_integer_labels(apply(messages, key), targets).mean()

    network = Simulated(MessageClassifier("lt_cnn_small", rngs=nnx.Rngs(seed + SEED)), optax.adam(1e-3), loss)

    def learn(texts):
        new = sorted(set(texts) - labels.keys(), key=lambda text: messages(text).tobytes())
        labels.update({text: LEXICONS["defaultgoal"].answer(Question(text)).yes for text in new})
        for _ in range(2 if new else 0):
            rng, known = np.random.default_rng((seed, SEED, network.lessons)), list(labels)
            assert len(known) > 16
            shown = [known[number] for number in rng.choice(len(known), 16, replace=False)]
            targets = np.array([labels[text] for text in shown], np.int32)
            network.teach(messages(*shown), targets, jax.random.fold_in(jax.random.key(seed), network.lessons))

    def reward_of(text):
        if not network.lessons:
            return 0.0
        logits = network(text)
        return float(1 / (1 + np.exp(logits[0] - logits[1])) > 0.45)

    source = make(tmp_path, kind="classification", threshold=0.45, learning_rate=1e-3)
    assert_rewards(source, rollouts, reward_of, learn)
    assert source.figures()["online_lessons"] == network.lessons > 4


@pytest.mark.differs(
    "oni",
    there="ranking rewards raw scores; normalised scores with a threshold are only logged",
    here="with `anchor=none`, scores are normalised by mean and variance of the batches before, and those up "
    "to `floor` are worth 0, as the paper says",
    reference="as released",
)
@pytest.mark.differs("oni", there="pairs of two equal messages are asked", here="they are not asked")
@pytest.mark.parametrize("normalise", [True, False])
def test_ranking_pays_scores_that_are_learnt_from_pairs(rollouts, tmp_path, normalise):
    """Ranking without an anchor.

    With `normalise`, the scores are the source's own: Adam makes steps of rounding errors, where a gradient is 0.
    """
    seed = get_config().seed
    # Captions in the order of their rows; (first, second, target) of pairs.
    counts, pairs, seen, shown_now, update = {}, [], [], [], 0

    def loss(apply, first, second, target, weight):
        log_p = jax.nn.log_softmax(jnp.stack([apply({"message": first}), apply({"message": second})], 1))  # [B, 2]
        return -(weight * ((1 - target) * log_p[:, 0] + target * log_p[:, 1])).sum() / weight.sum()

    optimizer = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(1e-3))
    network = Simulated(RewardModel(message="lt_cnn_small", rngs=nnx.Rngs(seed + SEED)), optimizer, loss)

    def score(text):
        if normalise:
            return float(source.kind.score(source._snapshot.view, messages(text), np.array([-1]))[0])
        return float(network(text, lambda message: {"message": message}))

    def learn(texts):
        nonlocal update
        update += 1
        seen.extend(shown_now)
        shown_now.clear()
        for text in sorted(set(texts), key=lambda text: messages(text).tobytes()):
            counts.setdefault(text, 0)
        for text in texts:
            counts[text] += 1
        known, sums = list(counts), np.cumsum(list(counts.values()))
        drawn = np.random.default_rng((seed, PAIRS, update)).integers(sums[-1], size=8)
        rows = [next(row for row, total in enumerate(sums) if total > number) for number in drawn]
        before = len(pairs)
        for first, second in zip(rows[:4], rows[4:], strict=True):
            if first != second:
                question = Question(known[first], known[second])
                pairs.append((*question, LEXICONS["defaultgoal"].answer(question).yes))
        for _ in range(2 if len(pairs) > before else 0):
            rng = np.random.default_rng((seed, SEED, network.lessons))
            chosen = rng.choice(len(pairs), 16, replace=False) if len(pairs) > 16 else range(len(pairs))
            shown = [pairs[number] for number in chosen]
            weight = np.array([1.0] * len(shown) + [0.0] * (16 - len(shown)), np.float32)
            first, second, target = zip(*shown, *[("", "", 0.5)] * (16 - len(shown)), strict=True)
            network.teach(messages(*first), messages(*second), np.array(target, np.float32), weight)

    def reward_of(text):
        if not network.lessons:
            return 0.0
        shown_now.append(score(text))
        if not normalise:
            return shown_now[-1]
        if not seen or not np.var(seen):
            return 0.0
        z = (shown_now[-1] - np.mean(seen)) / np.std(seen)
        return z if z > -0.5 else 0.0

    source = make(tmp_path, kind="ranking", anchor="none", normalise=normalise, learning_rate=1e-3, pairs_per_update=4)
    # Adam makes whole steps of rounded gradients, so scores that are not normalised differ by some learning rates.
    assert_rewards(source, rollouts, reward_of, learn, tolerance=1e-4 if normalise else 1e-2)
    assert source.figures()["online_lessons"] == network.lessons > 4


@pytest.mark.differs(
    "oni",
    there="the running variance begins with 1, which counts as 1e-4 values, and merges sample variances: 0.1 "
    "to 1.3 % more",
    here="it begins with the first batch, and divides by the number of values",
)
@pytest.mark.quick
def test_moments_are_those_of_everything_seen():
    rng, merged, everything = np.random.default_rng(0), RunningStats(), np.zeros(0)
    for size in (0, 1, 1, 5, 1000, 3):
        values = rng.normal(1e3, 1e-2, size)
        merged, everything = merged.merge(RunningStats.of(values)), np.append(everything, values)
        if everything.size:
            assert merged.number == everything.size
            assert merged.mean == pytest.approx(everything.mean(), rel=1e-12)
            assert merged.variance == pytest.approx(np.var(everything), rel=1e-9, abs=1e-18)
    assert RunningStats(1.0, 5.0, 0.0).normalise(np.array([5.0, 6.0])).tolist() == [0, 0]  # one value has no variance
