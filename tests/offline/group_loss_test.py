"""grpo and gigpo on games that the policy has written: against loops and TRL, and what must hold of whole rounds."""

import itertools
import json
import subprocess
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import slow_terms
from conftest import ROOT
from tiny_decoder import LANGUAGE, VOCABULARY, new_params, random_rows
from tiny_writer import make_value_model

from benchmarks.peers.processes import PeerError, install
from motif_jax.devices.mesh import make_mesh, map_update, replicate, shard
from motif_jax.envs.worlds import make_world
from motif_jax.language.model import ModelFunctions, as_functions
from motif_jax.offline.recipes import GroupLearning, OfflineSettings, recipe_of
from motif_jax.offline.update import (
    Play,
    TranscriptBatch,
    Weights,
    group_objective,
    init_state,
    make_update,
    next_tokens,
    restricted,
)
from motif_jax.policies.decoding import Decoding
from motif_jax.policies.writing import NOT_WRITTEN, Played, ValueWriter, play_tokens
from motif_jax.stages.train_values.learning import advantages, as_batch, weights
from motif_jax.structs import Episode, Turn
from motif_jax.transcripts.render import Rows

ALLOWED = np.arange(VOCABULARY) % 3 != 1


def batch_of(group, seed=0):
    """Rows of one episode each, whose written tokens are allowed ones."""
    rng, rows = np.random.default_rng(seed), random_rows(seed, 6)
    rows.is_action[:] &= ALLOWED[next_tokens(rows)]
    shape = rows.tokens.shape
    advantage = rng.normal(size=shape).astype(np.float32)
    written = (-2 + 0.5 * rng.normal(size=shape)).astype(np.float32)
    return TranscriptBatch(rows, play=Play(advantage, weights(rows.is_action, group, 40), written))


def loss_of(objective, given, batch):
    sums = jax.jit(objective.sums)(given, batch)
    return float(objective.loss(sums))


@pytest.mark.parametrize("values", [
    {}, {"ratio": "episode"}, {"clip_low": 0.1, "clip_high": 0.6}, {"mean_over": "episodes"}, {"mean_over": "limit"},
    {"reference_coefficient": 0.3}, {"reference_coefficient": 0.3, "ratio": "episode", "mean_over": "episodes"},
], ids=str)  # fmt: skip
def test_the_loss_is_that_of_loops_over_numbers(values):
    group, temperature = GroupLearning(**values), 0.7
    batch, now, start = batch_of(group), new_params(1), new_params(2)
    rows = batch.rows

    def logits(params):
        return LANGUAGE.logits(params, LANGUAGE.hidden(params, rows.tokens, rows.segments, None))

    wanted = slow_terms.loss(
        logits(now), logits(start), ALLOWED, temperature, rows.tokens, rows.is_action, batch.play.advantage,
        batch.play.log_written, group, 40,
    )  # fmt: skip
    model = restricted(LANGUAGE, jnp.asarray(ALLOWED), temperature)
    for chunk in (0, 5):
        loss = loss_of(group_objective(model, group, chunk), Weights({"policy": now}, {}, {"reference": start}), batch)
        np.testing.assert_allclose(loss, wanted, rtol=1e-4)


@pytest.mark.quick
def test_updates_lower_the_loss_and_a_batch_may_be_learnt_in_parts():
    group = GroupLearning(reference_coefficient=0.1)
    settings = OfflineSettings(learning_rate=1e-2, warmup_steps=0, max_gradient_norm=0.0)
    batch = batch_of(group)
    objective = group_objective(restricted(LANGUAGE, jnp.asarray(ALLOWED), 1.0), group, 0)
    results = []
    for parts in (1, 2):
        mesh = make_mesh(1)
        one = replace(settings, num_parts=parts)
        update = map_update(make_update(objective, one), mesh, batch_axis=0, num_constants=1)
        state = init_state(jax.random.key(0), LANGUAGE, recipe_of("grpo"), one, new_params(1), new_params(1))
        given = replicate({"reference": new_params(2)}, mesh)
        state, batches, losses = replicate(state, mesh), shard(batch, mesh), []
        for _ in range(3):
            state, metrics = update(state, given, batches)
            losses.append(float(metrics["loss"]))
        results.append((jax.device_get(state.learnt), np.array(losses)))
        assert losses[-1] < losses[0]
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6), *results)


