"""ILQL in one file: recorded Wordle games -> a clone -> Q and V -> decoding with beta (Q - V) (arXiv 2206.11871).

    python examples/ilql_loop.py                                                 # some minutes on two cores
    python examples/ilql_loop.py --games=200 --clone=2 --values=2 --evaluate=8   # to see it run

It prints the return of the recorded games, losses, and the mean return of new games for several beta: in one run, -3.27
with beta 0 and -2.34 with beta 4. The recorded player repeats earlier guesses six times out of ten, and the clone
(beta 0) imitates this; the values correct it.

A state is all tokens so far, an action the next token of the agent. Q follows the reward and V of the next state, V a
high expectile of Q over the recorded actions, and CQL's term keeps Q of other tokens low: `sum_terms` in
`offline/update.py`, of which the recipe `bc` has the cross-entropy alone. The functions are those of the stages
train_language and train_values, whose loop is in `stages/offline.py`.

Left out (and where it is): the other recipes (`offline/recipes.py`: CQL, AWAC, values of whole utterances), pretrained
models, beam search and reranking, validation and the choice of a checkpoint, resuming, intervals over seeds.
`configs/ilql_quickstart.py` has all of this, with 40 words.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from flax import nnx

from motif_jax.actors.recorder import play_episodes
from motif_jax.devices.mesh import make_mesh, map_update, replicate, shard
from motif_jax.envs.wordle.world import Vocabulary, WordleWorld
from motif_jax.envs.world import SeedStream
from motif_jax.language.config import make_config
from motif_jax.language.model import ModelFunctions, as_functions, make_language_model
from motif_jax.offline.recipes import OfflineSettings, recipe_of
from motif_jax.offline.update import OfflineState, TranscriptBatch, init_state, make_update, objective_of
from motif_jax.policies.decoding import Decoding
from motif_jax.policies.writing import ValueModel, ValueWriter, allowed_tokens, play_games
from motif_jax.tokens import LetterTokeniser
from motif_jax.transcripts.render import TEMPLATES, LiveRenderer, Renderer, make_batch, planner
from motif_jax.transcripts.store import turns_of

PLAYER = "repeat*0.6+candidate*0.4"  # repeats a guess, or takes a word that fits all colours so far
WIDTH, BATCH, LONGEST = 64, 32, 80  # of the network; rows of a batch; tokens of a row
SETTINGS = OfflineSettings(learning_rate=1e-3, expectile=0.8, polyak=0.05)
BETAS = (0.0, 1.0, 4.0, 16.0)  # of the evaluation


class ShortWordle(WordleWorld):
    """Wordle with so few words that little play tells them apart."""

    vocabulary = Vocabulary(("apple", "beach", "chair", "dance", "flame", "grape", "house", "light", "music", "stone",
                             "tiger", "water"))  # fmt: skip


# ---- 1. recorded conversations


def batches(renderer: Renderer, episodes: int) -> Iterator[TranscriptBatch]:
    """Rows of tokens with masks and rewards, epoch after epoch. [B, T] each"""
    plan = planner(renderer, np.arange(episodes), packed=True, max_length=LONGEST, batch_rows=BATCH, seed=0)
    for epoch in itertools.count():
        planned = plan(epoch)
        for step in range(len(planned)):
            yield TranscriptBatch(make_batch(renderer, planned, step))


# ---- 2. the updates: of the policy, then of Q and V on a trunk that begins as the policy


def learn(
    name: str, settings: OfflineSettings, language: ModelFunctions, policy: Any, bias: float,
    rows: Iterator[TranscriptBatch], steps: int,
) -> OfflineState:  # fmt: skip
    """Learns by the recipe of this name from the parameters `policy` on. `bias`: where values begin."""
    recipe, mesh = recipe_of(name), make_mesh()
    update = make_update(objective_of(language, recipe, settings), settings)
    update = map_update(update, mesh, batch_axis=0, num_constants=1)
    state = init_state(jax.random.key(0), language, recipe, settings, policy, policy, bias)
    state, given = replicate((state, {} if recipe.learns_policy else {"policy": policy}), mesh)
    start = time.monotonic()
    for step, batch in zip(range(1, steps + 1), rows, strict=False):
        state, metrics = update(state, given, shard(batch, mesh))
        if step in (1, steps) or step % 100 == 0:
            shown = ", ".join(f"{term} {float(mean):.3f}" for term, mean in metrics.items() if "norm" not in term)
            print(f"{name}, update {step:,} ({time.monotonic() - start:.0f} s): {shown}")
    return jax.device_get(state)


# ---- 3. play: the policy's logits plus beta (Q - V)


def evaluate(world: WordleWorld, writer: ValueWriter, beta: float, games: int) -> float:
    """Mean return of games that were not recorded."""
    decoding = Decoding(beta=beta, max_tokens=6)
    found = play_games(world, writer, decoding, range(games), seed=0, stream=SeedStream.EVALUATE)
    return float(np.mean([game.episode_return for game in found]))


def main() -> None:
    """Runs the parts one after another."""
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
    network = make_config("gpt2", tokeniser.size, WIDTH, 2, 4, eos_token_id=tokeniser.end_id, pad_token_id=0,
                          n_positions=LONGEST)  # fmt: skip
    graph, params = nnx.split(make_language_model(network, seed=0))
    language, rows = as_functions(graph, network), batches(renderer, given.games)
    faster = replace(SETTINGS, learning_rate=2e-3)
    policy = learn("bc", faster, language, params, 0.0, rows, given.clone).learnt["policy"]
    values = learn("ilql", SETTINGS, language, policy, recorded / 2, rows, given.values)

    allowed = allowed_tokens(network.vocabulary, renderer.emitted(), live)
    online = {name: values.learnt[name] for name in ("trunk", "v")}
    model = ValueModel(network, graph, policy, values.target, online, recipe_of("ilql"), tokeniser, live, allowed)
    writer = ValueWriter(model)  # one compiled program for every beta
    for beta in BETAS:
        print(f"beta {beta:g}: mean return {evaluate(world, writer, beta, given.evaluate):.2f}")


if __name__ == "__main__":
    main()
