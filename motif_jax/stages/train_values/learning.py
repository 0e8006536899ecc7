"""Trains values of texts, from transcripts and a policy to checkpoints; grpo and gigpo learn from games instead.

With grpo and gigpo, each update learns from games that the policy plays for it. G neighbouring games are a group: they
begin alike, with the same seed. With R, the sum of an episode's rewards, and R_t, the discounted sum from the agent's
text t on, the advantage of all tokens of this text is

    grpo     (R - mean) / deviation                                   over the group's episodes
    gigpo    the same + step_weight (R_t - mean of R_t) / deviation   over the group's texts after the same tokens
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.config.table import describe_changed, table_of
from motif_jax.console import print_line
from motif_jax.devices.mesh import map_update, replicate, shard
from motif_jax.devices.parameters import sum_of_arrays
from motif_jax.envs.own_code import reported
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.world import SeedStream
from motif_jax.envs.worlds import make_world
from motif_jax.files import checkpoint_steps
from motif_jax.language.config import find_trained
from motif_jax.learner.losses import relative
from motif_jax.offline.rankings import Rankings, best_texts, make_readers, ranks
from motif_jax.offline.recipes import GroupLearning, OfflineSettings, Recipe, recipe_of, settings_of
from motif_jax.offline.update import (
    OfflineState,
    Play,
    Replies,
    TranscriptBatch,
    group_objective,
    make_update,
    restricted,
)
from motif_jax.pages.blocks import Block, Heading, Paragraph, Table, Text, quoted
from motif_jax.policies import writing
from motif_jax.policies.decoding import Decoding, decoding_in_training
from motif_jax.policies.writing import POLICY, Played, ValueModel, ValueWriter, allowed_tokens, play_games, play_tokens
from motif_jax.run import StageRun
from motif_jax.stages import is_first_host, offline
from motif_jax.stages.offline import FINITE, Done, LanguageParts
from motif_jax.stages.train_language.model import make_parts, make_renderer, new_params, open_transcripts, write_model
from motif_jax.stages.train_values import FOLDER, ValuesConfig, ValuesSection, unused_values
from motif_jax.structs import UserError
from motif_jax.tokens import UNKNOWN_TOKEN, BuiltInTokeniser, Tokeniser
from motif_jax.transcripts.render import TEMPLATES, TERMINAL, UNFINISHED, EpochPlan, LiveRenderer, Renderer, Rows
from motif_jax.transcripts.store import Transcripts

FIRST_GAME = 2**24  # number of the first game; those before it are for evaluations
EXACT = 1e-3  # mean deviation of ratios from 1 at the first update with new games, beyond which a line says so
STAGE = "train_values"
LISTED = 12  # texts with the highest Q - V, on the page
REPLIED = 4  # the number of texts per row is rounded up to a multiple, since each number is compiled
FLAG = "--config.train_values.policy"


def train(config: ValuesConfig, workdir: Path) -> None:
    """Trains the values on the workdir's transcripts, or resumes an earlier run."""
    folder, section = workdir / FOLDER, config.train_values
    recipe = recipe_of(section.recipe)
    changed = describe_changed(STAGE, table_of(ValuesSection), vars(section), unused_values(recipe, section))
    if changed and is_first_host(config):
        print_line(f"{STAGE}: the recipe {section.recipe!r} makes no use of {changed}")
    with offline.open_session(config, section, workdir, STAGE, FOLDER) as session:
        stage, transcripts = session.stage, open_transcripts(config, workdir, session.hosts)
        language, flag = config.language, "--config.language.model"
        if section.start != "fresh":
            model = section.policy or str(find_trained(workdir, FLAG))
            language, flag = replace(language, model=model), FLAG
        if recipe.has_values and not transcripts.reward.any():
            none = f"none of the {len(transcripts):,} episodes has a reward, so there are no values to learn"
            raise UserError(f"{none} (--config.transcripts.import_from, .path)")
        parts = make_parts(language, transcripts, section, config.seed, flag, STAGE, recipe=recipe)
        check_known(parts.tokeniser, transcripts)
        renderer = renderer_of(config, recipe, transcripts, parts)
        trunk = None if section.start == "policy" else new_params(parts, config.seed + 1)
        bias = mean_to_go(transcripts) / section.reward_scale  # values begin at the mean reward-to-go
        kind = Playing if recipe.plays else Values
        learner = kind(config, session, recipe, transcripts, parts, renderer, trunk, bias)
        learner.identity["policy"] = sum_of_arrays(parts.params)
        learner.metadata["mean_return"] = float(transcripts.returns().mean())
        learner.metadata["emitted"] = renderer.emitted().tolist()  # tokens that decoding may write
        if stage.writes:
            report_lost(recipe, renderer, learner.writer.model.renderer.stop, section)
        if learner.plays_games:
            learner.writer.check(learner.decoding)
        with offline.resume(learner, session) as training:
            goes_on = checkpoint_steps(folder / "checkpoints") and (folder / POLICY).is_dir()
            if stage.writes and not (recipe.learns_policy and goes_on):
                write_model(folder / POLICY, parts, parts.params)  # so that the folder can be used alone
            stage.bind(config)
            training.run()
        if stage.writes:
            finish(stage, learner, training.done)


