"""Plays the episodes of an evaluation, adds up their rewards, and writes the results of each player.

Episodes 0 to N - 1 of the evaluation games, which are not used in training, are played to their end. Games run side by
side, so some later episodes are begun as well; they are not counted, so short episodes are not favoured. Each player
has a directory, `evaluate/NAME`: a line per episode, replays of some episodes, and a summary of what the episodes do
not tell. Figures are computed from the episodes (`pages/players.py`). Episodes of an interrupted or shorter run are
kept. The players of `evaluate.baselines` play the same games.

The games are the same in each evaluation. A policy that samples acts differently each time; a greedy policy acts the
same except for rounding, which depends on the number of games per call.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import math
import time
from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from motif_jax.actors.acting import Arrays, answer, make_batch
from motif_jax.actors.pool import Pools
from motif_jax.console import print_line
from motif_jax.devices.parameters import leaves_by_path
from motif_jax.envs.protocols import CONTROLS, is_variation
from motif_jax.envs.world import SeedStream, meanings_of
from motif_jax.envs.worlds import make_world
from motif_jax.episodes import playback
from motif_jax.episodes.playback import (
    Frames,
    Pieces,
    PlayedAgain,
    StepArrays,
    Track,
    read_tracks,
    write_tracks,
)
from motif_jax.files import checkpoint_steps, remove_folder, to_plain, write_lines
from motif_jax.language.config import is_language_model
from motif_jax.learner.acting import CHOOSER
from motif_jax.offline.recipes import Recipe
from motif_jax.pages.figures import WATCHED, Player, Watched, label
from motif_jax.pages.players import EPISODES, SUMMARY, read_players, with_statistics
from motif_jax.policies.choice import load
from motif_jax.policies.decoding import PRETRAINED, SCORE, Decoding, describe_unused
from motif_jax.policies.language_policy import make_language_policy
from motif_jax.policies.model import Model, PolicyPlayer, probabilities, read_policy
from motif_jax.policies.writing import Probabilities, ValueWriter, WritingPlayer, read_values
from motif_jax.replays.replay import load_replay, save_replay
from motif_jax.rewards.learnt_source import NO_REWARD, LearntSource, load_reward, make_mix
from motif_jax.rewards.registry import LEARNT, LEARNT_KIND, shown_source
from motif_jax.rewards.source import RewardSources, Weighted, trusted_classes
from motif_jax.run import Run, from_plain
from motif_jax.stages import evaluate, find_pools, with_result
from motif_jax.stages.evaluate import Contender, EpisodeRow, EvaluateConfig, file_of, results
from motif_jax.structs import EpisodeInfo, Turn, UserError, naming
from motif_jax.system.metrics import Progress, Timers
from motif_jax.transcripts.render import ConversationTokens

TRACKS = "tracks.npz"
RESULTS = (SUMMARY, EPISODES, TRACKS)  # of a player, beside `player.json`
GROUPS = 2  # per worker: one plays while the other waits for actions
ROLLOUT = 64  # steps per rollout
ROLLOUT_WRITTEN = 4  # the same for policies that write: their games have few steps, and each takes long
FEW = 9  # with at most this many actions, the probabilities of all of them are kept
KEEP_EVERY_S = 20.0  # seconds between saves: the most work that a kill loses
KEEP_PER_S = 20.0  # additional seconds for each second of the last save: thousands of episodes take long to write

REWARD = "reward of "  # before a source's name: the rewards of an episode's steps
TERM = "term of "  # before a source's name, ": " and the text of a term: likewise

MOST_LIKELY = 4  # tokens shown of each distribution
LONGEST_TEXT = 64  # tokens of a text; the rest is left out


def run(config: EvaluateConfig, workdir: Path) -> None:
    """Evaluates each player without an up-to-date summary, and prints a table of the results."""
    loaded: Writers = {}
    played: dict[str, list[str]] = {}  # names of players by the protocol of their games
    evaluated = read_players(workdir)
    for asked in evaluate.with_variations(config):
        players = evaluate.find_contenders(asked, workdir)
        names = played[asked.evaluate.protocol] = [contender.name for contender, _ in players]
        due = [(one, flag) for one, flag in players if not evaluate.is_evaluated(asked, workdir, one)]
        check_decodings(asked, workdir, due, loaded)
        for contender, flag in sorted(due, key=lambda one: not one[0].variant):  # a wrong one is refused at once
            with contextlib.closing(Evaluation(asked, workdir, contender, flag, loaded)) as evaluation:
                evaluation.play()
                summary = evaluation.summarise()
                evaluated[contender.name] = evaluation.player(summary)
                results.report_evaluation(workdir, evaluated)
                evaluation.complete(summary)
        if players[-1][0].decoding:
            results.print_sweep(evaluated, names)
        elif not config.evaluate.controls:
            results.print_table(workdir, evaluated, names[-1], make_world(config.env).figures)
    if config.evaluate.controls:
        results.print_controls(evaluated, played, CONTROLS[config.evaluate.controls])


def check_decodings(
    config: EvaluateConfig, workdir: Path, due: Iterable[tuple[Contender, str]], loaded: Writers
) -> None:
    """Loads every policy that writes, so that errors come before the first game; tells what decodings leave unused."""
    decodings: dict[tuple[str, Recipe], list[Decoding]] = {}
    for contender, flag in due:
        if contender.decoding:
            recipe = load_writer(config, workdir, contender, flag, loaded).model.recipe
            decodings.setdefault((contender.path, recipe), []).append(contender.decoding)
    for (_, recipe), several in decodings.items():
        for line in describe_unused(recipe, several):
            print_line(f"evaluate: {line}")


class Evaluation:
    """The episodes of one player, in `workdir/evaluate/NAME`."""

    def __init__(self, asked: EvaluateConfig, workdir: Path, contender: Contender, flag: str, loaded: Writers):
        """Reads the episodes that were played before, or removes them if the player has changed since.

        `flag` names the player in the config; `loaded` keeps policies that the next contender may share.
        """
        self.asked, self.config, self.wanted = asked, asked.by_protocol(), asked.evaluate.episodes
        self.workdir, self.contender = workdir, contender
        self.stage = Run(workdir).stage("evaluate", f"evaluate/{contender.name}")  # the workdir is locked
        self.playing = make_playing(self.config, workdir, contender, flag, loaded)
        self.metadata = self.playing.metadata | asked.protocol.about()
        self.rows: dict[int, EpisodeRow] = {}  # also those of an evaluation with more episodes; they are not counted
        self.tracks: dict[int, Track] = {}
        self.steps, self.seconds = 0, 0.0  # new ones
        folder, name = self.stage.path, contender.name
        before = self.stage.read("player", dict) if with_result(folder, EPISODES, SUMMARY) else None
        if before and before["path"] != contender.path:
            raise UserError(
                f"{str(folder)!r} belongs to another policy of this name, {before['path']!r}: move it away, or use "
                f"another --workdir ({flag})"
            )
        if before == self.metadata:
            self.tracks = read_tracks(folder / TRACKS)
            self.rows = {row["episode"]: row for row in evaluate.read_rows(folder / EPISODES)}
            if counted := self.counted:
                print_line(f"evaluate: {len(counted):,} of {self.wanted:,} episodes of {name} were played before")
            self.tell_changes()
        else:
            if before:
                what = evaluate.changed(before, self.metadata)
                print_line(f"evaluate: {name} is played again, as these facts about it have changed: {what}")
            for result in RESULTS:
                (folder / result).unlink(missing_ok=True)
            remove_folder(folder / evaluate.RECORDINGS)
            self.stage.write("player", self.metadata)
        (folder / SUMMARY).unlink(missing_ok=True)  # it may be of another number of episodes, or of a changed player
        self.stage.bind(asked)
        self.frames = evaluate.find_frames(self.config, folder)

    def close(self) -> None:
        self.frames.close()

    def tell_changes(self) -> None:
        """Prints why the same episodes are summed up again, if that is not for their number."""
        before, now = self.stage.read("summary", dict), evaluate.stamp(self.config, self.workdir, self.contender)
        if before and (what := evaluate.changed(before["stamp"], now)):
            print_line(f"evaluate: {self.contender.name} is completed again, as these have changed: {what}")

    @property
    def counted(self) -> dict[int, EpisodeRow]:
        return {number: self.rows[number] for number in sorted(self.rows) if number < self.wanted}

    def play(self) -> None:
        """Plays the missing episodes, and writes them at times."""
        if self.frames.folder:
            print_line("evaluate: this game cannot be repeated exactly: it can only be recorded while it is played")
        missing, chosen = set(range(self.wanted)) - self.rows.keys(), evaluate.choose(self.config, self.counted)
        self.frames.keep(chosen.values())
        done, keeping = self.wanted - len(missing), 0.0
        start = kept = time.monotonic()
        pools = Pools() if self.frames.folder else find_pools(self.config)  # recordings are files of this host
        played = play(self.config, self.playing, missing, done, self.frames, pools)
        try:
            for row, track in played:
                number = row["episode"]
                self.rows[number], self.tracks[number] = row, track
                self.steps += row["steps"]
                so_far = {episode: self.rows[episode] for episode in (*chosen.values(), number)}
                chosen = evaluate.choose(self.config, so_far)
                self.frames.keep(chosen.values())
                if (now := time.monotonic()) - kept > KEEP_EVERY_S + KEEP_PER_S * keeping:
                    self.save()
                    kept = time.monotonic()
                    keeping = kept - now
        finally:
            played.close()
            self.save()  # also if a signal ends the program
        self.seconds = time.monotonic() - start
        rows = self.counted.values()
        if rows and self.frames.folder and all(row["did"] is None for row in rows):
            print_line(
                "evaluate: no episode was recorded, so replays and events are missing: the world's "
                "own Vector lacks the method `replace_games` (as in motif_jax/envs/sequential.py)"
            )

    def save(self) -> None:
        if self.rows:  # at a kill, each line has its steps, and the lines on disk choose among the recordings there
            self.frames.save()
            write_tracks(self.stage.path / TRACKS, self.tracks)
            write_lines(self.stage.path / EPISODES, [row for _, row in sorted(self.rows.items())])
            self.frames.remove_others()

    def replays(self) -> dict[str, int]:
        """The episode of each word whose replay can be made, and is; removes all other replays."""
        kept = evaluate.choose(self.config, self.counted)
        for number in sorted(set(kept.values())):
            file, row = file_of(self.stage.path, number), self.rows[number]
            metadata = evaluate.replay_metadata(
                self.config, self.metadata, [word for word, episode in kept.items() if episode == number]
            )
            replay = self.frames.replay(row, self.tracks[number], metadata)
            if isinstance(replay, str) and file.is_file():  # of version 0.2.0, which kept no recordings
                before = load_replay(file, evaluate.REPLAYS_FLAG)
                if before.metadata["figures"] == row:
                    replay = before._replace(metadata=before.metadata | metadata)
            if isinstance(replay, str):
                print_line(f"evaluate: no replay of episode {number}: it {replay}")
                kept = {word: episode for word, episode in kept.items() if episode != number}
            else:
                save_replay(file, replay)
        shown = {file_of(self.stage.path, number) for number in kept.values()}
        for file in {*(self.stage.path / "replays").glob("episode-*.npz")} - shown:
            file.unlink()
        return kept

    def summarise(self) -> dict[str, Any]:
        """Writes the replays; returns what `summary.json` has: all that the episodes do not tell."""
        replays = self.replays()
        if self.playing.writer and self.contender.decoding and isinstance(self.frames, PlayedAgain):
            shown = {number: self.tracks[number] for number in sorted(set(replays.values()))}
            turns = letters(self.frames, self.playing.writer, self.contender.decoding, shown)
            self.stage.write("letters", {"episodes": turns})
        protocol, world = self.asked.protocol, make_world(self.config.env)
        return self.metadata | {
            "stamp": evaluate.stamp(self.config, self.workdir, self.contender),
            "seed": self.config.seed,
            "episodes": self.wanted,
            "episodes_given_up": [number for number in range(self.wanted) if number not in self.rows],
            "repeatable": not self.frames.folder,
            "task": protocol.task(self.config.env),
            "rules": protocol.rules,
            "measures": [*world.figures],
            "meanings": [one._asdict() for one in meanings_of(world)],
            "families": [*getattr(world, "families", ())],  # names of the kinds of missions, by number
            "aims": sorted(evaluate.rules_of(world).aims),
            "seconds": round(self.seconds, 1),
            "steps_per_s": round(self.steps / self.seconds),
            "chosen": self.config.evaluate.replays,
            "replays": replays,
        }

    def player(self, summary: dict[str, Any]) -> Player:
        """The player with its figures; writes its replays for the page."""
        player: Player = from_plain(Player, with_statistics(summary, self.counted.values()))
        shown = dict.fromkeys(number for _, number in sorted(summary["replays"].items()))
        packed = (results.packed_replay(file_of(self.stage.path, number), label(player)) for number in shown)
        self.stage.write(WATCHED, Watched(tuple(packed)))
        return player

    def complete(self, summary: Mapping[str, Any]) -> None:
        self.stage.write("summary", summary)  # last, as the player is evaluated when it exists
        print_line(
            f"evaluate: {self.wanted:,} episodes, {self.steps:,} new steps in {self.seconds:,.0f} s; {self.stage.path}"
        )


# ---- the player and its rewards


class LoadedPlayer(NamedTuple):
    """A loaded player with its reward sources."""

    contender: Contender
    sources: RewardSources
    # What the player is; checksums of its parameters, and of the reward sources with all their settings; the goal.
    metadata: dict[str, Any]
    model: Model | None = None
    writer: ValueWriter | None = None  # of a policy that writes


def make_playing(
    config: EvaluateConfig, workdir: Path, contender: Contender, flag: str, loaded: Writers
) -> LoadedPlayer:
    """Loads the policy and its reward sources; without a learnt reward of its own it gets the workdir's.

    `loaded` keeps policies that write, with their compiled programs, for further decodings.
    """
    world, metadata = make_world(config.env), contender.metadata()
    model: Model | None = None
    writer: ValueWriter | None = None
    of_actions = contender.path and not contender.decoding and not is_language_model(contender.path)
    # Before a language model: this may load the workdir's policy, and fails at once on a wrong reward.
    sources = RewardSources() if of_actions else sources_of_workdir(config, workdir)
    if contender.decoding:
        writer = load_writer(config, workdir, contender, flag, loaded)
        metadata["recipe"] = writer.model.recipe.name
        if any(map(math.isfinite, bounds := writer.model.bounds)):
            metadata["bounds"] = to_plain(bounds)
    elif contender.path and not of_actions:
        language = replace(config.policy.language, model=contender.path, weights=PRETRAINED, head=SCORE, lora_rank=0)
        changed = replace(config, policy=replace(config.policy, language=language))
        _, model = make_language_policy(changed, world, workdir, learns=False)
        metadata["formula"] = language.formula
    elif of_actions:
        path = str(workdir) if contender.path == "." else contender.path
        trusted = trusted_classes(config, config.policy.network)
        model, trained, sources = load(path, contender.step, world, flag, trusted)
        if left_out := sorted(trained.get("sources", {}).keys() - {one.name for one in sources}):
            print_line(
                f"evaluate: {contender.name} was trained with {', '.join(left_out)}, reward sources that this config "
                "does not name: their returns are left out (--config.policy.sources)"
            )
        report_other_games(contender.name, trained["config"].get("env", {}), config)
        if contender.variant:
            with naming(flag):
                model = model._replace(acting=model.acting.variant(contender.variant))
        metadata |= {"choosers": [*model.acting.names]} if model.acting.names else {}
    if of_actions and not sources.learnt:
        of_workdir = (one for one in sources_of_workdir(config, workdir) if one.source.is_learnt)
        sources = RewardSources([*of_workdir, *sources])
    metadata["parameters"] = sum_of(model) if model else writer.model.checksum() if writer else None
    metadata |= sources.learnt.about() if sources.learnt else NO_REWARD
    if others := sources.about():
        metadata["sources"] = others
    return LoadedPlayer(contender, sources, metadata, model, writer)


def sum_of(model: Model) -> str:
    """The checksum of a policy's parameters."""
    checksum = hashlib.sha256()
    for leaf in jax.tree.leaves((model.params, model.frozen)):
        checksum.update(np.asarray(leaf).tobytes())
    return checksum.hexdigest()


