"""Evaluate: plays the same games with policies and scripted players, and summarises them.

Here are its values, and the players, variations and replays that they name. Quick to import; play.py plays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from motif_jax import files
from motif_jax.config.table import MANY_SECONDS, PATH, PATHS, Flag, Number, Text, Whole, flatten, value
from motif_jax.devices.releases import METADATA, chosen_values, is_release, list_saved, needs_saved, saved_facts
from motif_jax.envs import protocols
from motif_jax.envs.protocols import TASK, EvaluationProtocol, find_protocol
from motif_jax.envs.texts import Rules, read_texts
from motif_jax.envs.world import World, is_text
from motif_jax.envs.worlds import check_world, essential, make_world
from motif_jax.episodes.playback import Frames, PlayedAgain, Recorded, Row, plays_the_same_twice
from motif_jax.files import checkpoint_steps, short_name, to_plain
from motif_jax.language.config import is_language_model, locate_model, model_hash
from motif_jax.language.hub import check_language_model
from motif_jax.names import PROTOCOLS
from motif_jax.networks.kinds import LANGUAGE, check_reads
from motif_jax.offline.recipes import recipe_of
from motif_jax.pages.players import EPISODES, SUMMARY
from motif_jax.policies.choice import LAST, find, parse_one
from motif_jax.policies.decoding import Decoding, check_decoding, decodings_of
from motif_jax.rewards.registry import ONLINE, chosen, kind_of, shown_source
from motif_jax.rewards.registry import VALUES as SOURCE_VALUES
from motif_jax.stages import Stage, decisive_in, exclusive_lock, find_pools, later, with_result
from motif_jax.stages.train_policy import Policy
from motif_jax.stages.train_values import ValuesConfig, check_texts_fit
from motif_jax.structs import Need, UserError, naming
from motif_jax.system.errors import Limits
from motif_jax.system.foreign import sha256_of
from motif_jax.system.machine import usable_cores

RECORDINGS = "recordings"  # of a player: the episodes that can only be recorded while they are played
WRITTEN = "_CHECKPOINT_METADATA"  # file of a checkpoint in which orbax records the time of writing
VALUES = "values/checkpoints"  # of policies that write
VARIANT = "#"  # before the name of a variant (`Acting.variant`): WORKDIR@STEP#NAME
REWARDS = (  # values of the policy that decide which rewards are added up
    "reward_dir", "reward_checkpoint", "threshold_quantile", "count_exponent", "intrinsic_form",
    "reference_alignment", "sources",
)  # fmt: skip
FLAG, BASELINES_FLAG = "--config.evaluate.policy", "--config.evaluate.baselines"


@dataclass(frozen=True)
class Evaluate:
    """Evaluation of policies and scripted players."""

    policy: str = value(
        "",
        PATH,
        "WORKDIR[@STEP] of a policy, or random or explorer; or a language model: directory, GGUF file, or smollm2; "
        "empty: of this workdir",
    )
    baselines: str = value("random", PATHS, "players of the same games, comma-separated: scripted, WORKDIR, @STEP")
    protocol: str = value(TASK, Text(tuple(PROTOCOLS)), "task: the rules of env; plugins have published ones")
    variations: str = value(
        "", Text(longest=4000), "more variations of babyai: rewording=synonyms;level=GoToFrench+actions=french"
    )
    controls: str = value(
        "",
        Text(tuple(protocols.CONTROLS)),
        "controls of babyai, in one table with zero-shot and random play; grounding: does it read its mission?",
    )
    episodes: int = value(100, Whole(1, 1_000_000), "episodes, played to their end; they are not used in training")
    replays: str = value(
        "best,worst,liked", Text(longest=1000), "episodes to keep: best, worst, liked, longest, toughest, or numbers"
    )
    greedy: bool = value(False, Flag(), "always choose the most probable action; often worse in games of chance")
    num_workers: int = value(usable_cores, Whole(), "worker processes; 0: play in this process, for debugging")
    games_per_worker: int = value(16, Whole(1), "games per worker, played in parallel")
    hang_timeout_s: float = value(30.0, Number(0.1, MANY_SECONDS), "seconds until a silent worker is replaced")


@dataclass(frozen=True)
class EvaluateConfig(ValuesConfig):
    """The values that the stage reads."""

    policy: Policy = field(default_factory=Policy)
    evaluate: Evaluate = field(default_factory=Evaluate)

    def decisive(self) -> set[str]:
        return decisive_in(self, "", "env")  # so that compared results are from the same games

    @property
    def protocol(self) -> EvaluationProtocol:
        return find_protocol(self.evaluate.protocol)

    def by_protocol(self) -> Self:
        """This config with the games of its protocol."""
        return replace(self, env=self.protocol.games(self.env))


class Contender(NamedTuple):
    """A player to evaluate: a scripted player, or one checkpoint of a policy."""

    name: str  # of its directory
    # "" for a scripted player, "." for this workdir's policy, or the checkpoints of another, or a language model
    path: str  # absolute
    step: int  # of the checkpoint
    greedy: bool
    decoding: Decoding | None = None  # of a policy that writes
    variant: str = ""  # of the policy (`Acting.variant`); "": the policy itself

    def metadata(self) -> dict[str, Any]:
        return {name: value for name, value in to_plain(self).items() if value or name not in ("decoding", "variant")}

    def folder(self, workdir: Path) -> Path:
        """The directory of its checkpoints."""
        own = workdir / ("values" if self.decoding else "policy") / "checkpoints"
        return own if self.path == "." else Path(self.path)


def _named(section: Evaluate) -> list[tuple[str, str]]:
    return [(other, BASELINES_FLAG) for other in section.baselines.split(",") if other] + [(section.policy, FLAG)]


def split_variant(policy: str) -> tuple[str, str]:
    """A policy, and the variant of it behind it, "" for none. Names of directories may contain a #."""
    path, mark, variant = policy.rpartition(VARIANT)
    names = filter(None, (policy, policy.rpartition("@")[0]))
    if not (mark and variant) or "/" in variant or any(Path(name).is_dir() for name in names):
        return policy, ""
    return path, variant


