"""Trains values of texts, from transcripts and a policy to checkpoints; grpo and gigpo learn from games instead.

With grpo and gigpo, each update learns from games that the policy plays for it. G neighbouring games are a group: they
begin alike, with the same seed. With R, the sum of an episode's rewards, and R_t, the discounted sum from the agent's
text t on, the advantage of all tokens of this text is

    grpo     (R - mean) / deviation                                   over the group's episodes
    gigpo    the same + step_weight (R_t - mean of R_t) / deviation   over the group's texts after the same tokens
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from motif_jax.config.table import describe_changed, table_of
from motif_jax.console import print_line
from motif_jax.devices.checkpoints import read_saved
from motif_jax.devices.mesh import map_update, replicate, shard
from motif_jax.devices.parameters import leaves_by_path, rebuild, sum_of_arrays
from motif_jax.envs.own_code import reported
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.world import SeedStream
from motif_jax.envs.worlds import make_world
from motif_jax.files import checkpoint_steps
from motif_jax.language.config import find_trained
from motif_jax.learner.losses import relative
from motif_jax.offline.losses import Play, Replies, TranscriptBatch
from motif_jax.offline.rankings import Rankings, best_texts, make_readers, ranks
from motif_jax.offline.recipes import GroupLearning, Recipe, recipe_of, settings_of
from motif_jax.offline.update import OfflineState, Sums, group_objective, make_update, restricted
from motif_jax.pages.blocks import Block, Heading, Paragraph, Table, Text, quoted
from motif_jax.policies import writing
from motif_jax.policies.decoding import decoding_in_training
from motif_jax.policies.writing import POLICY, Played, ValueModel, ValueWriter, allowed_tokens, play_games, play_tokens
from motif_jax.run import StageRun
from motif_jax.stages import is_first_host, offline
from motif_jax.stages.offline import FINITE, Done, LanguageParts, Session, TrainingJob
from motif_jax.stages.train_language.model import make_parts, make_renderer, new_params, open_transcripts, write_model
from motif_jax.stages.train_values import FOLDER, ValuesConfig, ValuesSection, unused_values
from motif_jax.structs import UserError
from motif_jax.tokens import UNKNOWN_TOKEN, BuiltInTokeniser
from motif_jax.transcripts.render import TEMPLATES, TERMINAL, UNFINISHED, LiveRenderer, Renderer, Rows
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
    with offline.open_session(config, section, workdir, STAGE, FOLDER, open_transcripts) as session:
        stage, transcripts = session.stage, session.transcripts
        language, flag = config.language, "--config.language.model"
        if section.start != "fresh":
            model = section.policy or str(find_trained(workdir, FLAG))
            language, flag = replace(language, model=model), FLAG
        if recipe.has_values and not transcripts.reward.any():
            none = f"none of the {len(transcripts):,} episodes has a reward, so there are no values to learn"
            raise UserError(f"{none} (--config.transcripts.import_from, .path)")
        parts = make_parts(language, transcripts, section, config.seed, flag, STAGE, recipe=recipe)
        renderer = renderer_of(config, recipe, transcripts, parts)
        job = make_values_job(config, recipe, session, parts, renderer)

        def begin() -> None:
            goes_on = checkpoint_steps(folder / "checkpoints") and (folder / POLICY).is_dir()
            if stage.writes and not (recipe.learns_policy and goes_on):
                write_model(folder / POLICY, parts, parts.params)  # so that the folder can be used alone
            stage.bind(config)

        done = offline.train(job, session, begin).done
        if stage.writes:
            state = chosen_state(stage, job, done)
            rankings = rank_texts(config, recipe, parts, renderer, transcripts, state) if recipe.per_token else None
            finish(stage, parts, job, done, state, rankings)


def renderer_of(config: ValuesConfig, recipe: Recipe, transcripts: Transcripts, parts: LanguageParts) -> Renderer:
    """The renderer, with the discount of the returns that the recipe learns from."""
    section = config.train_values
    discount = section.discount if recipe.from_returns else 1.0
    return make_renderer(transcripts, parts.tokeniser, config.transcripts.template, discount, section.keep)


def make_values_job(
    config: ValuesConfig, recipe: Recipe, session: Session, parts: LanguageParts, renderer: Renderer
) -> TrainingJob:
    """The job of the training loop."""
    section, transcripts = config.train_values, session.transcripts
    if isinstance(parts.tokeniser, BuiltInTokeniser):  # made for other transcripts, perhaps; others know all texts
        for text in transcripts.texts():
            if UNKNOWN_TOKEN in parts.tokeniser.encode(text):
                where = f"{text[:60]!r} in {str(transcripts.path)!r} ({FLAG}, --config.transcripts.path)"
                raise UserError(f"the policy's tokeniser, made for other transcripts, does not know all of {where}")
    live = LiveRenderer(parts.tokeniser, TEMPLATES[config.transcripts.template])
    allowed = allowed_tokens(parts.config.vocabulary, renderer.emitted(), live)
    model = ValueModel(
        parts.config, parts.graph, parts.params, {}, {}, recipe, parts.tokeniser, live, allowed, section.reward_scale,
        (section.value_min, section.value_max),
    )  # fmt: skip
    writer = ValueWriter(model, as_drawn=recipe.plays)  # the policy at the start of training, without values
    if session.stage.writes:
        report_lost(recipe, renderer, live.stop, section)
    play = make_play(config, parts, writer) if section.games and session.stage.writes else None

    def figures(state: Any, means: dict[str, float]) -> dict[str, float]:
        if not play:
            return means
        played = play(jax.device_get(state))
        return means | {"return": played, offline.RANK: -played}

    job = offline.make_job(
        config, session, "The values", recipe, parts, renderer, figures,
        trunk=None if section.start == "policy" else new_params(parts, config.seed + 1),
        bias=mean_to_go(transcripts) / section.reward_scale,  # values begin at the mean reward-to-go
        identity={"policy": sum_of_arrays(parts.params)},
        metadata={
            "mean_return": float(transcripts.returns().mean()),
            "emitted": renderer.emitted().tolist(),  # tokens that decoding may write
        },
        replies=reply_source(config, model, session.mesh) if recipe.of_replies else None,
    )  # fmt: skip
    if recipe.plays:
        job = by_playing(job, config, parts, writer, session.mesh)
    return job


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


def reply_source(config: ValuesConfig, model: ValueModel, mesh: Mesh) -> offline.ReplySource:
    """A function that samples replies from the policy; they depend on the seed, the batch and the row's number."""
    allowed, stop = jnp.asarray(model.allowed), model.renderer.stop
    count, length = config.train_values.replies, config.decoding.max_tokens
    policy = replicate(model.policy, mesh)

    @functools.cache
    def program(max_texts: int) -> Any:
        return jax.jit(writing.make_replies(model.graph, allowed, stop, count, length, max_texts))

    def sample(rows: Rows, max_texts: int, drawn_by: tuple[int, int, int]) -> Replies:
        key = jax.random.key(drawn_by[0])
        for number in drawn_by[1:]:
            key = jax.random.fold_in(key, number)
        most = max(-(-max_texts // REPLIED) * REPLIED, REPLIED)
        return program(most)(policy, rows, jax.random.split(key, len(rows.tokens)))

    return sample


def mean_to_go(transcripts: Transcripts) -> float:
    """The mean reward-to-go over all texts of the agent; 0 without texts."""
    reward = np.asarray(transcripts.reward, np.float64)
    before = np.cumsum(reward) - reward
    ends = np.concatenate([[0.0], np.cumsum(reward)])[transcripts.ends]  # sums up to each episode's end
    to_go = np.repeat(ends, transcripts.ends - transcripts.starts) - before
    return float(to_go[transcripts.is_action].mean()) if transcripts.is_action.any() else 0.0


def rank_texts(
    config: ValuesConfig, recipe: Recipe, parts: LanguageParts, renderer: Renderer, transcripts: Transcripts,
    state: OfflineState,
) -> Rankings:  # fmt: skip
    """The texts with the highest advantages, and ranks of an expert's texts, for values per token."""
    section = config.train_values
    _, held = offline.choose_episodes(section, recipe, transcripts, config.seed)
    state = state._replace(learnt=parts.whole(state.learnt), target=parts.whole(state.target))
    readers = make_readers(parts.language, state, (section.value_min, section.value_max))
    width = min(section.max_length, int(renderer.lengths.max()))
    best = best_texts(readers["target"], renderer, transcripts, held, width)
    return Rankings(best, ranks(readers, renderer, transcripts, width))


def chosen_checkpoint(done: Done) -> int:
    """The number of the checkpoint that decoding reads: the best by the return of games, or the last."""
    return int(done.best["steps"] if "valid_return" in done.best else done.steps)


def chosen_state(stage: StageRun, job: TrainingJob, done: Done) -> OfflineState:
    """The state in this checkpoint, on the host."""
    folder = stage.path / "checkpoints"
    _, arrays, _ = read_saved(folder, "language model", str(chosen_checkpoint(done)))
    return rebuild(job.state, leaves_by_path(arrays["train"]), folder)


def finish(
    stage: StageRun, parts: LanguageParts, job: TrainingJob, done: Done, state: OfflineState, rankings: Rankings | None
) -> None:
    """Writes the policy of the chosen state, if it was learnt, the report's part and the summary; prints a line."""
    if "policy" in state.learnt:
        write_model(stage.path / POLICY, parts, state.learnt["policy"])
    if rankings:
        stage.write("rankings", rankings)
    chosen, size = chosen_checkpoint(done), sum(array.size for array in jax.tree.leaves(state.learnt))
    result = {"recipe": job.metadata["recipe"], "checkpoint": chosen, "parameters": size}
    offline.write_summary(stage, job, done, result, *(blocks_of_rankings(rankings) if rankings else ()))
    best = f"best validation loss {done.best['valid_loss']:.4f}, which says little about play"
    if "valid_return" in done.best:
        best = f"best return {done.best['valid_return']:.2f} in the games of evaluations, after {chosen:,} updates"
    print_line(f"{STAGE}: {job.metadata['recipe']}, {done.steps:,} updates, {size:,} parameters learnt; {best}")


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


def make_play(config: ValuesConfig, parts: LanguageParts, writer: ValueWriter) -> Callable[[OfflineState], float]:
    """A function from the state to the mean return of some games that are decoded with it."""
    section, world = config.train_values, make_world(config.env)
    assert isinstance(world, TextWorld)
    decoding = decoding_in_training(writer.model.recipe, config.decoding, section.games_beta)
    writer.check(decoding)

    def play(state: OfflineState) -> float:
        learnt = parts.whole(state.learnt)
        online = {name: part for name, part in learnt.items() if name not in ("policy", "q")}
        writer.swap(learnt.get("policy", parts.params), parts.whole(state.target), online)
        with reported(config.env):
            seeds = {"seed": config.seed, "stream": SeedStream.TRAIN}
            games = play_games(world, writer, decoding, range(section.games), **seeds)
        return float(np.mean([game.episode_return for game in games]))

    return play


# ---- learning from games that the policy plays


def by_playing(
    job: TrainingJob, config: ValuesConfig, parts: LanguageParts, writer: ValueWriter, mesh: Mesh
) -> TrainingJob:
    """The job of a recipe that plays, from one that reads transcripts; `writer` is the policy at the start."""
    section, world = config.train_values, make_world(config.env)
    assert isinstance(world, TextWorld)
    settings = settings_of(section, section.num_epochs * section.rounds * section.updates_per_round)
    decoding = decoding_in_training(writer.model.recipe, config.decoding, 0.0)
    language = restricted(parts.language, jnp.asarray(writer.model.allowed), decoding.temperature)
    update = make_update(group_objective(language, settings, section.chunk), settings)
    update = map_update(update, mesh, batch_axis=0, num_constants=1)
    given = replicate({"reference": parts.params} if settings.reference_coefficient else {}, mesh)
    discount = section.discount if writer.model.recipe.compares_visits else None
    warned = False

    def learn(state: OfflineState, number: int) -> tuple[OfflineState, Sums]:
        nonlocal warned
        writer.swap(jax.device_get(state.learnt["policy"]), {}, {})
        first = FIRST_GAME + number * (section.batch_size // section.group_size)
        episodes = first + np.arange(section.batch_size) // section.group_size
        key = jax.random.fold_in(jax.random.key(config.seed), number)
        with reported(config.env):
            games = play_tokens(world, writer, decoding, episodes.tolist(), key, config.seed, SeedStream.TRAIN)
        batch = shard(as_batch(games, settings, discount, section.max_length), mesh)
        updates = []
        for _ in range(section.updates_per_round):
            state, metrics = update(state, given, batch)
            updates.append(metrics)
        away = float(updates[0]["ratio_deviation"])
        if away > EXACT and not warned:
            warned = True
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

    return job._replace(
        num_steps=lambda epoch: section.rounds, batch=lambda epoch, step: epoch * section.rounds + step, update=learn
    )


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
