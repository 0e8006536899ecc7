"""ONI in one file: a judge is asked while the agent plays, and its labels become the agent's reward (arXiv 2410.23022).

    python examples/oni_loop.py                                  # about three minutes on two cores
    python examples/oni_loop.py --steps=4096 --evaluate=2048     # to see it run

The judge is a server process with OpenAI's protocol that answers by NetHack's lexicon, 50 ms a question. A line for
every tenth update has the numbers of messages and labels, and the agreement of the network with the labels. Before and
after training, the script prints the number of helpful messages in 500 steps, by the judge's rules and each message
once per episode, and NetHack's score, on which the agent is never trained.

This is ONI-classification: P(helpful) of a message, by a network. Left out (and where it is): the kinds `retrieval` and
`ranking`, schedules of goals, budgets and other orders of questions (`rewards/online/`); language models as judges
(`annotation/vllm_engine.py`, any server by its URL); actors that play while the learner learns; an answer cache on
disk; a judge that is down; checkpoints, several hosts, intervals over seeds. `configs/oni.py` has it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

from motif_jax.actors.acting import SyncLoop
from motif_jax.actors.pool import ActorPool
from motif_jax.annotation.annotator import Asking, AskingCounts, Question
from motif_jax.annotation.backends import Lexicon
from motif_jax.annotation.prompts import make_prompt
from motif_jax.annotation.rule_server import Judge, JudgeClient
from motif_jax.annotation.section import SamplingSection, ServerSection
from motif_jax.annotation.stream import Item, Stream
from motif_jax.captions import CaptionTable, decode, distinct_messages
from motif_jax.devices.mesh import local_copy, make_mesh
from motif_jax.envs.texts import read_texts
from motif_jax.envs.world import SeedStream
from motif_jax.envs.worlds import make_world
from motif_jax.learner.settings import Settings
from motif_jax.networks.reward import MessageClassifier
from motif_jax.policies.learning import make_learner, make_place
from motif_jax.policies.model import Model, PolicyPlayer, make_policy_model
from motif_jax.rewards.learnt_source import Mix
from motif_jax.rewards.source import RewardSource, RewardSources, Weighted

ENV = {"world": "nethack", "task": "score", "max_episode_steps": 500}
WORLD, GOAL = make_world(ENV), "defaultgoal"
TEXTS = read_texts(WORLD.about, WORLD.texts)
WORKERS, GAMES, T = 2, 32, 32  # processes, games in each, steps per rollout
EVENTS = ("event_message", "event_message_count")  # the message that a step led to; times its episode has shown it
LESSON, LESSONS, CHUNK = 64, 4, 256  # messages of a lesson; lessons per update; messages that are valued at once
NO_LIMIT = 2**62  # on questions


# ---- 1. the judge, a server; a thread of ours asks it


def ask_aside() -> Stream:
    """A stream: `plan` says what to ask next, `answers` returns what has come back. Neither waits."""

    def open_judge(counts: AskingCounts) -> Asking:
        prompt = make_prompt(TEXTS, "reason", GOAL, "default", one=True)  # is this message helpful?
        sampling = SamplingSection(temperature=0.1, top_p=0.95, top_k=50, max_tokens=256)
        judge = Judge(GOAL, prompt, TEXTS, delay_s=0.05, at_a_time=8)
        return Asking(JudgeClient(judge, ServerSection(in_flight=16), prompt, sampling), None, counts)

    return Stream(open_judge, AskingCounts("oni_loop"))


# ---- 2. the reward, which learns what the judge says


class OnlineReward(RewardSource):
    """Worth of a message: 1 where the network gives "helpful" more than one half, divided by n^3 at its n-th time."""

    def __init__(self, judge: Stream):
        """Knows nothing yet: all messages are worth 0."""
        self._judge, self.captions = judge, CaptionTable()
        self._new: list[np.ndarray] = []  # messages of the batch that is learnt from
        self.labels: dict[int, float] = {}  # P(helpful) by the number of the caption
        graph, params = nnx.split(MessageClassifier("lt_cnn_small", rngs=nnx.Rngs(0)), nnx.Param)
        optimizer = optax.adam(1e-3)
        self._state, self._lessons, self.agreement = (params, optimizer.init(params)), 0, float("nan")

        def loss_of(params: Any, messages: jax.Array, labels: jax.Array, key: jax.Array) -> Any:
            logits = nnx.merge(graph, params)(messages, key)  # [LESSON, 2]
            loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
            return loss, (logits.argmax(-1) == labels).mean()

        def teach(state: Any, messages: jax.Array, labels: jax.Array, key: jax.Array) -> Any:
            params, opt_state = state
            gradients, right = jax.grad(loss_of, has_aux=True)(params, messages, labels, key)
            changes, opt_state = optimizer.update(gradients, opt_state)
            return (optax.apply_updates(params, changes), opt_state), right

        self._teach = jax.jit(teach)
        self._odds = jax.jit(lambda params, messages: jax.nn.softmax(nnx.merge(graph, params)(messages))[:, 1])

    def rewards(self, rollouts: Mapping[str, np.ndarray]) -> np.ndarray:
        """The reward of each step of rollouts, by what is known now. [T, B]"""
        counts = rollouts["event_message_count"]
        self._new.append(rollouts["event_message"])
        if not self._lessons:
            return np.zeros(counts.shape, np.float32)
        messages, places, _ = distinct_messages(rollouts["event_message"].reshape(-1, 256))
        padded = np.pad(messages, ((0, -len(messages) % CHUNK), (0, 0)))
        odds = np.concatenate([self._odds(self._state[0], padded[at : at + CHUNK])
                               for at in range(0, len(padded), CHUNK)])  # fmt: skip
        return ((odds > 0.5)[places].reshape(counts.shape) / counts.astype(np.float32) ** 3).astype(np.float32)

    def advance(self, batch: Any, hosts: Any = None) -> None:
        """Takes the judge's answers, teaches the network, and plans what to ask next: the newest messages first."""
        self.captions.intern(self._new.pop())
        for item, answered in self._judge.answers():
            if answered.answer.yes is not None:
                self.labels[item.number] = answered.answer.yes
        unknown = [number for number in reversed(range(len(self.captions))) if number not in self.labels][:256]
        self._judge.plan([Item(number, 0, Question(self.captions.text(number))) for number in unknown], NO_LIMIT)
        if self.labels:
            known, right = np.array(list(self.labels)), []
            for _ in range(LESSONS):
                key = jax.random.fold_in(jax.random.key(0), self._lessons)
                chosen = np.random.default_rng((0, self._lessons)).choice(known, LESSON)
                labels = np.array([self.labels[number] > 0.5 for number in chosen.tolist()], np.int32)
                self._state, hits = self._teach(self._state, self.captions.messages[chosen], labels, key)
                self._lessons, right = self._lessons + 1, [*right, hits]
            self.agreement = float(np.mean(right))


