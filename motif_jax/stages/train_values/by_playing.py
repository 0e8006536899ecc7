"""grpo and gigpo for worlds that are played by writing: each update learns from games that the policy plays for it.

G neighbouring games are a group: they begin alike, with the same seed. With R, the sum of an episode's rewards, and
R_t, the discounted sum from the agent's text t on, the advantage of all tokens of this text is

    grpo     (R - mean) / deviation                                   over the group's episodes
    gigpo    the same + step_weight (R_t - mean of R_t) / deviation   over the group's texts after the same tokens
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from motif_jax.console import print_line
from motif_jax.devices.mesh import map_update, replicate, shard
from motif_jax.envs.own_code import reported
from motif_jax.envs.seeding import SeedStream
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.worlds import make_world
from motif_jax.learner.groups import relative
from motif_jax.offline.batch import Play, TranscriptBatch
from motif_jax.offline.offline_settings import GroupLearning, settings_of
from motif_jax.offline.played import group_objective, restricted
from motif_jax.offline.update import OfflineState, Sums, make_update
from motif_jax.policies.conversations import NOT_WRITTEN, Played, play_tokens
from motif_jax.policies.decoding import decoding_in_training
from motif_jax.policies.writing import WIDTHS, ValueWriter
from motif_jax.stages.offline.epochs import FINITE, TrainingJob
from motif_jax.stages.offline.job import LanguageParts
from motif_jax.transcripts.render import TERMINAL, UNFINISHED, Rows

FIRST_GAME = 2**24  # number of the first game; those before it are for evaluations
EXACT = 1e-3  # mean deviation of ratios from 1 at the first update with new games, beyond which a line says so


def by_playing(
    job: TrainingJob, config: ConfigDict, parts: LanguageParts, writer: ValueWriter, mesh: Mesh
) -> TrainingJob:
    """The job of a recipe that plays, from one that reads transcripts; `writer` is the policy at the start."""
    section, world = config.train_values, make_world(config.env)
    assert isinstance(world, TextWorld)
    settings = settings_of(section, section.num_epochs * section.rounds * section.updates_per_round)
    decoding = decoding_in_training(writer.model.recipe, config.decoding, 0.0)
    language = restricted(parts.language, jnp.asarray(writer.model.allowed), decoding.temperature)
    update = map_update(
        make_update(group_objective(language, settings, section.chunk), settings), mesh, batch_axis=0, num_constants=1
    )
    given = replicate({"reference": parts.params} if settings.reference_coefficient else {}, mesh)
    discount = section.discount if writer.model.recipe.moments else None
    told = False

    def learn(state: OfflineState, number: int) -> tuple[OfflineState, Sums]:
        nonlocal told
        writer.swap(jax.device_get(state.learnt["policy"]), {}, {})
        first = FIRST_GAME + number * (section.batch_size // section.group_size)
        episodes = first + np.arange(section.batch_size) // section.group_size
        key = jax.random.fold_in(jax.random.key(config.seed), number)
        with reported(config.env):
            games = play_tokens(world, writer, decoding, episodes.tolist(), key, config.seed, SeedStream.TRAIN)
        batch = shard(as_batch(games, settings, discount, section.max_length), mesh)
        found = []
        for _ in range(section.updates_per_round):
            state, metrics = update(state, given, batch)
            found.append(metrics)
        away = float(found[0]["ratio_deviation"])
        if away > EXACT and not told:
            told = True
            print_line(
                f"{job.stage}: the policy's probabilities differ by {away:.1%} between writing and learning, so its "
                "ratios do not begin at 1; float32 is exact enough (--config.language.dtype)"
            )
        returns = np.array([game.episode.episode_return for game in games])
        spread = np.ptp(returns.reshape(-1, section.group_size), 1) > 0
        means = {name: sum(one[name] for one in found) / len(found) for name in found[0]}
        means[FINITE] = jnp.stack([one[FINITE] for one in found]).min()
        return state, means | {
            "return": returns.mean(), "texts": np.mean([max(game.text) + 1 for game in games]),
            "groups_that_differ": spread.mean(), "first_ratio_deviation": away,
        }  # fmt: skip

    return job._replace(
        num_steps=lambda epoch: section.rounds, batch=lambda epoch, step: epoch * section.rounds + step, update=learn
    )


def as_batch(games: Sequence[Played], group: GroupLearning, discount: float | None, max_length: int) -> TranscriptBatch:
    """The games as rows, with the advantage of each token; longer ones are cut.

    `games`: neighbours are groups. `discount`: of gigpo; None: grpo.
    """
    longest = min(max(len(game.tokens) for game in games), max_length)
    shape = len(games), -(-longest // WIDTHS) * WIDTHS
    tokens, segments, end = np.zeros((3, *shape), np.int32)
    is_action, closes = np.zeros((2, *shape), bool)
    reward, advantage, log_written = np.zeros((3, *shape), np.float32)
    of_texts = advantages(games, group, discount)
    for row, game in enumerate(games):
        size = min(len(game.tokens), longest)
        tokens[row, :size], segments[row, :size] = game.tokens[:size], 1
        end[row, size - 1] = TERMINAL if size == len(game.tokens) and game.episode.terminal else UNFINISHED
        text = np.array(game.text[:size])
        places = np.flatnonzero(text != NOT_WRITTEN)
        is_action[row, places - 1], log_written[row, places - 1] = True, np.array(game.log_probs)[places]
        advantage[row, places - 1] = of_texts[row][text[places]]
    rows = Rows(tokens, segments, is_action, closes, reward, end.astype(np.int8))
    return TranscriptBatch(rows, play=Play(advantage, weights(is_action, group, max_length), log_written))


def advantages(games: Sequence[Played], group: GroupLearning, discount: float | None) -> list[np.ndarray]:
    """The advantage of each of the agent's texts, by episode. [texts] each"""
    by_deviation, count = group.divide_by == "deviation", len(games)
    own = np.arange(count) // group.group_size

    def compare(values: list[float], ids: np.ndarray) -> np.ndarray:
        array = jnp.asarray(values, jnp.float32)
        return np.asarray(relative(array, jnp.ones(len(array), bool), jnp.asarray(ids), len(array), by_deviation))

    of_episode = compare([game.episode.episode_return for game in games], own)
    rewards = [[turn.reward or 0.0 for turn in game.episode.turns if turn.is_action] for game in games]
    found = [np.full(len(one), of_episode[at], np.float32) for at, one in enumerate(rewards)]
    if discount is None:
        return found
    moments: dict[tuple[int, tuple[int, ...]], int] = {}
    ids, to_go = [], []
    for at, game in enumerate(games):
        for number in range(len(rewards[at])):
            start = game.text.index(number) if number in game.text else len(game.tokens)
            moment = int(own[at]), tuple(game.tokens[:start])
            ids.append(moments.setdefault(moment, len(moments)))
            to_go.append(sum(reward * discount**later for later, reward in enumerate(rewards[at][number:])))
    of_text = compare(to_go, np.array(ids)) * group.step_weight
    return [one + part for one, part in zip(found, np.split(of_text, np.cumsum([*map(len, found)])[:-1]), strict=True)]


def weights(is_action: np.ndarray, group: GroupLearning, limit: int) -> np.ndarray:
    """The weight of each token in the loss; see `GroupLearning.mean_over`. [B, T] bool -> [B, T]"""
    length, rows = is_action.sum(1, keepdims=True), len(is_action)
    share = {
        "tokens": 1 / max(length.sum(), 1),
        "episodes": 1 / (np.maximum(length, 1) * rows),
        "limit": 1 / (limit * rows),
    }[group.mean_over]
    return (is_action * share).astype(np.float32)