def test_tokens_are_as_probable_in_learning_as_when_they_were_written(tmp_path):
    """So ratios begin at 1. The temperature is not 1, some tokens are not allowed, and contexts have several turns."""
    model = make_value_model("grpo")
    (tmp_path / "words.txt").write_text("abcde\nbcdea\ncdeab\nddabc\neabcd\naabbc")
    world = make_world({"world": "wordle", "options": json.dumps({"words": str(tmp_path / "words.txt")})})
    decoding = Decoding("sample", temperature=0.8, max_tokens=3, batch_size=4)
    games = play_tokens(world, ValueWriter(model, as_drawn=True), decoding, [0, 0, 1, 1], jax.random.key(3), 0, 1)
    assert all(len(game.tokens) == len(game.text) == len(game.log_probs) for game in games)
    assert max(max(game.text) for game in games) >= 2
    group = GroupLearning(group_size=2)
    batch = as_batch(games, group, None, 30)
    whole = as_functions(model.graph, model.config)
    sums, without = (
        group_objective(language, group, 0).sums(Weights({"policy": model.policy}, {}, {}), batch)
        for language in (restricted(whole, jnp.asarray(model.allowed), 0.8), whole)
    )
    assert float(sums["ratio_deviation"]) < 1e-4
    assert float(without["ratio_deviation"]) > 0.01  # under another distribution it is not 1


def played(rewards, tokens):
    """An episode of texts of one token each, behind these tokens and followed by an answer."""
    turns, text, row = [], [NOT_WRITTEN] * len(tokens), list(tokens)
    for number, reward in enumerate(rewards):
        turns += [Turn(f"{number}", reward), Turn("answer")]
        row += [20 + number, 9]
        text += [number, NOT_WRITTEN]
    return Played(Episode(tuple(turns), True), row, text, [-1.0] * len(row))


