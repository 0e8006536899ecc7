"""GLAM in one file: a language model scores the names of actions in BabyAI-Text, and PPO trains it (arXiv 2302.02662).

    python examples/glam_loop.py                                                   # about three minutes on two cores
    python examples/glam_loop.py --lessons=2 --steps=1024 --evaluate=1 --width=16  # to see it run

It needs minigrid (`pip install -e '.[babyai]'`). It prints a prompt with the probabilities of all actions, a line for
every fourth update, and the mean return over the same new games before the model has read anything, after it has read a
manual, and after PPO. Returns are between 0 and 1.

Left out (and where it is): pretrained models (`language/hub.py`; `--config.policy.language.model=DIRECTORY` of
`configs/glam.py`) and low-rank additions to them; the paper's other formulas, heads and rewordings; worker processes;
checkpoints, several devices, intervals over seeds. The manual does not replace pretraining.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from motif_jax.actors.acting import SyncLoop
from motif_jax.actors.pool import ActorPool
from motif_jax.devices.mesh import local_copy, make_mesh
from motif_jax.envs.babyai.level_settings import BabyAISettings
from motif_jax.envs.babyai.manual import find_manual, make_examples, read_manual
from motif_jax.envs.babyai.world import BabyAIWorld
from motif_jax.envs.world import SeedStream, to_row
from motif_jax.language.config import make_config, to_record
from motif_jax.learner.settings import Settings
from motif_jax.policies.language_policy import PADDING
from motif_jax.policies.learning import make_learner, make_place
from motif_jax.policies.model import Model, PolicyPlayer, make_policy_model
from motif_jax.rewards.learnt_source import Mix
from motif_jax.rewards.source import RewardSources
from motif_jax.tokens import WordTokeniser

# A room of three by three cells with two things; the prompt shows one observation.
ENV = {"world": "babyai", "babyai": {"level": "GoToLocalS5N2", "window": 1}}
WORLD = BabyAIWorld(BabyAISettings.of(ENV))
TOKENISER = WordTokeniser.from_texts(WORLD.words)
NAMES = WORLD.action_names
GAMES, T, BATCH = 32, 32, 32  # games, steps per rollout, lessons of a batch
MAX_TOKENS, SHORT = 128, 96  # tokens of a prompt at most; of a lesson, as this room has few things


# ---- 1. the policy: logits of actions are log-probabilities of their names behind the prompt


def make_policy(width: int) -> Model:
    """A new small decoder that knows the words of BabyAI-Text, with a head for the value."""
    language = {
        "config": to_record(make_config("llama", TOKENISER.size, width, 4, 2)), "tokeniser": TOKENISER.text,
        "actions": list(NAMES), "head": "score", "formula": "sum", "hidden": 64, "reference_heads": False,
        "lora_rank": 0, "lora_alpha": 1.0, "lora_names": "", "max_tokens": MAX_TOKENS, "chunk": 0, "remat": False,
    }  # fmt: skip
    options = {"network": "language", "num_actions": len(NAMES), "dtype": "float32", "language": language}
    return make_policy_model(options, seed=0)


def encode(model: Model, prompts: list[str]) -> Any:
    """Observations of one step in B games, as the network takes them: {"tokens": [1, B, L]}"""
    rows = np.stack([to_row(prompt, WORLD.specs["prompt"].shape[0]) for prompt in prompts])
    return model.encode({"prompt": rows[None]})


def logits_of(model: Model, params: Any, observations: Any) -> jax.Array:
    """[B, A]"""
    first = jnp.ones(observations["tokens"].shape[:2], bool)
    return model.unroll(params, model.frozen, observations, first, jnp.zeros((first.shape[1], 0)))[0][0]


# ---- 2. reading: prompts of a manual, and the action that is right then


def read(model: Model, params: Any, count: int) -> Any:
    """Trains the policy to give the right action a high probability; returns the parameters."""
    lessons = [lesson for lesson in make_examples(read_manual(find_manual("goto")), window=1)
               if len(TOKENISER.encode(lesson.prompt)) <= SHORT]  # fmt: skip
    rng, optimizer = np.random.default_rng(0), optax.adam(2e-3)

    def loss_of(params: Any, observations: Any, right: jax.Array) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(logits_of(model, params, observations), right).mean()

    @jax.jit
    def update(params: Any, opt_state: Any, observations: Any, right: jax.Array) -> tuple[Any, Any, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(params, observations, right)
        changes, opt_state = optimizer.update(gradients, opt_state)
        return optax.apply_updates(params, changes), opt_state, loss

    opt_state, start = optimizer.init(params), time.monotonic()
    for step in range(1, count + 1):
        chosen = [lessons[number] for number in rng.integers(len(lessons), size=BATCH)]
        observations = encode(model, [lesson.prompt for lesson in chosen])
        room = ((0, 0), (0, 0), (0, SHORT - observations["tokens"].shape[-1]))  # one width: one compiled program
        observations = {"tokens": np.pad(observations["tokens"], room, constant_values=PADDING)}
        right = np.array([NAMES.index(lesson.action) for lesson in chosen], np.int32)
        params, opt_state, loss = update(params, opt_state, observations, right)
        if step % 50 == 0 or step == count:
            print(f"lesson batch {step:,} ({time.monotonic() - start:.0f} s): loss {float(loss):.3f}")
    return params


# ---- 3. playing: PPO on the game's own reward


def open_pool(player: PolicyPlayer, stream: SeedStream) -> ActorPool:
    """Games in this process, which ask for actions all at once. Evaluation's are other games than training's."""
    return ActorPool(ENV, player.reads, num_workers=0, games_per_worker=GAMES, groups=1, rollout_length=T,
                     slots_per_group=1, outputs=player.outputs, starts=player.starts, stream=stream)  # fmt: skip


def evaluate(model: Model, params: Any, episodes: int) -> float:
    """Mean return of the first episodes of evaluation's games."""
    player = PolicyPlayer(model._replace(params=params), GAMES, GAMES, seed=1)
    returns: dict[int, float] = {}
    with open_pool(player, SeedStream.EVALUATE) as pool:
        for batch in SyncLoop(pool, player, 1):
            ended = [one.info for group in batch.episodes for one in group]
            returns |= {info.episode: info.episode_return for info in ended if info.episode < episodes}
            if len(returns) == episodes:
                break
    return float(np.mean(list(returns.values())))