def sources_of_workdir(config: EvaluateConfig, workdir: Path) -> RewardSources:
    """The reward sources of the workdir's policy; without a learnt one among them, the config's learnt reward."""
    sources, own, section = RewardSources(), workdir / "policy/checkpoints", config.policy
    if steps := checkpoint_steps(own):
        _, _, sources = read_policy(own, str(steps[-1]), trusted_classes(config, section.network))
    if sources.learnt or not (section.reward_dir or checkpoint_steps(workdir / "reward/checkpoints")):
        return sources
    reward = load_reward(section.reward_dir or workdir, section.reward_checkpoint)
    learnt = LearntSource(reward, make_mix(section, reward), section.reference_alignment)
    return RewardSources([Weighted(LEARNT, LEARNT_KIND.path, section.intrinsic_coefficient, learnt), *sources])


# By path and step, all policies loaded so far; only the last one stays in memory, the others are None.
Writers = dict[tuple[str, int], ValueWriter | None]


def load_writer(config: EvaluateConfig, workdir: Path, contender: Contender, flag: str, loaded: Writers) -> ValueWriter:
    """The policy that writes of a contender, from `loaded` or from its checkpoint.

    Raises UserError if it was trained in another world, or if its decoding needs values that it has not learnt.
    """
    assert contender.decoding
    key = contender.path, contender.step
    writer = loaded.get(key)
    if not writer:
        again = key in loaded
        loaded.update(dict.fromkeys(loaded))
        folder = contender.folder(workdir)
        with naming(flag):
            model, metadata = read_values(folder, str(contender.step))
        if reason := make_world(config.env).plays(metadata):
            raise UserError(f"the policy in {str(folder)!r} {reason} ({flag}, --config.env)")
        if not again:
            name = contender.name.removesuffix(f"-{contender.decoding.name}")
            report_other_games(name, metadata["config"]["env"], config)
        writer = loaded[key] = ValueWriter(model)
    writer.check(contender.decoding)
    return writer