def renderer_of(config: ValuesConfig, recipe: Recipe, transcripts: Transcripts, parts: LanguageParts) -> Renderer:
    """The renderer, with the discount of the returns that the recipe learns from."""
    section = config.train_values
    discount = section.discount if recipe.from_returns else 1.0
    return make_renderer(transcripts, parts.tokeniser, config.transcripts.template, discount, section.keep)


class Values(offline.Learner):
    """Values of texts, and perhaps the policy; the return of games that are played with them may rank checkpoints."""

    title = "The values"
    config: ValuesConfig
    section: ValuesSection

    @functools.cached_property
    def writer(self) -> ValueWriter:
        """Writes with the policy at the start of training, without values, until it gets others."""
        parts, section = self.parts, self.section
        live = LiveRenderer(parts.tokeniser, TEMPLATES[self.config.transcripts.template])
        allowed = allowed_tokens(parts.config.vocabulary, self.renderer.emitted(), live)
        model = ValueModel(
            parts.config, parts.graph, parts.params, {}, {}, self.recipe, parts.tokeniser, live, allowed,
            section.reward_scale, (section.value_min, section.value_max),
        )  # fmt: skip
        return ValueWriter(model, as_drawn=self.recipe.plays)

    def batch(self, plan: EpochPlan, epoch: int, step: int) -> TranscriptBatch:
        """The batch, with replies if the recipe needs them: they depend on the seed, the batch and the row's number."""
        batch = super().batch(plan, epoch, step)
        if not self.recipe.of_replies:
            return batch
        most = max(sum(int(self.renderer.num_actions[episode]) for episode in row) for row in plan[step].rows)
        most = max(-(-most // REPLIED) * REPLIED, REPLIED)
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(self.config.seed), epoch), step)
        keys = jax.random.split(key, len(batch.rows.tokens))
        return batch._replace(replies=self.sample_replies(self.given["policy"], batch.rows, keys, most))

    @functools.cached_property
    def sample_replies(self) -> Any:
        """See `writing.make_replies`; the number of texts is the last argument."""
        model, allowed = self.writer.model, jnp.asarray(self.writer.model.allowed)
        count, length = self.section.replies, self.config.decoding.max_tokens

        def sample(policy: Any, rows: Rows, keys: jax.Array, max_texts: int) -> Replies:
            replies = writing.make_replies(model.graph, allowed, model.renderer.stop, count, length, max_texts)
            return replies(policy, rows, keys)

        return jax.jit(sample, static_argnums=3)

    @property
    def plays_games(self) -> bool:
        return self.stage.writes and self.section.games > 0

    @property
    def decoding(self) -> Decoding:
        """That of the games of evaluations."""
        return decoding_in_training(self.recipe, self.config.decoding, self.section.games_beta)

    @functools.cached_property
    def world(self) -> TextWorld:
        world = make_world(self.config.env)
        assert isinstance(world, TextWorld)
        return world

    def evaluate(self, state: OfflineState) -> dict[str, float]:
        means = super().evaluate(state)
        return means | {"return": self.play(jax.device_get(state))} if self.plays_games else means

    def rank(self, figures: dict[str, float]) -> float:
        return -figures["return"] if "return" in figures else super().rank(figures)

    def play(self, state: OfflineState) -> float:
        """The mean return of some games that are decoded with this state."""
        learnt = self.parts.whole(state.learnt)
        online = {name: part for name, part in learnt.items() if name not in ("policy", "q")}
        self.writer.swap(learnt.get("policy", self.parts.params), self.parts.whole(state.target), online)
        with reported(self.config.env):
            games = play_games(
                self.world, self.writer, self.decoding, range(self.section.games), seed=self.config.seed,
                stream=SeedStream.TRAIN,
            )  # fmt: skip
        return float(np.mean([game.episode_return for game in games]))