# ---- 3. the agent (PPO with V-trace), which learns at the same time


def open_pool(player: PolicyPlayer, stream: SeedStream) -> ActorPool:
    """Games that ask for actions. Evaluation's are other games than training's."""
    return ActorPool(ENV, (*player.reads, *EVENTS), num_workers=WORKERS, games_per_worker=GAMES, groups=1,
                     rollout_length=T, slots_per_group=1, outputs=player.outputs, starts=player.starts,
                     warmup_steps=500, stream=stream)  # fmt: skip


def evaluate(model: Model, params: Any, steps: int) -> tuple[float, float]:
    """Plays other games: helpful messages in 500 steps, by the judge's own rules, and the mean score at an end."""
    player = PolicyPlayer(model._replace(params=params), WORKERS * GAMES, GAMES, seed=1)
    lexicon, helpful, scores = Lexicon(TEXTS, GOAL), [], []
    with open_pool(player, SeedStream.EVALUATE) as pool:
        for _, batch in zip(range(steps // (WORKERS * GAMES * T)), SyncLoop(pool, player, WORKERS), strict=False):
            messages, places, _ = distinct_messages(batch.arrays["event_message"].reshape(-1, 256))
            worth = np.array([lexicon.worth(decode(message))[0] > 0 for message in messages])[places]
            helpful.append((worth & (batch.arrays["event_message_count"].reshape(-1) == 1)).mean())
            scores += [ended.info.named(WORLD.figures)["score"] for group in batch.episodes for ended in group]
    return float(np.mean(helpful)) * 500, float(np.mean(scores)) if scores else float("nan")


def train(model: Model, reward: OnlineReward, steps: int) -> Any:
    """Trains policy and reward on the judge's labels alone; returns the policy's parameters."""
    sources = RewardSources([Weighted("online", "", 1.0, reward)])
    alone = Mix(extrinsic=0.0)  # without the game's reward
    learner = make_learner(model, sources, make_mesh(), Settings(learning_rate=1e-3), alone)
    state, frozen = learner.begin(model.params)
    player = PolicyPlayer(model, WORKERS * GAMES, GAMES, seed=0)
    start, done, number = time.monotonic(), 0, 0
    with open_pool(player, SeedStream.TRAIN) as pool:
        for batch in SyncLoop(pool, player, WORKERS, make_place(learner)):  # with the rewards of its steps
            # learn: one update of the policy, which plays from then on
            state, metrics = learner.update(state, frozen, batch.arrays.rollouts)
            done, number = done + batch.steps, number + 1
            player.swap(player.prepare(local_copy(state.params), number), wait=True)
            # ask: the judge's answers so far become lessons, new messages become questions
            sources.advance(batch, hosts=None)
            if number % 10 == 1 or done >= steps:
                rate, paid = done / (time.monotonic() - start), float(metrics["intrinsic_reward"])
                print(f"{done:9,} steps, {rate:6,.0f}/s: {len(reward.captions):,} messages, {len(reward.labels):,} "
                      f"labels, agreement {reward.agreement:.0%}, reward {paid:.4f} per step")  # fmt: skip
            if done >= steps:
                return state.params
    raise AssertionError("the games never end")


def main() -> None:
    """Trains with the judge at its side, between two evaluations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300_000, help="of the agent's training")
    parser.add_argument("--evaluate", type=int, default=65_536, help="steps of each evaluation")
    given = parser.parse_args()

    model = make_policy_model({"network": "small", "num_actions": len(WORLD.action_names), "dtype": "float32"}, seed=0)
    before = evaluate(model, model.params, given.evaluate)
    judge = ask_aside()
    try:
        params = train(model, OnlineReward(judge), given.steps)
    finally:
        judge.close()
    after = evaluate(model, params, given.evaluate)
    for title, (helpful, score) in (("before", before), ("after", after)):
        print(f"{title} training: {helpful:.1f} helpful messages in 500 steps, score {score:.1f}")


if __name__ == "__main__":
    main()