def report_other_games(name: str, trained: dict[str, Any], config: EvaluateConfig) -> None:
    """Prints a line if a policy plays other games than it was trained on; this may be intended.

    In variations it is, and other differences were reported with the unvaried games.
    """
    if is_variation(config.evaluate.protocol):
        return
    now, before = leaves_by_path(config.env), leaves_by_path(trained)
    keys = [key for key in sorted(now) if before.get(key, now[key]) != now[key]]
    other = [f"{'.'.join(key)} = {before[key]!r}, not {now[key]!r}" for key in keys]
    if other:
        print_line(f"evaluate: {name} was trained with {'; '.join(other)} (--config.env)")


def play(
    config: EvaluateConfig, playing: LoadedPlayer, missing: set[int], done: int, frames: Frames, pools: Pools
) -> Generator[tuple[EpisodeRow, Track]]:
    """Plays the missing episodes, beside `done` others, and yields row and steps of each.

    Those that then remain in `missing` were given up, because their game ended every worker.
    """
    if not missing:
        return
    figures, name = tuple(make_world(config.env).figures), playing.contender.name
    with (
        contextlib.closing(playing.sources),
        contextlib.closing(episodes(config, playing, missing, frames.folder, pools)) as ended,
        contextlib.closing(Progress(f"evaluate {name}", done + len(missing), "episodes", done)) as progress,
    ):
        for some in ended:
            for info, steps in some:
                if info.episode not in missing:
                    frames.forget(info.episode)
                    continue
                missing.remove(info.episode)
                track = Track(**{field: steps[field] for field in Track._fields if field in steps})
                yield as_row(info, figures, steps, frames, playing.sources), track
                done += 1
            progress.update(done)


