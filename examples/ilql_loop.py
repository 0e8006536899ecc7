"""ILQL in one file: recorded Wordle games -> a clone -> Q and V -> decoding with beta (Q - V) (arXiv 2206.11871).

    python examples/ilql_loop.py                                                 # about two minutes on two cores
    python examples/ilql_loop.py --games=200 --clone=2 --values=2 --evaluate=8   # to see it run

It prints the return of the recorded games, losses, and the mean return of new games for several beta: in one run, -3.75
with beta 0 and -2.95 with beta 4. The recorded player repeats earlier guesses six times out of ten, and the clone
(beta 0) imitates this; the values correct it.

Left out (and where it is): the other recipes (`offline/recipes.py`: CQL, AWAC, values of whole utterances), packed
rows of several episodes, pretrained models, beam search and reranking, validation and the choice of a checkpoint,
resuming, several devices, intervals over seeds. `configs/ilql_quickstart.py` has all of this, with 40 words.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from motif_jax.actors.recorder import play_episodes
from motif_jax.envs.wordle.world import Vocabulary, WordleWorld
from motif_jax.envs.world import SeedStream
from motif_jax.language.config import LanguageConfig, make_config
from motif_jax.language.model import make_language_model
from motif_jax.offline import losses, mdp
from motif_jax.offline.losses import masked_sum, next_tokens
from motif_jax.offline.recipes import recipe_of
from motif_jax.offline.values import apply_head, new_head, taken
from motif_jax.policies.decoding import Decoding
from motif_jax.policies.writing import ValueModel, ValueWriter, allowed_tokens, as_functions, play_games
from motif_jax.tokens import LetterTokeniser
from motif_jax.transcripts.render import TEMPLATES, LiveRenderer, Renderer, Rows
from motif_jax.transcripts.store import turns_of

PLAYER = "repeat*0.6+candidate*0.4"  # repeats a guess, or takes a word that fits all colours so far
WIDTH, BATCH, LONGEST = 64, 32, 80  # of the network; episodes of a batch; tokens of an episode
DISCOUNT, EXPECTILE, POLYAK, CONSERVATIVE = 0.99, 0.8, 0.05, 0.01
BETAS = (0.0, 1.0, 4.0, 16.0)  # of the evaluation
Params = Any
Update = Callable[[Any, Rows], tuple[Any, dict[str, jax.Array]]]


class ShortWordle(WordleWorld):
    """Wordle with so few words that little play tells them apart."""

    vocabulary = Vocabulary(("apple", "beach", "chair", "dance", "flame", "grape", "house", "light", "music", "stone",
                             "tiger", "water"))  # fmt: skip


# ---- 1. recorded conversations


def batches(renderer: Renderer, episodes: int) -> Iterator[Rows]:
    """Rows of tokens, an episode each, with masks and rewards, in random order for ever. [B, T] each"""
    rng = np.random.default_rng(0)
    while True:
        order = rng.permutation(episodes)
        for start in range(0, episodes - BATCH + 1, BATCH):
            yield renderer.rows(order[start : start + BATCH], LONGEST)


# ---- 2. the losses


class Network:
    """A small language model of letters, with its functions of parameters."""

    def __init__(self, tokeniser: LetterTokeniser):
        """Initialises the parameters."""
        self.config: LanguageConfig = make_config("gpt2", tokeniser.size, WIDTH, 2, 4, eos_token_id=tokeniser.end_id,
                                                  pad_token_id=0, n_positions=LONGEST)  # fmt: skip
        self.graph, self.params = nnx.split(make_language_model(self.config, seed=0))
        self.language = as_functions(self.graph, self.config)


def clone_loss(network: Network, params: Params, rows: Rows) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Cross-entropy of the agent's tokens; what the game says is read and not learnt."""
    logits = network.language.logits(params, network.language.hidden(params, rows.tokens, rows.segments, None))
    loss = masked_sum(losses.cross_entropy(logits, next_tokens(rows)), rows.is_action) / rows.is_action.sum()
    return loss, {"loss": loss}


def value_loss(
    network: Network, learnt: Params, target: Params, rows: Rows
) -> tuple[jax.Array, dict[str, jax.Array]]:  # fmt: skip
    """The losses of V and of two Q: a state is all tokens so far, an action the next token of the agent."""
    steps, action = mdp.token_steps(rows), next_tokens(rows)  # [B, T] each
    hidden = network.language.hidden(learnt["trunk"], rows.tokens, rows.segments, None)
    q_all = [apply_head(head, hidden) for head in learnt["q"]]  # [B, T, V] each
    values = apply_head(learnt["v"], hidden)[..., 0]  # [B, T]
    slow = network.language.hidden(target["trunk"], rows.tokens, rows.segments, None)
    target_q = jnp.minimum(*[taken(apply_head(head, slow), action) for head in target["q"]])

    # Q follows the reward and V of the next state; V follows a high expectile of Q over the recorded actions.
    following = jnp.take_along_axis(values, steps.next_state, 1)
    y = jax.lax.stop_gradient(losses.bootstrap(steps.reward, jnp.float32(steps.terminal), following, DISCOUNT))
    terms = {
        "q": sum(optax.squared_error(taken(q, action), y) for q in q_all),
        "v": losses.expectile_loss(jnp.take_along_axis(values, steps.state, 1), target_q, EXPECTILE),
        "conservative": CONSERVATIVE * sum(losses.cross_entropy(q, action) for q in q_all),
    }
    means = {name: masked_sum(term, steps.mask) / steps.mask.sum() for name, term in terms.items()}
    return jnp.asarray(sum(means.values())), means