@pytest.mark.quick
@pytest.mark.parametrize("discount", [None, 0.9])
@pytest.mark.parametrize("divide_by", ["deviation", "nothing"])
def test_advantages_are_those_of_loops(discount, divide_by):
    games = [
        played([-1, -1, 0], [1, 2]), played([-1, -1, -1], [1, 2]), played([0], [1, 2]), played([-1, 0], [1, 2]),
        played([-1, -1], [3]), played([-1, -1], [3]), played([-1, -1], [3]), played([-1, -1], [3]),  # alike
        played([0], [4]), played([-1], [5]), played([-1e-6], [4]), played([0], [6]),
    ]  # fmt: skip
    group = GroupLearning(group_size=4, divide_by=divide_by, step_weight=0.5)
    rewards = [[turn.reward for turn in game.episode.turns if turn.is_action] for game in games]
    moments = [[tuple(game.tokens[: game.text.index(number)]) for number in range(len(of))]
               for game, of in zip(games, rewards, strict=True)]  # fmt: skip
    wanted = slow_terms.advantages([sum(of) for of in rewards], rewards, moments, 4, divide_by == "deviation",
                                    discount, 0.5)  # fmt: skip
    ours = advantages(games, group, discount)
    for one, other in zip(ours, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert not np.concatenate(ours[4:8]).any()  # a group whose games are equal teaches nothing


@pytest.mark.quick
def test_long_games_are_truncated():
    games = [played([-1.0, -1.0, -1.0], [1, 2]), played([0.0], [1, 2])]
    rows, _, play = as_batch(games, GroupLearning(group_size=2), None, 5)
    assert rows.is_action.sum(1).tolist() == [2, 1]
    assert rows.tokens[0, :5].tolist() == games[0].tokens[:5]
    assert (play.weight > 0).sum() == 3
    np.testing.assert_allclose(play.weight.sum(), 1.0, rtol=1e-6)
    assert not rows.segments[:, 5:].any()


# ---- TRL

ROWS, LENGTH, LIMIT = 6, 9, 16
MEANS = {"episodes": "grpo", "tokens": "bnpo", "limit": "dr_grpo"}  # ours, and `loss_type`
LEVELS = {"token": "token", "episode": "sequence"}  # ours, and `importance_sampling_level`
CASES = [
    {"mean_over": mean, "ratio": ratio, "reference_coefficient": beta, "clip_low": low, "clip_high": high}
    for mean, ratio, beta, (low, high) in itertools.product(MEANS, LEVELS, (0.0, 0.3), ((0.2, 0.0), (0.1, 0.5)))
]


@pytest.fixture(scope="module")
def trl_python():
    try:
        return install("trl", ROOT / ".venv-peers") / "bin" / "python"
    except PeerError as error:
        pytest.skip(f"TRL cannot be installed: {error}")


def as_trl(case):
    values = {"loss_type": MEANS[case["mean_over"]], "importance_sampling_level": LEVELS[case["ratio"]]}
    values |= {"beta": case["reference_coefficient"], "epsilon": case["clip_low"], "scale_rewards": "group"}
    return values | {"epsilon_high": case["clip_high"] or case["clip_low"], "max_completion_length": LIMIT}


@pytest.mark.slow
def test_the_loss_is_that_of_trl(trl_python, tmp_path):
    """GRPOTrainer._compute_loss, in an environment of its own."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, VOCABULARY, (ROWS, LENGTH + 1)).astype(np.int32)
    is_action = np.zeros((ROWS, LENGTH + 1), bool)
    is_action[:, :LENGTH] = np.arange(LENGTH) < rng.integers(1, LENGTH + 1, ROWS)[:, None]
    empty = np.zeros(tokens.shape, np.float32)
    rows = Rows(tokens, np.ones_like(tokens), is_action, is_action & False, empty, empty.astype(np.int8))
    logits = {name: rng.normal(size=(*tokens.shape, VOCABULARY)).astype(np.float32) for name in ("now", "start")}
    odds = {name: array - np.log(np.exp(array).sum(-1, keepdims=True)) for name, array in logits.items()}
    log_probs = {name: np.take_along_axis(array, np.asarray(next_tokens(rows))[..., None], -1)[..., 0]
                 for name, array in odds.items()}  # fmt: skip
    written = log_probs["now"] + 0.4 * rng.normal(size=tokens.shape).astype(np.float32)
    advantage = rng.normal(size=(ROWS, 1)).astype(np.float32) + empty
    arrays = log_probs | {"written": written, "mask": is_action.astype(np.float32)}
    cut = {name: one[:, :LENGTH] for name, one in arrays.items()}
    np.savez(tmp_path / "given.npz", advantage=advantage[:, 0], **cut)
    command = [trl_python, ROOT / "tests/offline/trl_losses.py", tmp_path / "given.npz"]
    done = subprocess.run([*command, json.dumps([*map(as_trl, CASES)])], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wanted = json.loads(done.stdout.splitlines()[-1])

    language = ModelFunctions(lambda params, *_: params, lambda params, hidden: hidden, VOCABULARY, VOCABULARY)
    policies = {name: jnp.asarray(array) for name, array in logits.items()}
    for case, loss in zip(CASES, wanted, strict=True):
        group = GroupLearning(**case)
        batch = TranscriptBatch(rows, play=Play(advantage, weights(is_action, group, LIMIT), written))
        given = Weights({"policy": policies["now"]}, {}, {"reference": policies["start"]})
        ours = loss_of(group_objective(language, group, 0), given, batch)
        assert ours == pytest.approx(loss, rel=1e-5, abs=1e-6), case
