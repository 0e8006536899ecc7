"""The stage collect: scripted players or trained policies play, and pairs of moments from their games are a dataset.

With `--config.collect.policies=PATH,...` trained policies play (policies/choice.py) instead of the scripted
`collector`. With `--config.collect.dataset=DIR` a dataset in the published layout is checked and used as it is.
With `--config.collect.transcripts=N` games are recorded as text.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import platform
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import motif_jax
from motif_jax import files
from motif_jax.actors.acting import BatchedPolicy, answer
from motif_jax.actors.players import parse_scripted
from motif_jax.actors.pool import ActorPool
from motif_jax.actors.recorder import play_branches, play_episodes
from motif_jax.actors.worker import FilledSlot
from motif_jax.captions import decode
from motif_jax.config.table import MANY_SECONDS, PATH, PATHS, Flag, Number, Text, Whole, section, value
from motif_jax.console import clean, print_line
from motif_jax.envs.own_code import reported
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.world import TEXT, SeedStream, World, to_text
from motif_jax.envs.worlds import TABLE as ENV
from motif_jax.envs.worlds import check_world, essential, make_world, title
from motif_jax.episodes.playback import Pieces
from motif_jax.files import LineFile, read_json, write_json
from motif_jax.networks.kinds import PROMPT
from motif_jax.pages.blocks import Box, Heading, Paragraph, Span, Table, Tiles, amount, exact, quoted
from motif_jax.pages.charts import Columns
from motif_jax.policies.choice import Checkpoint, Mixture, find, parse_mixture
from motif_jax.preferences import store as pair_store
from motif_jax.preferences.questions import NEUTRAL
from motif_jax.preferences.shards import NOT_ASKED, count
from motif_jax.preferences.store import FLAG, FinishedEpisode, PairDataset, PairWriter, annotation_folder
from motif_jax.run import CONFIG, SECTIONS, Facts, Run, StageRun, date_of
from motif_jax.stages import Experiment, Stage, decisive_in, exclusive_lock, find_pools, with_result
from motif_jax.stages.train_policy import Policy
from motif_jax.structs import ArraySpec, Episode, Interrupted, Need, Turn, UserError, legible
from motif_jax.system.errors import Limits
from motif_jax.system.foreign import LIMIT, leads_out, parse_foreign_json, read_bytes
from motif_jax.system.machine import read_array, usable_cores
from motif_jax.system.metrics import Progress
from motif_jax.system.startup import say
from motif_jax.transcripts import store as text_store
from motif_jax.transcripts.store import DECISION_POINTS, Transcripts, TranscriptWriter, decision_point, game_returns

# The parts of the report on the dataset of pairs and on transcripts.

SPREADS = {"score": "Score so far", "max_depth": "Deepest level so far"}  # titles of the histograms, by array of info/
COMMON = 10  # captions shown
BINS = 30


def report_pairs(workdir: Path) -> str:
    """Writes the part on the dataset: counts, spread of the moments, frequent messages; returns the counts in words."""
    folder = workdir / DATASET
    made, dataset = read_json(folder / "dataset.json"), PairDataset(folder)
    ran = read_json(folder / "run.json") if (folder / "run.json").exists() else {}  # not of a published dataset
    captions, ids = dataset.captions()
    figures = [
        (f"{len(dataset):,}", "pairs of moments" + f" of {dataset.length} steps" * (dataset.length > 1)),
        (f"{len(captions):,}", "different messages"),
    ]
    others: tuple[tuple[Any, Callable[[Any], str], str], ...] = (  # a dataset that was not collected here lacks some
        (made.get("episodes"), "{:,}".format, "episodes"),
        (made.get("steps"), amount, "steps played"),
        (ran.get("steps_per_s"), "{:,.0f}".format, "steps/s while collecting"),
        (made.get("share_without_message"), "{:.0%}".format, "of the moments show no message"),
        ((ids[:, 0] == ids[:, 1]).all(-1).mean(), "{:.0%}".format, "of the pairs show equal captions"),
    )
    figures += [(form(value), what) for value, form, what in others if value is not None]
    by, date = made.get("collector", ""), date_of((folder / "dataset.json").stat().st_mtime)
    spreads = []
    for name, heading in SPREADS.items():
        values = np.asarray(dataset.info.get(name, ())).reshape(-1)
        values = values[np.isfinite(values)]
        if len(values):
            spreads.append(Box([Heading(heading), _spread(values)]))
    top = np.argsort(-captions.counts, kind="stable")[:COMMON]
    rows = [(f"{captions.counts[at] / ids.size:.1%}", quoted(decode(captions.messages[at]))) for at in top.tolist()]
    stage = Run(workdir).stage(NAME, DATASET)
    stage.section(
        "The dataset", *played_by(by, date), Tiles(figures), Box(spreads, "pair"),
        Heading("Most frequent messages"), Table(("moments", "message"), rows, numbers=(0,), kind="fits"),
    )  # fmt: skip
    counts = Span(f"{len(dataset):,}"), f" pairs of moments with {len(captions):,} different messages were collected."
    stage.report(Facts(
        title="A dataset of moments of a game", lead=counts, task=made.get("task"), made=date,
        machine={"processor": ran.get("machine", ""), "versions": made.get("versions", {})},
    ))  # fmt: skip
    return ", ".join(f"{figure} {what}" for figure, what in figures)


def played_by(by: str, *more: str) -> list[Paragraph]:
    """A line on who played, if that is known."""
    return [Paragraph(f"Played by {'; '.join([by, *more])}.", "soft")] if by else []


def _spread(values: np.ndarray) -> Columns:
    """A histogram; a column for each whole number, if they are few. [N]"""
    low, high = int(values.min()), int(values.max())
    if high - low >= BINS:
        return _histogram(values, amount)
    of = [amount(value) for value in range(low, high + 1)]
    heights = np.bincount(values.astype(int) - low).tolist()
    return Columns(heights, of[:1] if high == low else (of[0], of[-1]), of=of)


def _histogram(values: np.ndarray, word: Callable[[float], str]) -> Columns:
    heights, edges = (array.tolist() for array in np.histogram(values, bins=BINS))
    ends = word(edges[0]), word((edges[0] + edges[-1]) / 2), word(edges[-1])
    return Columns(heights, ends, of=[f"{word(edge)} and more" for edge in edges[:-1]])


def report_transcripts(workdir: Path) -> str:
    """Writes the part on the transcripts; returns its figures in words."""
    store = Transcripts(workdir / TRANSCRIPTS, "--workdir")
    returns, made = game_returns(store), store.record["provenance"]
    by = ", then ".join(str(made[name]) for name in ("collector", "policies", "branch_player") if made.get(name))
    games, texts = ("games", "moments") if text_store.are_decision_points(store) else ("episodes", "texts of the agent")
    counts = (len(returns), games), (store.record["actions"], texts), (store.record["texts"], "different texts")
    figures, mean = [(f"{number:,}", what) for number, what in counts], exact(float(returns.mean()))
    if returns.any() or "games" in made:  # a manual is without rewards
        error = f" ± {exact(float(returns.std() / np.sqrt(len(returns))))}" if len(returns) > 1 else ""
        figures += [(f"{mean}{error}", "mean return"), (exact(float(returns.max())), "best return")]
    stage = Run(workdir).stage(NAME, TRANSCRIPTS)
    chart = [Heading("Returns"), _histogram(returns, exact)] if np.ptp(returns) else []
    stage.section("The transcripts", *played_by(by), Tiles(figures), *chart)
    who = (" played by ", Span(by)) if by else ()
    recorded = Span(f"{len(returns):,}"), f" {games}", *who, f" were recorded, with a mean return of {mean}."
    stage.report(Facts(title="Transcripts of games", lead=recorded if returns.any() else None))
    return ", ".join(f"{figure} {what}" for figure, what in figures)


HEAD_BYTES = 4096  # most bytes before the data of a .npy file

NAME, DATASET, TRANSCRIPTS = "collect", "dataset", "transcripts"  # the stage; its directories
PARTIAL = f"{DATASET}.partial"  # while it is put together
PIECES, PIECES_OF_TEXT = f"{DATASET}.pieces", f"{TRANSCRIPTS}.pieces"  # of what was played, until all is there
STEPS_WITHOUT_A_MOMENT = 2_000_000  # after these, the settings must be wrong
MAX_WAITING_BYTES = 512 * 2**20  # of finished episodes that wait for an earlier one
TRANSCRIPTS_FLAG, POLICIES_FLAG = "--config.collect.transcripts", "--config.collect.policies"
CHECKPOINTS = "checkpoints"  # in the provenance of transcripts: the policies that played; later ones may exist now
GAMES = "games.jsonl"  # in the pieces of transcripts: a line per game
SHOW_EVERY = 1000  # transcripts between two lines of progress


# ---- the config


@dataclass(frozen=True)
class Collect:
    """Pairs of moments from games, or transcripts of games."""

    dataset: str = value("", PATH, "dataset in the published layout, to use instead of collecting", decides=True)
    follow_links: bool = value(False, Flag(), "also read arrays of `dataset` that are links to files outside it")
    collector: str = value("explorer:0.8,random:0.2", Text(), "scripted players and their shares", decides=True)
    policies: str = value("", PATHS, "trained policies to play: WORKDIR[@STEP, @last, @all][:SHARE],...", decides=True)
    num_pairs: int = value(100_000, Whole(1, 10**12), "pairs; the paper has 500,000, most need 100,000", decides=True)
    transcripts: int = value(0, Whole(0, 10**9), "games to record as text instead of pairs; 0: pairs", decides=True)
    branch_player: str = value("", Text(), "player of branches from each moment of a transcript", decides=True)
    branches: int = value(1, Whole(1, 1000), "branches of each moment", decides=True)
    segment_length: int = value(1, Whole(1), "steps per moment", decides=True)
    keep_empty: float = value(1.0, Number(0, 1), "share of the moments without a message that are kept", decides=True)
    save_screen: bool = value(False, Flag(), "save tty_chars and tty_colors, 7.7 kB per pair and step", decides=True)
    save_glyphs: bool = value(False, Flag(), "save the map of glyphs, 6.6 kB per pair and step", decides=True)
    num_workers: int = value(usable_cores, Whole(), "worker processes; 0: play in this process, for debugging")
    games_per_worker: int = value(4, Whole(1), "games per worker, played in parallel")
    rollout_length: int = value(128, Whole(1), "steps per rollout")
    commit_every_s: float = value(20.0, Number(0.001, MANY_SECONDS), "seconds between commits: what a kill may lose")
    hang_timeout_s: float = value(10.0, Number(0.1, MANY_SECONDS), "seconds until a silent worker is replaced")


@dataclass(frozen=True)
class CollectConfig(Experiment):
    """What the stage reads. `policy` says which classes of users the checkpoints of policies may import."""

    env: Mapping[str, Any] = section(ENV)
    policy: Policy = field(default_factory=Policy)
    collect: Collect = field(default_factory=Collect)

    def decisive(self) -> set[str]:
        return decisive_in(self, "", "env", NAME)


# ---- the stage


def is_complete(config: CollectConfig, workdir: Path) -> bool:
    """Whether the dataset is finished and reported, or the transcripts are."""
    if config.collect.transcripts:
        return all((workdir / TRANSCRIPTS / name).is_file() for name in (text_store.RECORD, CONFIG))
    return (workdir / DATASET / "dataset.json").is_file() and (workdir / SECTIONS / f"{NAME}.json").exists()


def check(config: CollectConfig, workdir: Path) -> list[Need]:
    """Raises UserError for values that cannot work; returns the need of the dataset to use, or of the players."""
    section = config.collect
    if section.dataset and section.transcripts:
        raise UserError(f"transcripts are recorded, not taken from a dataset: give one ({FLAG}, {TRANSCRIPTS_FLAG})")
    if section.dataset and section.policies:
        raise UserError(f"a dataset is used as it is, and no policies play: give one ({FLAG}, {POLICIES_FLAG})")
    is_made = (workdir / DATASET / "dataset.json").is_file()  # perhaps not reported, as by an earlier version
    if section.dataset:
        need = Need(lambda: PairDataset(section.dataset, section.follow_links), Path(section.dataset))
        return [] if is_made else [need]
    world = check_world(config.env)
    if section.transcripts:
        check_transcripts(section, world)
    else:
        recorded_keys(section, world)
        if (length := section.segment_length) > config.env["max_episode_steps"]:  # 2,000,000 steps would show it, too
            raise UserError(f"no episode has {length} steps (--config.collect.segment_length, .env.max_episode_steps)")
    choices = parse_mixture(section.policies, POLICIES_FLAG) if section.policies else []
    if not choices:
        parse_scripted(section.collector, world)
    if not (section.transcripts and isinstance(world, TextWorld)):  # which this process plays
        find_pools(config).check(waits=False)
    if is_made and not section.transcripts:
        return []
    return [Need(functools.partial(find, [choice], POLICIES_FLAG), Path(choice.path)) for choice in choices]


def run(config: CollectConfig, workdir: Path) -> None:
    """Collects pairs, or takes a published dataset, and writes `workdir/dataset`; or records transcripts."""
    dataset = workdir / DATASET
    if config.collect.transcripts:
        collect_transcripts(config, workdir)
        return
    if not (dataset / "dataset.json").is_file():
        if dataset.exists():
            where = f"{str(dataset)!r} is there already and was not made by this stage"
            raise UserError(f"{where}: move it away, or use it with {FLAG} and another --workdir")
        stage = Run(workdir).stage(NAME, PARTIAL)
        (adopt if config.collect.dataset else collect_pairs)(config, stage.path)
        stage.bind(config)
        stage.path.replace(dataset)
    files.remove_folder(workdir / PIECES)
    print_line(f"collect: {report_pairs(workdir)}")


# ---- pairs of moments


def collect_pairs(config: CollectConfig, target: Path) -> None:
    """Plays what is missing of a dataset, and makes it in the directory `target`."""
    section, world = config.collect, make_world(config.env)
    keys = recorded_keys(section, world)
    stage = Run(target.parent).stage(NAME, PIECES)
    files.remove_folder(target)  # half a dataset of a killed run would fill the disk
    writer = PairWriter(
        stage.path, num_pairs=section.num_pairs, length=section.segment_length,
        specs={key: world.specs[f"event_{key}"] for key in keys} | {"rewards": ArraySpec((), "float32")},
        figures=world.figures, character=getattr(world, "character", ""), seed=config.seed,
        keep_empty=section.keep_empty,
    )  # fmt: skip
    mixture = load_mixture(config, world, writer.progress.get("policies"), writer.progress["next_episode"])
    stage.bind(config)
    if mixture:
        writer.progress["policies"] = mixture.metadata()  # a resumed run uses the same checkpoints
    if writer.moments:
        print_line(f"collect: going on after {writer.moments // 2:,} of {section.num_pairs:,} pairs")
    try:
        losses = {} if writer.full else fill(writer, config, keys, mixture)
    except Interrupted:
        if writer.moments:
            say("saving the pairs that were collected")
        writer.commit()
        raise

    versions = {name: metadata.version(name) for name in ("numpy", *getattr(world, "packages", ()))}
    made = {"collector": "policies" if mixture else section.collector, "task": title(config.env), "seed": config.seed}
    made |= {"keep_empty": section.keep_empty, "versions": {"motif_jax": motif_jax.__version__} | versions}
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    steps, seconds = writer.progress["steps"], writer.progress["seconds"]
    rate = round(steps / max(seconds, 1e-9))
    ran = {"seconds": round(seconds, 1), "steps_per_s": rate, "num_workers": section.num_workers}
    ran |= {"machine": machine} | losses
    if mixture:
        made["policies"], ran["groups_of_policies"] = mixture.metadata(), mixture.counts
    files.make_anew(target)
    writer.assemble(target, made, ran)


def recorded_keys(section: Collect, world: World) -> list[str]:
    """The observations that the dataset keeps of a moment; raises UserError if it cannot keep one of them."""
    wanted = {"tty_chars": section.save_screen, "tty_colors": section.save_screen, "glyphs": section.save_glyphs}
    keys = [*dict.fromkeys((*world.pairs, *(key for key, is_wanted in wanted.items() if is_wanted)))]
    for key in keys:
        spec, (shape, kinds) = world.specs.get(f"event_{key}"), pair_store.DATA.get(key, ((), ""))
        if spec is None or spec.shape != shape or np.dtype(spec.dtype).kind not in kinds:
            kept = f"it keeps {', '.join(name for name in pair_store.DATA if name != 'rewards')}, in NetHack's format"
            flags = "--config.env.world, --config.collect.save_screen, .save_glyphs"
            raise UserError(f"a dataset cannot keep {key!r} of the world {world.name!r}: {kept} ({flags})")
    return keys


def fill(writer: PairWriter, config: CollectConfig, keys: list[str], mixture: Mixture | None) -> dict[str, Any]:
    """Plays until the writer is full, and commits now and then; returns crashes, for `run.json`."""
    section, arrays = config.collect, {key: f"event_{key}" for key in keys}
    first, before_s = writer.progress["next_episode"], writer.progress["seconds"]
    start = committed = time.monotonic()
    progress = Progress(NAME, section.num_pairs, "pairs", writer.moments // 2)
    with open_pool(config, arrays.values(), mixture, first) as pool:
        for ready in play_in_order(pool, mixture, arrays | {"rewards": "reward"}, first):
            for episode in ready:
                if writer.full:
                    break
                if isinstance(episode, FinishedEpisode):
                    writer.add(episode)
                else:
                    writer.skip(episode)
            now, steps = time.monotonic(), writer.progress["steps"]
            seconds = writer.progress["seconds"] = before_s + now - start
            if writer.is_large or now - committed > section.commit_every_s:
                writer.commit()
                committed = now
            if not writer.moments and steps > STEPS_WITHOUT_A_MOMENT:
                problem = f"in {steps:,} steps, no episode had {section.segment_length} steps to keep"
                raise UserError(f"{problem} (--config.collect.segment_length, .keep_empty)")
            progress.update(writer.moments // 2, steps=f"{steps:,} ({steps / seconds:,.0f}/s)")
            if writer.full:
                break
        progress.close()
        return {"worker_restarts": pool.restarts, "dropped_steps": pool.dropped_steps}


# ---- transcripts
# Games that are played by writing are recorded as conversations. This process plays them, about ten thousand games of
# Wordle per second. Of games with prompts (BabyAI-Text), each moment is recorded: its prompt, and the name of the
# action that a scripted player or a trained policy took, from which train_language learns. During play, a line per game
# is appended to a file; a resumed run plays what comes after it. Transcripts are written in one step at the end.


def check_transcripts(section: Collect, world: World) -> None:
    """Raises UserError if the games of this world cannot be recorded as text, or not in this way."""
    written, prompt, problem = isinstance(world, TextWorld), world.specs.get(PROMPT), ""
    if not written and not (world.action_names and prompt and prompt.kind == TEXT):
        problem = "transcripts need games that are played by writing or that have prompts"
    elif section.branch_player and not written:
        problem = "only games that are played by writing can branch (--config.collect.branch_player)"
    elif section.policies and written:
        problem = f"games that are played by writing need scripted players, not policies ({POLICIES_FLAG})"
    if problem:
        raise UserError(f"{problem}: {TRANSCRIPTS_FLAG} with the world {world.name!r}")
    if section.branch_player:
        parse_scripted(section.branch_player, world)


def collect_transcripts(config: CollectConfig, workdir: Path) -> None:
    """Plays the games and writes `workdir/transcripts`."""
    world, start, section = make_world(config.env), time.monotonic(), config.collect
    player = "policies" if section.policies else "collector"
    provenance = {player: getattr(section, player), "games": section.transcripts, "seed": config.seed}
    if section.branch_player:
        provenance |= {"branch_player": section.branch_player, "branches": section.branches}
    if not isinstance(world, TextWorld):
        provenance[DECISION_POINTS] = True
    provenance["env"] = essential(config.env)
    stage = Run(workdir).stage(NAME, TRANSCRIPTS)
    if stage.path.exists():
        before = Transcripts(stage.path, "--workdir").record["provenance"]
        if {**before, CHECKPOINTS: []} != provenance | {CHECKPOINTS: []}:
            raise UserError(f"{str(stage.path)!r} has other transcripts: move them away, or choose another --workdir")
    else:
        writer, checkpoints = play_transcripts(config, world, Run(workdir).stage(NAME, PIECES_OF_TEXT))
        provenance |= {CHECKPOINTS: checkpoints} if checkpoints else {}
        writer.write(stage.path, provenance, TRANSCRIPTS_FLAG)
    files.remove_folder(workdir / PIECES_OF_TEXT)
    figures = report_transcripts(workdir)
    print_line(f"collect: {figures}, played by {clean(str(provenance[player]))}; {time.monotonic() - start:,.0f} s")
    stage.bind(config)  # last: then the stage is complete


def play_transcripts(
    config: CollectConfig, world: World, stage: StageRun
) -> tuple[TranscriptWriter, list[dict[str, Any]]]:
    """Plays the games that the stage's folder lacks; returns all, and the checkpoints that played them."""
    section, writer, games, following = config.collect, TranscriptWriter(), 0, 0
    for row in files.read_lines(stage.path / GAMES) if (stage.path / GAMES).exists() else ():
        games, following = games + 1, row["number"] + 1
        for turns, terminal, info in row["episodes"]:
            figures = {name: float(value) for name, value in info.items()}
            writer.add(Episode(tuple(Turn(*turn) for turn in turns), terminal, figures))
    mixture = load_mixture(config, world, stage.read("policies", list[dict[str, Any]]), following)
    checkpoints = mixture.metadata() if mixture else []
    stage.bind(config)
    stage.write("policies", checkpoints)  # a resumed run uses the same
    if games:
        print_line(f"collect: going on after {games:,} of {section.transcripts:,} games")
    progress = Progress(NAME, section.transcripts, "games", games)
    with reported(config.env), contextlib.closing(LineFile(stage.path / GAMES)) as lines:
        for number, episodes in play_texts(config, world, mixture, games, following):
            for episode in episodes:
                writer.add(episode)
            # Figures are text, as JSON has no infinite numbers.
            told = [([*map(list, e.turns)], e.terminal, {name: str(e.info[name]) for name in e.info}) for e in episodes]
            lines.add([{"number": number, "episodes": told}])
            games += 1
            if games % SHOW_EVERY == 0:
                progress.update(games)
    progress.close()
    return writer, checkpoints