def find_contenders(config: EvaluateConfig, workdir: Path) -> list[tuple[Contender, str]]:
    """All players of the evaluation, without duplicates, with their flags; `config.evaluate.policy` comes last."""
    section = config.evaluate
    contenders: dict[Contender, str] = {}
    for policy, flag in _named(section):
        for contender in find_all(config, workdir, policy, flag):
            contenders.pop(contender, None)
            contenders[contender] = flag
    if section.controls and not config.protocol.rules:
        folder = contender.folder(workdir) if contender.path else workdir
        if contender.step and 0 in checkpoint_steps(folder):  # the policy before training comes first
            (zero,) = find_all(config, workdir, "@0" if contender.path == "." else f"{folder}@0", FLAG)
            contenders = {zero: flag} | {one: flag for one, flag in contenders.items() if one != zero}
    by_name: dict[str, Contender] = {}
    for contender, flag in contenders.items():
        if by_name.setdefault(contender.name, contender) != contender:
            raise UserError(f"two policies would be called {contender.name!r}: evaluate them one by one ({flag})")
    return list(contenders.items())


def find_all(config: EvaluateConfig, workdir: Path, policy: str, flag: str) -> list[Contender]:
    """The players that `policy`, the value of `flag`, names; several for a policy that writes: one per decoding.

    Checkpoints are found, but not read.
    """
    world, greedy, games = make_world(config.env), config.evaluate.greedy, config.protocol.suffix
    if policy in world.players:
        return [Contender(f"{policy}{games}", "", 0, False)]
    if is_text(world.action):
        name, path, step = _locate(workdir, policy, flag, "values")
        decodings = decodings_of(asdict(config.decoding))
        return [Contender(short_name(f"{name}-{step}-{one.name}"), path, step, False, one) for one in decodings]
    policy, variant = split_variant(policy)
    if is_language_model(policy):
        file = locate_model(policy, flag).absolute()
        return [Contender(short_name(f"{file.name.removesuffix('.gguf')}{games}"), str(file), 0, greedy)]
    if not policy and not checkpoint_steps(workdir / "policy/checkpoints") and checkpoint_steps(workdir / VALUES):
        raise UserError(
            f"the policy in {str(workdir)!r} writes texts, but the world {world.name!r} is played by actions: "
            "evaluation needs a world of texts (--config.env.world), and motif_jax.load_values and motif-chat need none"
        )
    name, path, step = _locate(workdir, policy, flag, "policy")
    of_variant = f"-{variant}" if variant else ""
    name = short_name(f"{name}-{step}{of_variant}{'-greedy' if greedy else ''}{games}")
    return [Contender(name, path, step, greedy, variant=variant)]


