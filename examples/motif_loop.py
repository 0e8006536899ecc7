"""Motif in one file: pairs of messages -> preferences -> a reward network -> an agent trained on it (arXiv 2310.00166).

    python examples/motif_loop.py                                  # about three minutes on two cores
    python examples/motif_loop.py --collect=4000 --pairs=2000 --steps=4096 --evaluate=2048   # to see it run

It prints the reward's accuracy on validation pairs, the messages with the highest and lowest rewards, and a line for
every tenth update. Before and after training, it prints the learnt reward in 500 steps and NetHack's score, on which
the agent is never trained.

Left out (and where it is): language models as annotators, soft labels, several annotators (`annotation/`); datasets on
disk; rewards that read more than the message; actors that play while the learner learns (here they take turns, so
that the loop can be read); checkpoints, resuming, several devices and hosts; intervals over seeds.
`configs/motif.py` has all of this. The annotator here is a list of rules, `envs/nethack/texts/lexicon.toml`.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from motif_jax.actors.acting import SyncLoop
from motif_jax.actors.pool import ActorPool
from motif_jax.annotation.annotator import Question
from motif_jax.annotation.backends import Lexicon
from motif_jax.captions import CaptionTable
from motif_jax.devices.mesh import local_copy, make_mesh
from motif_jax.envs.texts import read_texts
from motif_jax.envs.world import SeedStream
from motif_jax.envs.worlds import make_world
from motif_jax.learner.metrics import numbers
from motif_jax.learner.settings import Settings
from motif_jax.policies.learning import make_learner, make_place
from motif_jax.policies.model import Model, PolicyPlayer, make_policy_model
from motif_jax.rewards.learnt_source import LearntSource, Mix, Reward
from motif_jax.rewards.preference import epoch_order, make_batches, make_model, split_rows, value_captions
from motif_jax.rewards.source import RewardSources, Weighted
from motif_jax.rewards.statistics import compare, summarise_values

ENV = {"world": "nethack", "task": "score", "max_episode_steps": 500}
WORLD = make_world(ENV)
WORKERS, GAMES, T = 2, 32, 32  # processes, games in each, steps per rollout
KEEP_EMPTY = 0.2  # share of the moments without a message that is kept: most have none
OPTIONS = {"message": "lt_cnn_small", "blstats": False, "crop": False, "glyphs": False}  # what the reward reads


# ---- 1. pairs of messages, from games of scripted players


def collect(steps: int, num_pairs: int, rng: np.random.Generator) -> tuple[CaptionTable, np.ndarray]:
    """Plays, and draws pairs of moments: the distinct messages, and the numbers of both messages of each pair [N, 2]"""
    captions, ids = CaptionTable(), []
    pool = ActorPool(ENV, ("event_message",), num_workers=WORKERS, games_per_worker=4, rollout_length=128,
                     player="explorer:0.8,random:0.2", stream=SeedStream.COLLECT)  # fmt: skip
    with pool:
        while sum(map(len, ids)) < steps:
            for full in pool.poll()[1]:
                ids.append(captions.intern(pool.rollouts["event_message"][full.slot].reshape(-1, 256)))  # [T E]
                pool.release(full)
    moments = np.concatenate(ids)
    silent = (captions.messages == 0).all(1)[moments]
    moments = moments[~silent | (rng.random(len(moments)) < KEEP_EMPTY)]
    return captions, rng.choice(moments, (num_pairs, 2))


# ---- 2. preferences, from an annotator


def annotate(captions: CaptionTable, pairs: np.ndarray) -> np.ndarray:
    """P(the second message is better) of each pair: 0, 1, or 1/2 for a tie. A question is asked once. [N]"""
    lexicon = Lexicon(read_texts(WORLD.about, WORLD.texts), "defaultgoal")
    texts = [captions.text(number) for number in range(len(captions))]
    questions, which = np.unique(pairs, axis=0, return_inverse=True)
    said = [lexicon.answer(Question(texts[first], texts[second])).yes for first, second in questions]
    print(f"{len(pairs):,} pairs of {len(texts):,} messages, {len(questions):,} questions")
    return np.array(said, np.float32)[which]


# ---- 3. a reward that agrees with the preferences (Bradley-Terry)


def train_reward(captions: CaptionTable, pairs: np.ndarray, target: np.ndarray, epochs: int) -> Reward:
    """Trains the reward network on P(second is better), and normalises it over the training data."""
    ids, split = pairs[..., None], split_rows(np.arange(len(pairs)), 0.2, seed=0)  # moments of one step. [N, 2, 1]
    model = make_model(OPTIONS, 5e-4, captions.messages, make_mesh())  # the loss is `preference.pair_loss`
    state = model.init(0)
    for epoch in range(epochs + 1):
        values = value_captions(model.value, state.params, model.table)  # [U]
        found = compare(values[pairs[split.validation]], target[split.validation])
        print(f"epoch {epoch}: validation loss {found['loss']:.3f}, accuracy {found['accuracy']:.1%}")
        if epoch == epochs:
            break
        order = epoch_order(split.train, 0, epoch)
        state = model.learn(state, make_batches(order, ids, target, 1024, model.mesh.size, least_items=512))

    counts = np.bincount(pairs[split.train].reshape(-1), minlength=len(values))
    reward = Reward(OPTIONS, state.params, summarise_values(values, counts), captions.messages, counts, {})
    for title, found in (("highest", reward.top(5)), ("lowest", reward.bottom(5))):
        print(f"{title} rewards: " + "; ".join(f"{one.value:.1f} {one.text!r}" for one in found))
    return reward


# ---- 4. an agent that is trained on it (PPO with V-trace)


def open_pool(player: PolicyPlayer, source: LearntSource, stream: SeedStream) -> ActorPool:
    """Games that ask for actions. Evaluation's are other games than training's."""
    return ActorPool(ENV, (*player.reads, *source.observations), num_workers=WORKERS, games_per_worker=GAMES,
                     groups=1, rollout_length=T, slots_per_group=1, outputs=player.outputs, starts=player.starts,
                     warmup_steps=500, stream=stream)  # fmt: skip


def evaluate(model: Model, params: Any, source: LearntSource, steps: int) -> tuple[float, float]:
    """Plays games that training never saw: mean of the learnt reward per 500 steps, and of the score at an end."""
    player = PolicyPlayer(model._replace(params=params), WORKERS * GAMES, GAMES, seed=1)
    rewards, scores = [], []
    with open_pool(player, source, SeedStream.EVALUATE) as pool:
        for _, batch in zip(range(steps // (WORKERS * GAMES * T)), SyncLoop(pool, player, WORKERS), strict=False):
            rewards.append(source.rewards(batch.arrays).mean())
            scores += [ended.info.named(WORLD.figures)["score"] for episode in batch.episodes for ended in episode]
    return float(np.mean(rewards)) * 500, float(np.mean(scores)) if scores else float("nan")


def train_policy(model: Model, source: LearntSource, steps: int) -> Any:
    """Trains on the learnt reward alone; returns the parameters."""
    sources = RewardSources([Weighted("learnt", "", 1.0, source)])
    alone = Mix(extrinsic=0.0)  # without the game's reward
    learner = make_learner(model, sources, make_mesh(), Settings(learning_rate=1e-3), alone)
    state, frozen = learner.begin(model.params)
    player = PolicyPlayer(model, WORKERS * GAMES, GAMES, seed=0)
    start, done, number = time.monotonic(), 0, 0
    with open_pool(player, source, SeedStream.TRAIN) as pool:
        for batch in SyncLoop(pool, player, WORKERS, make_place(learner)):  # with the learnt reward of its steps
            # learn: one update of the policy, which plays from then on
            state, measured = learner.update(state, frozen, batch.arrays.rollouts)
            done, number = done + batch.steps, number + 1
            player.swap(player.prepare(local_copy(state.params), number), wait=True)
            if number % 10 == 1 or done >= steps:
                metrics, rate = numbers(measured), done / (time.monotonic() - start)
                shown = [f"{name} {metrics[name]:.4f}" for name in ("intrinsic_reward", "entropy", "value_loss")]
                print(f"{done:9,} steps, {rate:6,.0f}/s: " + ", ".join(shown))
            if done >= steps:
                return state.params
    raise AssertionError("the games never end")


def main() -> None:
    """Runs the four parts one after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", type=int, default=60_000, help="steps of the scripted players")
    parser.add_argument("--pairs", type=int, default=20_000, help="pairs that are drawn from them")
    parser.add_argument("--epochs", type=int, default=4, help="of the reward's training")
    parser.add_argument("--steps", type=int, default=300_000, help="of the agent's training")
    parser.add_argument("--evaluate", type=int, default=65_536, help="steps of each evaluation")
    given = parser.parse_args()

    captions, pairs = collect(given.collect, given.pairs, np.random.default_rng(0))
    target = annotate(captions, pairs)
    reward = train_reward(captions, pairs, target, given.epochs)
    model = make_policy_model({"network": "small", "num_actions": len(WORLD.action_names), "dtype": "float32"}, seed=0)
    # Rewards up to the median are 0; the n-th appearance of a message in an episode is worth 1 / n^3 as much.
    mix = Mix(threshold=reward.statistics.quantile(0.5), count_exponent=3.0)
    source = LearntSource(reward, mix, one_step_late=False)
    before = evaluate(model, model.params, source, given.evaluate)
    params = train_policy(model, source, given.steps)
    after = evaluate(model, params, source, given.evaluate)
    for title, (learnt, score) in (("before", before), ("after", after)):
        print(f"{title} training: {learnt:.2f} of the learnt reward in 500 steps, score {score:.1f}")


if __name__ == "__main__":
    main()