def play_texts(
    config: CollectConfig, world: World, mixture: Mixture | None, games: int, following: int
) -> Iterator[tuple[int, list[Episode]]]:
    """Yields the number and the episodes of each game after the first `games`; `following`: the number of the next."""
    section, numbers = config.collect, range(following, config.collect.transcripts)
    if not isinstance(world, TextWorld):
        with contextlib.closing(play_moments(config, world, mixture, following)) as moments:
            yield from itertools.islice(moments, section.transcripts - games)
    elif not section.branch_player:
        played = play_episodes(world, section.collector, numbers, seed=config.seed)
        yield from enumerate(([episode] for episode in played), following)
    else:  # each episode is followed by its branches
        players = section.collector, section.branch_player
        for number in numbers:
            yield number, [*play_branches(world, *players, [number], per_moment=section.branches, seed=config.seed)]


def play_moments(
    config: CollectConfig, world: World, mixture: Mixture | None, first: int
) -> Generator[tuple[int, list[Episode]]]:
    """Yields the number of each game and its moments, as episodes; before those of game 0 come the world's words.

    An action's reward is the game's reward-to-go, so that the best episodes are moments of the best games. `info` has
    the game's number, as `episode`, and the `step`; both are -1 for words. If `mixture` is None, the `collector` plays.
    """
    words = [] if first else [*text_store.vocabulary(getattr(world, "words", ()), episode=-1, step=-1)]
    with open_pool(config, (PROMPT,), mixture, first) as pool:
        for ready in play_in_order(pool, mixture, {name: name for name in (PROMPT, "action", "reward")}, first):
            for game in ready:
                if not isinstance(game, FinishedEpisode):
                    continue  # given up after several crashes
                number, worth = game.info.episode, np.cumsum(game.steps["reward"][::-1])[::-1].tolist()
                points = [
                    decision_point(to_text(prompt), world.action_names[action], worth[step], episode=number, step=step)
                    for step, (prompt, action) in enumerate(zip(game.steps[PROMPT], game.steps["action"], strict=True))
                ]
                yield number, [*words, *points]
                words = []