# ---- 3. the updates


def train(title: str, update: Update, state: Any, rows: Iterator[Rows], steps: int) -> Any:
    """Applies an update again and again, and prints its losses; returns the last state."""
    start = time.monotonic()
    for step in range(1, steps + 1):
        state, means = update(state, next(rows))
        if step in (1, steps) or step % 100 == 0:
            shown = ", ".join(f"{name} {float(mean):.3f}" for name, mean in means.items())
            print(f"{title}, update {step:,} ({time.monotonic() - start:.0f} s): {shown}")
    return state


def clone(network: Network, rows: Iterator[Rows], steps: int) -> Params:
    """Trains the policy: a model of what the recorded player says."""
    optimizer = optax.adam(2e-3)

    @jax.jit
    def update(state: Any, rows: Rows) -> Any:
        params, opt_state = state
        gradients, means = jax.grad(lambda params: clone_loss(network, params, rows), has_aux=True)(params)
        changes, opt_state = optimizer.update(gradients, opt_state)
        return (optax.apply_updates(params, changes), opt_state), means

    return train("clone", update, (network.params, optimizer.init(network.params)), rows, steps)[0]


def learn_values(network: Network, policy: Params, bias: float, rows: Iterator[Rows], steps: int) -> Any:
    """Trains Q and V on a trunk that begins as the policy; returns what is learnt, and the targets."""
    keys, vocabulary = jax.random.split(jax.random.key(0), 3), network.config.vocabulary
    q = [new_head(key, WIDTH, vocabulary, bias) for key in keys[:2]]
    learnt = {"trunk": policy, "q": q, "v": new_head(keys[2], WIDTH, 1, bias)}
    target = {"trunk": policy, "q": q}
    optimizer = optax.adam(1e-3)

    @jax.jit
    def update(state: Any, rows: Rows) -> Any:
        learnt, target, opt_state = state
        slope = jax.grad(lambda learnt: value_loss(network, learnt, target, rows), has_aux=True)
        gradients, means = slope(learnt)
        changes, opt_state = optimizer.update(gradients, opt_state)
        learnt = optax.apply_updates(learnt, changes)
        newest = {name: learnt[name] for name in target}
        target = jax.tree.map(lambda slow, fast: (1 - POLYAK) * slow + POLYAK * fast, target, newest)
        return (learnt, target, opt_state), means

    return train("values", update, (learnt, target, optimizer.init(learnt)), rows, steps)[:2]


# ---- 4. play: the policy's logits plus beta (Q - V)


def evaluate(world: WordleWorld, writer: ValueWriter, beta: float, games: int) -> float:
    """Mean return of games that were not recorded."""
    decoding = Decoding(beta=beta, max_tokens=6)
    found = play_games(world, writer, decoding, range(games), seed=0, stream=SeedStream.EVALUATE)
    return float(np.mean([game.episode_return for game in found]))


def main() -> None:
    """Runs the four parts one after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=10_000, help="that are recorded")
    parser.add_argument("--clone", type=int, default=500, help="updates of the policy")
    parser.add_argument("--values", type=int, default=700, help="updates of Q and V")
    parser.add_argument("--evaluate", type=int, default=256, help="games of each evaluation")
    given = parser.parse_args()
    if given.games < BATCH:
        parser.error(f"--games is at least {BATCH}, a batch")

    world = ShortWordle()
    games = list(play_episodes(world, PLAYER, range(given.games), seed=0))  # texts of the agent, with rewards; answers
    recorded = float(np.mean([game.episode_return for game in games]))
    print(f"{given.games:,} recorded games of {PLAYER}: mean return {recorded:.2f}")
    turns, template = turns_of(games), TEMPLATES["marks"]
    tokeniser = LetterTokeniser.from_texts(turns.texts)
    renderer, live = Renderer(turns, tokeniser, template), LiveRenderer(tokeniser, template)
    network, rows = Network(tokeniser), batches(renderer, given.games)
    policy = clone(network, rows, given.clone)
    learnt, target = learn_values(network, policy, recorded / 2, rows, given.values)

    allowed = allowed_tokens(network.config.vocabulary, renderer.emitted(), live)
    online = {name: learnt[name] for name in ("trunk", "v")}
    model = ValueModel(network.config, network.graph, policy, target, online, recipe_of("ilql"), tokeniser, live,
                       allowed)  # fmt: skip
    writer = ValueWriter(model)  # one compiled program for every beta
    for beta in BETAS:
        print(f"beta {beta:g}: mean return {evaluate(world, writer, beta, given.evaluate):.2f}")


if __name__ == "__main__":
    main()