def play(model: Model, params: Any, steps: int) -> Any:
    """Trains by PPO; returns the parameters."""
    settings = Settings(algorithm="ppo", num_minibatches=4, learning_rate=4e-4, clip_ratio=0.2,
                        clip_value=0.0, exploration_coefficient=0.01, adam_eps=1e-5,
                        max_gradient_norm=0.5)  # fmt: skip
    learner = make_learner(model, RewardSources(), make_mesh(), settings, Mix())
    state, frozen = learner.begin(params)
    player = PolicyPlayer(model._replace(params=params), GAMES, GAMES, seed=0)
    done, number, start, recent = 0, 0, time.monotonic(), []
    with open_pool(player, SeedStream.TRAIN) as pool:
        for batch in SyncLoop(pool, player, 1, make_place(learner)):  # with prompts as tokens
            # learn: one update of the policy, which plays from then on
            state, metrics = learner.update(state, frozen, batch.arrays.rollouts)
            done, number = done + batch.steps, number + 1
            player.swap(player.prepare(local_copy(state.params), number), wait=True)
            recent += [one.info.episode_return for group in batch.episodes for one in group]
            if number % 4 == 1 or done >= steps:
                rate, entropy = done / (time.monotonic() - start), float(metrics["entropy"])
                mean = float(np.mean(recent)) if recent else float("nan")
                print(f"{done:7,} steps, {rate:5,.0f}/s: return {mean:.2f} in training, entropy {entropy:.2f}")
                recent = []
            if done >= steps:
                return state.params
    raise AssertionError("the games never end")


def main() -> None:
    """Runs the three parts one after another, with an evaluation before and after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=32, help="of the language model")
    parser.add_argument("--lessons", type=int, default=300, help="batches of lessons that it reads")
    parser.add_argument("--steps", type=int, default=16_384, help="of PPO")
    parser.add_argument("--evaluate", type=int, default=128, help="episodes of each evaluation")
    given = parser.parse_args()

    model = make_policy(given.width)
    prompt = next(make_examples(read_manual(find_manual("goto")), window=1)).prompt
    params, returns = model.params, {}

    def show(title: str) -> None:
        odds = jax.nn.softmax(logits_of(model, params, encode(model, [prompt])))[0]
        print(f"{title}: " + ", ".join(f"{name} {float(p):.0%}" for name, p in zip(NAMES, odds, strict=True)))
        returns[title] = evaluate(model, params, given.evaluate)

    print(prompt)
    show("before")
    params = read(model, params, given.lessons)
    show("after reading")
    params = play(model, params, given.steps)
    show("after PPO")
    print("; ".join(f"return {mean:.2f} {title}" for title, mean in returns.items()))


if __name__ == "__main__":
    main()