# ---- playing


def load_mixture(
    config: CollectConfig, world: World, begun: list[dict[str, Any]] | None, first_episode: int
) -> Mixture | None:
    """The trained policies that play; None if scripted players do.

    `begun`: the checkpoints of an earlier run, which play what is missing even if newer ones exist.
    """
    section = config.collect
    if not section.policies:
        return None
    from motif_jax.rewards.source import trusted_classes

    checkpoints = [Checkpoint(**policy) for policy in begun or ()]
    return Mixture(
        checkpoints or find(parse_mixture(section.policies, POLICIES_FLAG), POLICIES_FLAG), world,
        num_workers=find_pools(config).workers(section.num_workers),
        games_per_worker=section.games_per_worker, seed=config.seed + first_episode,
        trusted=trusted_classes(config, config.policy.network),
    )  # fmt: skip


def open_pool(
    config: CollectConfig, observations: Iterable[str], mixture: Mixture | None, first_episode: int
) -> ActorPool:
    """The workers, which record these observations of the games."""
    section = config.collect
    return find_pools(config).open(
        config.env, tuple(dict.fromkeys((*observations, *(mixture.reads if mixture else ())))),
        num_workers=section.num_workers, games_per_worker=section.games_per_worker,
        rollout_length=section.rollout_length, player="" if mixture else section.collector,
        groups=mixture.groups if mixture else 1, seed=config.seed, stream=SeedStream.COLLECT,
        first_episode=first_episode, hang_timeout_s=section.hang_timeout_s,
    )  # fmt: skip