def _locate(workdir: Path, policy: str, flag: str, stage: str) -> tuple[str, str, int]:
    """Name, `Contender.path` and step of the checkpoint that a flag names; `stage`: the folder of such checkpoints.

    "" and @STEP are checkpoints of this workdir. LAST is, of values, the one that was chosen by return, if one was.
    """
    if policy and not policy.startswith("@"):
        choice = parse_one(policy, flag)
    else:  # the path of a sweep's workdir may contain a comma
        choice = parse_one(f".{policy}", flag)._replace(path=str(workdir))
    if stage == "policy":
        (one,) = find([choice], flag)
        directory, step = Path(one.path), one.step
    else:
        with naming(f"run --stage=train_values first, {flag}"):
            directory, steps = list_saved(Path(choice.path), "values")
        step = chosen_values(directory, steps) if choice.which == LAST else int(choice.which)  # `read_values` finds it
    if directory == (workdir / stage / "checkpoints").resolve():
        return stage, ".", step
    home = directory.parent if directory.name == "checkpoints" else directory
    return (home.parent if home.name == stage else home).name, str(directory), step


def with_variations(config: EvaluateConfig) -> list[EvaluateConfig]:
    """The config itself, and one for each variation and control, whose name is its `protocol`.

    Scripted players play only the variations of the level.
    """
    configs, scripted, own = [config], make_world(config.env).players, config.evaluate
    varied = *protocols.split_variations(own.variations), *protocols.CONTROLS[own.controls].values()
    for name in dict.fromkeys(varied):
        baselines = own.baselines
        if "level" not in protocols.parse_variation(name):  # scripted players do not read prompts
            baselines = ",".join(other for other in own.baselines.split(",") if other not in scripted)
        configs.append(replace(config, evaluate=replace(own, protocol=name, baselines=baselines)))
    return configs


def is_evaluated(config: EvaluateConfig, workdir: Path, contender: Contender) -> bool:
    """Whether this player has an up-to-date summary of as many episodes as the config asks for."""
    summary = read_json(workdir / "evaluate" / contender.name / SUMMARY) or {}
    wanted = {"path": contender.path, "episodes": config.evaluate.episodes, "chosen": config.evaluate.replays}
    wanted["stamp"] = stamp(config, workdir, contender)
    has_episodes = (workdir / "evaluate" / contender.name / EPISODES).is_file()
    return has_episodes and all(summary.get(name) == value for name, value in wanted.items())


def stamp(config: EvaluateConfig, workdir: Path, contender: Contender) -> dict[str, Any]:
    """What decides the results of a player, as far as it is known without loading it and the learnt reward.

    Files count by their checksums; None: there is none.
    """
    section, own = flatten(asdict(config.policy)), workdir / "policy" / "checkpoints"
    facts: dict[str, Any] = {f"policy.{name}": section[name] for name in (*REWARDS, *SOURCE_VALUES)}
    facts["the reward sources"] = [(one.name, one.path, one.argument) for one in chosen(config)]
    if contender.decoding:
        trained = read_json(contender.folder(workdir).parent / "config.json") or {}
        bounds = [trained.get("train_values", {}).get(name) for name in ("value_min", "value_max")]
        facts |= {"the decoding": contender.decoding, "the bounds of values": bounds}
    if is_language_model(contender.path):
        decides = {name: value for name, value in section.items() if name.startswith("language.") or name == "dtype"}
        facts |= {f"policy.{name}": value for name, value in decides.items()}
        facts["the model's weights"] = model_hash(contender.path)
    played = contender.folder(workdir) / str(contender.step)
    of_player = played.parent / METADATA if is_release(played.parent) else played / WRITTEN
    rewards = [workdir / "reward" / "statistics.json"]
    if config.policy.reward_dir:
        rewards = saved_facts(Path(config.policy.reward_dir), "reward")
    last = own / str(max(checkpoint_steps(own), default=0)) / WRITTEN
    for name, several in {"the player": [of_player], "the last policy": [last], "the learnt reward": rewards}.items():
        facts[name] = [sha256_of(file) if file.is_file() else None for file in several]
    plain: dict[str, Any] = to_plain(facts)
    return plain