def check_known(tokeniser: Tokeniser, transcripts: Transcripts) -> None:
    """Raises UserError if a built-in tokeniser, made for other transcripts, does not know all texts of these."""
    for text in transcripts.texts() if isinstance(tokeniser, BuiltInTokeniser) else ():
        if UNKNOWN_TOKEN in tokeniser.encode(text):
            where = f"{text[:60]!r} in {str(transcripts.path)!r} ({FLAG}, --config.transcripts.path)"
            raise UserError(f"the policy's tokeniser, made for other transcripts, does not know all of {where}")


def report_lost(recipe: Recipe, renderer: Renderer, stop: int, section: ValuesSection) -> None:
    """Prints lines about texts that writing would end early, and about rewards that values do not learn from."""
    early = renderer.agent_texts_with(stop)  # texts of several lines with the template "lines"
    if early:
        print_line(
            f"{STAGE}: {early:,} of {int(renderer.num_actions.sum()):,} texts of the agent have their end mark inside, "
            "where writing would end (--config.transcripts.template)"
        )
    length, ends = section.max_length, section.keep == "end"
    lost = renderer.rewards_beyond(length)
    if recipe.has_values and (ends or not recipe.from_returns) and lost.any():
        where = f"before their last {length:,}" if ends else f"after their first {length:,}"
        others = "" if ends else ", and monte_carlo learns from all"
        flags = "--config.train_values.max_length" + (", .keep" if ends else ", .keep, .recipe")
        print_line(
            f"{STAGE}: {recipe.name} learns nothing from {lost.sum():,} rewards in {(lost > 0).sum():,} of "
            f"{len(lost):,} episodes, which come {where} tokens; the longest has {renderer.lengths.max():,}{others} "
            f"({flags})"
        )


def mean_to_go(transcripts: Transcripts) -> float:
    """The mean reward-to-go over all texts of the agent; 0 without texts."""
    reward = np.asarray(transcripts.reward, np.float64)
    before = np.cumsum(reward) - reward
    ends = np.concatenate([[0.0], np.cumsum(reward)])[transcripts.ends]  # sums up to each episode's end
    to_go = np.repeat(ends, transcripts.ends - transcripts.starts) - before
    return float(to_go[transcripts.is_action].mean()) if transcripts.is_action.any() else 0.0


def rank_texts(learner: Values, state: OfflineState) -> Rankings:
    """The texts with the highest advantages, and ranks of an expert's texts, for values per token."""
    section, parts, renderer, transcripts = learner.section, learner.parts, learner.renderer, learner.transcripts
    state = state._replace(learnt=parts.whole(state.learnt), target=parts.whole(state.target))
    readers = make_readers(parts.language, state, (section.value_min, section.value_max))
    width = min(section.max_length, int(renderer.lengths.max()))
    best = best_texts(readers["target"], renderer, transcripts, learner.held_out, width)
    return Rankings(best, ranks(readers, renderer, transcripts, width))