def play_in_order(
    pool: ActorPool, policy: BatchedPolicy | None, names: Mapping[str, str], first: int
) -> Iterator[list[FinishedEpisode | int]]:
    """Plays without end; yields, after each poll, the next finished episodes in order, perhaps none.

    A number stands for an episode that was given up. If `policy` is None, scripted players play. `names`: name of an
    array in an episode -> its name in a rollout.
    """
    pieces, number = Pieces(), first  # of the next episode
    done: dict[int, FinishedEpisode] = {}  # by number; they wait for an earlier one
    waiting_bytes, held = 0, list[FilledSlot]()
    length = pool.layout.rollout_length  # arrays of observations have one row more
    while True:
        requests, fulls = pool.poll(0.2)
        if policy:
            answer(pool, requests, policy)
        for full in fulls:
            rows = {name: pool.rollouts[key][full.slot][:length] for name, key in names.items()}  # [T, E, ...]
            firsts = pool.rollouts["first"][full.slot][0]  # [E]
            for info, steps in pieces.take(full, rows, firsts, pool.ended(full)):
                if info.episode >= number and info.episode not in done:
                    done[info.episode] = FinishedEpisode(info, steps)
                    waiting_bytes += sum(array.nbytes for array in steps.values())
        # Memory is bounded while all others wait for one game: only its group gets its slots back.
        kept, held = [*held, *fulls], []
        for full in kept:
            if waiting_bytes < MAX_WAITING_BYTES or pool.is_responsible_for(full, number):
                pool.release(full)
            else:
                held.append(full)
        ready: list[FinishedEpisode | int] = []
        while number in done or number in pool.given_up:
            if episode := done.pop(number, None):
                waiting_bytes -= sum(array.nbytes for array in episode.steps.values())
            ready.append(episode or number)
            number += 1
        yield ready