def changed(before: Mapping[str, Any] | str, now: Mapping[str, Any]) -> str:
    """The names of the facts that differ, for a sentence."""
    if isinstance(before, str):  # a checksum of version 0.2.0 and before
        return "the version"
    return ", ".join(name for name in {**before, **now} if before.get(name) != now.get(name))


# ---- replays of evaluated episodes

REPLAYS_FLAG = "--config.evaluate.replays"
EpisodeRow = dict[str, Any]  # a line of `episodes.jsonl`


def learnt_return(row: Row) -> float:
    """The learnt return of an episode, or the return of the online reward; 0 without either."""
    return row["intrinsic_return"] or (row.get("returns") or {}).get(ONLINE, 0.0)


WORDS: dict[str, Callable[[Row], tuple[float, ...]]] = {  # chooses the first episode with the largest value
    "best": lambda row: (row["episode_return"], learnt_return(row)),
    "worst": lambda row: (-row["episode_return"], -learnt_return(row)),
    "liked": lambda row: (learnt_return(row), row["episode_return"]),
    "longest": lambda row: (row["steps"],),
    "toughest": lambda row: (bool(row["success"]), row["steps"]),  # the longest that reached its goal
}


def choose(config: EvaluateConfig, rows: Mapping[int, Row]) -> dict[str, int]:
    """The episodes whose replays are kept, by word or number."""
    chosen: dict[str, int] = {}
    for word in filter(None, config.evaluate.replays.split(",")):
        if word in WORDS and rows:
            chosen[word] = max(sorted(rows), key=lambda number: WORDS[word](rows[number]))
        elif word.isdecimal() and int(word) in rows:  # an episode may have been given up
            chosen[word] = int(word)
    return chosen


def file_of(folder: Path, episode: int) -> Path:
    """The path of the replay of an episode in a player's directory."""
    return folder / "replays" / f"episode-{episode:05}.npz"


def find_frames(config: EvaluateConfig, folder: Path) -> Frames:
    """The way to the events and frames of this world's games. `folder`: of the player; recordings are kept there."""
    happenings = rules_of(make_world(config.env)).happenings()
    if plays_the_same_twice(config.env, config.seed, config.evaluate.games_per_worker > 1):
        return PlayedAgain(config.env, config.seed, happenings)
    return Recorded(config.env, happenings, folder / RECORDINGS)


def replay_metadata(config: EvaluateConfig, player: Row, words: list[str]) -> dict[str, Any]:
    """The metadata of a replay: its player, its games, and the words that it was chosen for."""
    shown = "" if player["reward"] else shown_source(player.get("sources", {}))
    kind = kind_of(shown)
    late = config.policy.reference_alignment and kind.of_captions  # rewards are for the message before the action
    given = {"choosers": player.get("choosers"), "rewarded_by": kind.replay_word, "one_step_late": late}
    names = ("parameters", "reward", "goal", "threshold", "count_exponent")
    metadata = {"player": player["name"], "chosen": words} | {name: player[name] for name in names}
    return metadata | {name: value for name, value in given.items() if value} | {"games": games_of(config)}


def games_of(config: EvaluateConfig) -> dict[str, Any]:
    """The settings that decide which games are played: `config.env` and the seed."""
    return essential(config.env) | {"seed": config.seed}


def rules_of(world: World) -> Rules:
    """The rules that count the events of a world's episodes; raises UserError for an invalid file."""
    return read_texts(world.about, world.texts).rules()


def read_json(file: Path) -> dict[str, Any] | None:
    """The content of a JSON file; None if the file does not exist."""
    return files.read_json(file) if file.exists() else None