def finish(stage: StageRun, learner: Values, done: Done) -> None:
    """Writes the policy of the chosen state, if it was learnt, the report's part and the summary; prints a line.

    The chosen state is the best one by the return of games, or the last.
    """
    best = done.best if "valid_return" in done.best else {"steps": done.steps}
    chosen, state = offline.read_state(stage, learner, str(int(best["steps"])))
    rankings = rank_texts(learner, state) if learner.recipe.per_token else None
    if "policy" in state.learnt:
        write_model(stage.path / POLICY, learner.parts, state.learnt["policy"])
    if rankings:
        stage.write("rankings", rankings)
    recipe, size = learner.recipe.name, sum(array.size for array in jax.tree.leaves(state.learnt))
    result = {"recipe": recipe, "checkpoint": chosen, "parameters": size}
    offline.write_summary(stage, learner, done, result, *(blocks_of_rankings(rankings) if rankings else ()))
    said = f"best validation loss {done.best['valid_loss']:.4f}, which says little about play"
    if "valid_return" in best:
        said = f"best return {best['valid_return']:.2f} in the games of evaluations, after {chosen:,} updates"
    print_line(f"{STAGE}: {recipe}, {done.steps:,} updates, {size:,} parameters learnt; {said}")


def blocks_of_rankings(rankings: Rankings) -> list[Block]:
    """The texts with the highest Q - V, and ranks of an expert's texts."""
    body = list[Block]()
    if rankings.ranks:
        rows = []
        for at, one in rankings.ranks.items():
            online, target = (" ".join(f"{share:.0%}" for share in one[kind]) for kind in ("online", "target"))
            rows.append([f"{at}.", f"{one['pairs']:,}", online, target])
        body += [
            Heading("Does the expert's text have the higher Q?"),
            Paragraph(
                "For each moment there is a text by the expert and one by the other player. Share of moments in which "
                "the expert's text has the higher Q, at each of the last tokens; one half is chance.",
                "soft",
            ),
            Table(("text", "pairs", "Q itself", "its target"), rows, numbers=(1,), kind="fits"),
        ]
    if rankings.best:
        texts: list[list[Text]] = [
            [f"{one['advantage']:+.2f}", quoted(one["text"]), quoted(one["before"]) if one["before"] else ""]
            for one in rankings.best[:LISTED]
        ]
        body.append(Heading("Texts with the highest Q - V"))
        body.append(Table(("Q - V", "text", "after"), texts, numbers=(0,), kind="fits"))
    return body


# ---- learning from games that the policy plays