# ---- a dataset in the published layout
# The workdir gets links to its arrays, copies of its annotations, and an index. The dataset is not trusted: only files
# with known names are opened, links that lead out of its directory are followed only if the user allows it, and only
# checked arrays and small records are copied.


def adopt(config: CollectConfig, target: Path) -> None:
    """Makes a dataset in the directory `target` from the one that the config names."""
    source = Path(config.collect.dataset)
    dataset = PairDataset(source, follow_links=config.collect.follow_links)
    labels = {name: dataset.preference(name) for name in dataset.preference_names()}
    records = {name: record for name in labels if (record := _record_of(source, name, labels[name]))}
    for name in labels:
        folder = annotation_folder(target, name)
        file, record = folder / "merged.json", records.get(name)
        was_copied = record and file.is_file() and read_json(file) == record  # by a run of this command that was killed
        if folder.is_dir() and not was_copied:
            problem = f"{str(folder)!r} is an annotation of another dataset than the one to use"
            raise UserError(f"{problem}: move it away, or choose another --workdir ({FLAG})")

    files.make_anew(target)
    for kind, arrays in (("data", dataset.data), ("info", dataset.info)):
        (target / kind).mkdir()
        for key in arrays:
            (target / kind / f"{key}.npy").symlink_to((source / kind / f"{key}.npy").resolve())
    table, _ = PairDataset(target).captions()
    for name, codes in labels.items():
        files.write_array(pair_store.labels_file(target, name), codes)
    for name, record in records.items():
        folders = annotation_folder(source, name), annotation_folder(target, name)
        _copy_annotation(*folders, record, len(dataset), len(table))
    about = {"num_pairs": len(dataset), "segment_length": dataset.length, "distinct_captions": len(table)}
    write_json(target / "dataset.json", {"source": str(source.resolve())} | about)
    left = []
    for part, keys in (("data", pair_store.DATA), ("info", pair_store.INFO), ("preference", labels)):
        names = {path.name for path in source.glob(f"{part}/*")} - {f"{key}.npy" for key in keys}
        left += sorted(f"{part}/{name}" for name in names)
    if left:
        print_line(f"collect: not read in {clean(source)}: {', '.join(clean(name, 80) for name in left)}")
    print_line(f"collect: uses {clean(source)} as it is, with {', '.join(labels) or 'no annotations'}")