def episodes(
    config: EvaluateConfig, playing: LoadedPlayer, missing: set[int], record: str, pools: Pools
) -> Generator[list[tuple[EpisodeInfo, StepArrays]]]:
    """Plays until no episode is missing, except those that were given up; yields at times those that have just ended.

    The caller removes episodes from `missing` as they end; others may end as well. `record`: the directory for their
    recordings; "": nothing is recorded.
    """
    section, seed = config.evaluate, config.seed + min(missing)
    # More games than episodes would only cost time.
    here = min(section.num_workers, len(missing))
    workers = pools.workers(here)
    games = min(section.games_per_worker, -(-len(missing) // workers))
    groups = min(GROUPS, games)
    games -= games % groups
    policy: PolicyPlayer | WritingPlayer | None = None
    if playing.model:
        greedy = playing.contender.greedy
        policy = PolicyPlayer(playing.model, workers * games, games // groups, seed, greedy)
    elif playing.writer and playing.contender.decoding:
        width = math.prod(make_world(config.env).action.shape)
        policy = WritingPlayer(playing.writer, playing.contender.decoding, width, workers * games, seed)
    scripted = "" if policy else playing.contender.name.removesuffix(config.protocol.suffix)
    observations = {*(policy.reads if policy else ()), *playing.sources.observations}
    with pools.open(
        config.env, tuple(sorted(observations)), num_workers=here, games_per_worker=games,
        rollout_length=ROLLOUT_WRITTEN if playing.writer else ROLLOUT, player=scripted, groups=groups,
        outputs=policy.outputs if policy else None, starts=policy.starts if policy else None, seed=config.seed,
        stream=SeedStream.EVALUATE, first_episode=min(missing), hang_timeout_s=section.hang_timeout_s, record=record,
        waits=bool(playing.model and playing.model.acting.waits), flag="--config.evaluate",
    ) as pool:  # fmt: skip
        make_steps = functools.partial(as_steps, sources=playing.sources, num_actions=len(pool.world.action_names))
        pieces, timers, size = Pieces(), Timers(), pool.layout.group_size
        while not missing <= set(pool.given_up):
            requests, fulls = pool.poll(0.2)
            if policy:
                answer(pool, requests, policy)
            ended: list[tuple[EpisodeInfo, StepArrays]] = []
            if fulls:
                batch = make_batch(pool, fulls, make_steps, timers)
                for number, (full, last) in enumerate(zip(batch.fulls, batch.episodes, strict=True)):
                    columns = slice(number * size, (number + 1) * size)
                    part = {key: array[:, columns] for key, array in batch.arrays.items()}
                    ended += pieces.take(full, part, part.pop("first")[0], last)
            yield ended


def as_steps(arrays: Arrays, sources: RewardSources, num_actions: int) -> StepArrays:
    """The arrays of a batch that a Track keeps, and the rewards of each other source and term. [T, B], except `first`.

    Unknown values are NaN. The first `num_actions` logits are those of actions, unless these have several parts.
    """
    nothing = np.full(arrays["reward"].shape, np.nan, np.float32)  # an action may have more axes
    steps: StepArrays = {name: arrays[name] for name in ("action", "first", CHOOSER) if name in arrays}
    steps |= {name: arrays.get(name, nothing) for name in ("value", "probability")}
    steps |= {"z": nothing, "intrinsic": nothing}
    if "logits" in arrays and num_actions:
        odds = probabilities(arrays["logits"][..., :num_actions])
        steps["probability"] = np.take_along_axis(odds, arrays["action"][..., None], -1)[..., 0]
        if odds.shape[-1] <= FEW:
            steps["odds"] = np.asarray(odds, np.float32)
    moments = sources.moments(arrays)
    rewards = sources.shape(moments)
    sources.check(rewards, nothing.shape)
    if name := shown_source(rewards):
        source = sources.get(name)
        if source.caption_value:
            steps["z"] = moments[name][source.caption_value].astype(np.float32)
        steps["intrinsic"] = np.asarray(rewards[name], np.float32)
        if source.is_learnt:
            del rewards[name]
    paid = {f"{REWARD}{name}": array for name, array in rewards.items()}
    for name, terms in sources.terms(arrays).items():
        paid |= {f"{TERM}{name}: {text}": array for text, array in terms.items()}
    return steps | {key: np.asarray(array, np.float32) for key, array in paid.items()}


def as_row(
    info: EpisodeInfo,
    figures: Iterable[str],
    steps: StepArrays,
    frames: Frames,
    sources: RewardSources,
) -> EpisodeRow:
    """The line of one finished episode in `episodes.jsonl`, with the world's `figures`.

    Its learnt return is None without a learnt reward; `returns` has those of other sources, `terms` of their terms.
    """
    events, paid = frames.events(info, steps["action"]), ("intrinsic", REWARD, TERM)
    sums = {key: float(array.sum(dtype=np.float64)) for key, array in steps.items() if key.startswith(paid)}
    row = playback.figures_of(info, figures) | {"intrinsic_return": sums["intrinsic"] if sources.learnt else None}
    returns = {key.removeprefix(REWARD): value for key, value in sums.items() if key.startswith(REWARD)}
    terms: dict[str, dict[str, float]] = {}
    for key in filter(lambda key: key.startswith(TERM), sums):
        name, _, text = key.removeprefix(TERM).partition(": ")
        terms.setdefault(name, {})[text] = sums[key]
    return row | {name: one for name, one in (("returns", returns), ("terms", terms)) if one} | events


# ---- the tokens of policies that write


def letters(
    frames: PlayedAgain, writer: ValueWriter, decoding: Decoding, tracks: Mapping[int, Track]
) -> dict[int, Any]:
    """The turns of each episode: probabilities of the policy alone, and with beta (Q - V).

    A turn is {"said": text, "heard": the answer, "reward", "tokens": [{"token", "policy": [[token, p], ...],
    "shifted": [[token, p], ...], "advantage": Q - V of the token, or null}]}.
    """
    return {number: turns_of(writer, decoding, frames.turns(number, track)) for number, track in tracks.items()}


def turns_of(writer: ValueWriter, decoding: Decoding, turns: list[Turn]) -> list[dict[str, Any]]:
    """The agent's texts in a conversation, in the format of `letters`."""
    renderer, longest = writer.model.renderer, writer.model.config.max_positions
    heard_first = bool(turns) and not turns[0].is_action
    talk = ConversationTokens(renderer, turns[0].text if heard_first else "", longest, decoding.max_tokens)
    read: list[list[int]] = []  # the conversation, and again from each text at which it begins anew
    spans: list[tuple[int, int, int]] = []  # of the agent's texts: which of `read`, start, stop
    shown: list[dict[str, Any]] = []
    for turn, following in itertools.zip_longest(turns[heard_first:], turns[heard_first + 1 :]):
        if not turn.is_action:
            talk.heard(turn.text)
            continue
        answer = following.text if following and not following.is_action else ""
        shown.append({"said": turn.text, "heard": answer, "reward": turn.reward, "tokens": []})
        start, written = len(talk.context()), renderer.said(turn.text)
        talk.said(written)
        if not read or talk.tokens[: len(read[-1])] != read[-1]:
            read.append([])
        read[-1] = talk.tokens
        spans.append((len(read) - 1, start, start + min(len(written), LONGEST_TEXT)))
    odds = [writer.probabilities(tokens, decoding) for tokens in read]
    for turn_shown, (number, start, stop) in zip(shown, spans, strict=True):
        places = range(start, min(stop, len(odds[number].policy)))  # no text goes beyond the model's context
        turn_shown["tokens"] = [_one_token(writer, odds[number], at - 1, read[number][at]) for at in places]
    return shown


def _one_token(writer: ValueWriter, odds: Probabilities, before: int, token: int) -> dict[str, Any]:
    """A token with the probabilities, and the most probable tokens, at the position `before` it."""

    def likely(odds: np.ndarray) -> list[list[Any]]:
        order = np.argsort(-odds, kind="stable")[:MOST_LIKELY].tolist()
        return [[writer.name_of(token), round(float(odds[token]), 4)] for token in order if odds[token] > 0]

    return {
        "token": writer.name_of(token),
        "policy": likely(odds.policy[before]),
        "shifted": likely(odds.shifted[before]),
        "advantage": None if odds.advantage is None else round(float(odds.advantage[before, token]), 3),
    }