class Playing(Values):
    """A recipe that plays: in each step, some updates with the games of a round."""

    warned = False

    @functools.cached_property
    def settings(self) -> OfflineSettings:
        section = self.section
        return settings_of(section, section.num_epochs * section.rounds * section.updates_per_round)

    @functools.cached_property
    def given(self) -> dict[str, Any]:
        return replicate({"reference": self.parts.params} if self.settings.reference_coefficient else {}, self.mesh)

    @functools.cached_property
    def update(self) -> Any:
        temperature = self.config.decoding.temperature
        language = restricted(self.parts.language, jnp.asarray(self.writer.model.allowed), temperature)
        update = make_update(group_objective(language, self.settings, self.section.chunk), self.settings)
        return map_update(update, self.mesh, batch_axis=0, num_constants=1)

    def num_steps(self, epoch: int) -> int:
        return self.section.rounds

    def learn(self, state: OfflineState, epoch: int, step: int) -> tuple[OfflineState, dict[str, Any]]:
        section = self.section
        games = self.play_round(jax.device_get(state.learnt["policy"]), epoch * section.rounds + step)
        discount = section.discount if self.recipe.compares_visits else None
        batch = shard(as_batch(games, self.settings, discount, section.max_length), self.mesh)
        updates = []
        for _ in range(section.updates_per_round):
            state, metrics = self.update(state, self.given, batch)
            updates.append(metrics)
        away = float(updates[0]["ratio_deviation"])
        if away > EXACT and not self.warned:
            self.warned = True
            print_line(
                f"{STAGE}: the policy's probabilities differ by {away:.1%} between writing and learning, so its "
                "ratios do not begin at 1; float32 is exact enough (--config.language.dtype)"
            )
        returns = np.array([game.episode.episode_return for game in games])
        spread = np.ptp(returns.reshape(-1, section.group_size), 1) > 0
        means = {name: sum(one[name] for one in updates) / len(updates) for name in updates[0]}
        means[FINITE] = jnp.stack([one[FINITE] for one in updates]).min()
        return state, means | {
            "return": returns.mean(), "texts": np.mean([max(game.text) + 1 for game in games]),
            "groups_that_differ": spread.mean(), "first_ratio_deviation": away,
        }  # fmt: skip

    def play_round(self, policy: Any, number: int) -> list[Played]:
        """Plays games with these parameters; neighbours are a group."""
        self.writer.swap(policy, {}, {})
        section, decoding = self.section, decoding_in_training(self.recipe, self.config.decoding, 0.0)
        first = FIRST_GAME + number * (section.batch_size // section.group_size)
        episodes = (first + np.arange(section.batch_size) // section.group_size).tolist()
        seed = self.config.seed
        key = jax.random.fold_in(jax.random.key(seed), number)
        with reported(self.config.env):
            return play_tokens(self.world, self.writer, decoding, episodes, key, seed, SeedStream.TRAIN)


def as_batch(games: Sequence[Played], group: GroupLearning, discount: float | None, max_length: int) -> TranscriptBatch:
    """The games as rows, with the advantage of each token; longer ones are cut.

    `games`: neighbours are groups. `discount`: of gigpo; None: grpo.
    """
    longest = min(max(len(game.tokens) for game in games), max_length)
    shape = len(games), -(-longest // writing.WIDTHS) * writing.WIDTHS
    tokens, segments, end = np.zeros((3, *shape), np.int32)
    is_action, closes = np.zeros((2, *shape), bool)
    reward, advantage, log_written = np.zeros((3, *shape), np.float32)
    of_texts = advantages(games, group, discount)
    for row, game in enumerate(games):
        size = min(len(game.tokens), longest)
        tokens[row, :size], segments[row, :size] = game.tokens[:size], 1
        end[row, size - 1] = TERMINAL if size == len(game.tokens) and game.episode.terminal else UNFINISHED
        text = np.array(game.text[:size])
        places = np.flatnonzero(text != writing.NOT_WRITTEN)
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
    of_episodes = [np.full(len(one), of_episode[at], np.float32) for at, one in enumerate(rewards)]
    if discount is None:
        return of_episodes
    moments: dict[tuple[int, tuple[int, ...]], int] = {}
    ids, to_go = [], []
    for at, game in enumerate(games):
        for number in range(len(rewards[at])):
            start = game.text.index(number) if number in game.text else len(game.tokens)
            moment = int(own[at]), tuple(game.tokens[:start])
            ids.append(moments.setdefault(moment, len(moments)))
            to_go.append(sum(reward * discount**later for later, reward in enumerate(rewards[at][number:])))
    of_text = compare(to_go, np.array(ids)) * group.step_weight
    parts = np.split(of_text, np.cumsum([*map(len, of_episodes)])[:-1])
    return [one + part for one, part in zip(of_episodes, parts, strict=True)]


def weights(is_action: np.ndarray, group: GroupLearning, limit: int) -> np.ndarray:
    """The weight of each token in the loss; see `GroupLearning.mean_over`. [B, T] bool -> [B, T]"""
    length, rows = is_action.sum(1, keepdims=True), len(is_action)
    share = {
        "tokens": 1 / max(length.sum(), 1),
        "episodes": 1 / (np.maximum(length, 1) * rows),
        "limit": 1 / (limit * rows),
    }[group.mean_over]
    return (is_action * share).astype(np.float32)