def _record_of(source: Path, name: str, codes: np.ndarray) -> dict[str, Any] | None:
    """The checked record of an annotation with these labels, [N]; None if this program did not make it.

    It lacks the jobs' logs, which name folders of another machine.
    """
    folder = annotation_folder(source, name)
    file = folder / "merged.json"
    outside = leads_out(folder, source.parent) or leads_out(file, folder)
    if outside or not (source / "dataset.json").is_file() or not file.is_file():
        return None
    with legible(f"{str(file)!r} as this program's annotation", FLAG, KeyError, TypeError):
        record = {NOT_ASKED: 0} | parse_foreign_json(read_bytes(file, LIMIT))
        kept = {name: record[name] for name in ("facts", "missing_shards", NOT_ASKED)}
        facts = {"tie_margin": 0.0} | kept["facts"]
        values = *kept.values(), facts["dataset"], facts["tie_margin"]
        if [*map(type, values)] != [dict, list, int, str, float]:
            raise ValueError("its values have another form")
    return kept | {"counts": count(codes), "shards": {}, "written": record.get("written") is True}


def _copy_annotation(folder: Path, target: Path, record: dict[str, Any], num_pairs: int, num_captions: int) -> None:
    """Copies an annotation: its record first, which identifies it, then the checked probabilities."""
    write_json(target / "merged.json", record)
    for name, limit in (("prob.npy", HEAD_BYTES + 4 * num_pairs), (NEUTRAL, LIMIT)):
        file = folder / name
        if not file.is_file() or leads_out(file, folder):
            continue
        with legible(f"{str(file)!r} as this program's annotation", FLAG, KeyError):
            data = read_bytes(file, limit)
            if name == NEUTRAL:
                answers = parse_foreign_json(data)
                numbers, chances = answers["captions"], answers["prob"]
                fits = type(numbers) is type(chances) is list and len(numbers) == len(chances)
                fits = fits and all(type(number) is int and 0 <= number < num_captions for number in numbers)
                fits = fits and all(map(Number(0, 1).allows, chances))
            else:
                prob = read_array(file)  # of pairs that were not asked about: NaN
                fits = prob.dtype == "float32" and prob.shape == (num_pairs,) and not ((prob < 0) | (prob > 1)).any()
            if not fits:
                raise ValueError("it does not have the probabilities of this dataset")
        files.write_whole(target / name, data)


STAGE = Stage(
    name=NAME,
    sections=(NAME,),
    config=CollectConfig,
    folders=lambda config, workdir: [
        workdir / DATASET,
        workdir / TRANSCRIPTS,
        *with_result(workdir / PIECES, pair_store.FIRST_PIECE),
        *with_result(workdir / PIECES_OF_TEXT, "policies.json"),
    ],
    check=check,
    is_complete=is_complete,
    run=run,
    lock=exclusive_lock,
    limits=Limits(
        "--config.collect.num_pairs, .save_screen, .save_glyphs",
        "--config.collect.num_workers, .games_per_worker, .rollout_length",
    ),
)