def read_rows(file: Path) -> list[EpisodeRow]:
    """The lines of `episodes.jsonl`; [] if the file does not exist."""
    return [*files.read_lines(file)] if file.exists() else []


def check(config: EvaluateConfig, workdir: Path) -> Iterator[Need]:
    """Raises UserError for values that cannot work; returns what is needed."""
    section = config.evaluate
    config.protocol.check(config.env)
    world = check_world(config.by_protocol().env)
    rules_of(world)
    if is_text(world.action):
        decodings = decodings_of(asdict(config.decoding))
        if section.greedy:
            raise UserError(
                f"in the world {world.name!r} policies write texts: choose --config.decoding.kinds=greedy instead "
                "(--config.evaluate.greedy)"
            )
        if section.policy == "" and "train_values" in config.stages:
            check_decoding(recipe_of(config.train_values.recipe), decodings)
            check_texts_fit(config)
    for policy, flag in _named(section):
        if policy not in (*world.players, ""):
            policy, _ = split_variant(policy)
            if is_language_model(policy):
                check_reads(LANGUAGE, world.specs, world.reads, world.name)
            parse_one(f".{policy}" if policy.startswith("@") or not policy else policy, flag)
    names = protocols.split_variations(section.variations) or section.controls
    if names and (not getattr(world, "varies", False) or config.protocol.rules):
        raise UserError(
            f"only the world 'babyai' has variations, and only with its own rules, not {world.name!r} with those of "
            f"{section.protocol!r} ({protocols.VARIATIONS_FLAG}, .controls, .protocol, --config.env.world)"
        )
    for varied in with_variations(config)[1:]:
        check_world(varied.by_protocol().env)
    for word in filter(None, section.replays.split(",")):
        if word not in WORDS and not (word.isdecimal() and int(word) < section.episodes):
            raise UserError(
                f"unknown replay {word!r} ({REPLAYS_FLAG}): choose from {', '.join(WORDS)}, or numbers of episodes "
                f"up to {section.episodes - 1}"
            )
    find_pools(config).check(waits=False)
    return needs(config, workdir)


def needs(config: EvaluateConfig, workdir: Path) -> Iterator[Need]:
    """The players from elsewhere, and the learnt reward."""
    for policy, flag in _named(config.evaluate):
        yield from needs_player(config, workdir, policy, flag)
    if not checkpoint_steps(workdir / "policy" / "checkpoints"):  # which hold the reward that was learnt
        which = config.policy.reward_checkpoint
        yield from needs_saved(config.policy.reward_dir, "reward", "--config.policy.reward_dir", which)


def needs_player(config: EvaluateConfig, workdir: Path, policy: str, flag: str) -> Iterator[Need]:
    """The policy or language model that a value names, unless it is of this workdir, or a scripted player."""
    world = make_world(config.env)
    name, _ = split_variant(policy)
    if name in (*world.players, "") or name.startswith("@"):
        return

    def check() -> None:
        find_all(config, workdir, policy, flag)
        if is_language_model(name) and not is_text(world.action):
            check_language_model(name, flag)

    yield Need(check, Path(name if is_language_model(name) else parse_one(name, flag).path))


def is_complete(config: EvaluateConfig, workdir: Path) -> bool:
    """Whether every player that the config names has a summary over the wanted number of episodes."""
    try:
        return all(
            is_evaluated(asked, workdir, contender)
            for asked in with_variations(config)
            for contender, _ in find_contenders(asked, workdir)
        )
    except UserError:
        return False  # `run` reports it if it asks again; an earlier stage may still make the policy


STAGE = Stage(
    name="evaluate",
    sections=("evaluate", "decoding"),
    config=EvaluateConfig,
    folders=lambda config, workdir: [
        made for folder in sorted((workdir / "evaluate").glob("*")) for made in with_result(folder, EPISODES, SUMMARY)
    ],
    check=check,
    is_complete=is_complete,
    run=later("motif_jax.stages.evaluate.play:run"),
    lock=exclusive_lock,
    limits=Limits("--config.evaluate.replays, .episodes", "--config.evaluate.num_workers, .games_per_worker"),
)
