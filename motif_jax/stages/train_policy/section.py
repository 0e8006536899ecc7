"""The config's sections policy and profile. Nothing here loads JAX."""

from __future__ import annotations

from dataclasses import dataclass

from motif_jax.config.table import MANY_SECONDS, PATH, Flag, Number, Tables, Text, Whole, table_of, value
from motif_jax.learner.settings import REPLAY, ReplaySettings, Settings
from motif_jax.networks.kinds import BY_PROMPT, BY_SPECS, FIXED
from motif_jax.policies.drrn_settings import DrrnPolicy
from motif_jax.policies.language_settings import LanguagePolicy
from motif_jax.rewards.choice import VALUES as SOURCE_VALUES
from motif_jax.system.machine import usable_cores


@dataclass(frozen=True)
class Network:
    """The policy."""

    network: str = value(
        "reference",
        Text((*FIXED, *BY_SPECS, *BY_PROMPT)),
        "reference: as published; small: for CPUs; general, film: other games; others: prompts",
        decides=True,
    )
    dtype: str = value(
        "float32", Text(("float32", "bfloat16")), "type of products; bfloat16 is faster on GPUs", decides=True
    )
    init_from: str = value(
        "", PATH, "policy whose parameters to begin with: a workdir, or its checkpoints", decides=True
    )


@dataclass(frozen=True)
class Rewards:
    """What it is rewarded for."""

    sources: str = value(
        "learnt",
        Text(longest=1000),
        "beside the game: learnt,online:0.4,count:0.05,rnd:0.1,my_module:My:0.2",
        decides=True,
    )
    extrinsic_coefficient: float = value(0.1, Number(-1e6, 1e6), "factor of the game's reward", decides=True)
    intrinsic_coefficient: float = value(
        0.1, Number(-1e6, 1e6), "factor of the learnt reward; 0: none is needed", decides=True
    )
    reward_dir: str = value(
        "", PATH, "workdir or checkpoints of the learnt reward; empty: of this workdir", decides=True
    )
    reward_checkpoint: str = value("last", Text(longest=20), "last, best, or the number of an epoch", decides=True)
    reward_scale: float = value(
        0.1, Number(-1e6, 1e6), "scale of the game's reward, before it is clipped", decides=True
    )
    reward_clip: float = value(10.0, Number(0, above=True, infinite=True), "limit of the game's reward", decides=True)
    threshold_quantile: float = value(
        0.5, Number(high=1, infinite=True), "quantile up to which learnt rewards are worth 0; -1: none", decides=True
    )
    count_exponent: float = value(
        3.0, Number(0, infinite=True), "the n-th time in an episode, a message is worth 1 / n^exponent", decides=True
    )
    reference_alignment: bool = value(
        False,
        Flag(),
        "messages are rewarded one step late, and an episode's last never",
        decides=True,
        differs="the learnt reward is credited to the step that caused the message, also to an episode's last step",
    )


@dataclass(frozen=True)
class Playing:
    """Who plays."""

    num_workers: int = value(usable_cores, Whole(), "processes that play; 0: play in this process, for debugging")
    games_per_worker: int = value(64, Whole(1), "games that a worker plays side by side")
    groups: int = value(2, Whole(1), "groups of games per worker: one plays while the other waits for actions")
    rollout_length: int = value(32, Whole(1), "steps of a rollout", decides=True)
    warmup_steps: int = value(
        1000, Whole(0, 1_000_000), "most random actions at the start of a game, so that games do not begin together"
    )
    hang_timeout_s: float = value(
        30.0, Number(0.1, MANY_SECONDS), "seconds without a sign of life after which a worker is replaced"
    )
    synchronous: bool = value(False, Flag(), "with at most one worker: the same run twice, to the bit")
    wait_for_learner: bool = value(False, Flag(), "games wait for a slower learner, so that samples are newer")
    batch_size: int = value(4096, Whole(1), "steps per update, of all hosts together", decides=True)


@dataclass(frozen=True)
class Devices:
    """Devices of a host."""

    num_devices: int = value(0, Whole(), "devices to use; 0: all")
    fsdp: int = value(1, Whole(1), "devices among which parameters and the batch are cut, for large networks")
    tensor: int = value(1, Whole(1), "devices that compute each layer together, from the same part of the batch")


@dataclass(frozen=True)
class Keeping:
    """How long it trains, and what is kept."""

    train_for_env_steps: int = value(2_000_000_000, Whole(1, 10**15), "steps of the game to train for")
    train_for_seconds: float = value(
        0.0, Number(0, MANY_SECONDS), "seconds to train for, after the first update; 0: no limit"
    )
    save_every_steps: int = value(10_000_000, Whole(1, 10**15), "steps between checkpoints")
    save_every_s: float = value(600.0, Number(0, MANY_SECONDS, above=True), "most seconds of work that a kill can cost")
    keep_checkpoints: int = value(5, Whole(1), "checkpoints to keep")
    milestone_every_steps: int = value(
        200_000_000, Whole(0, 10**15), "steps between checkpoints that are never removed; 0: none"
    )
    log_every_s: float = value(10.0, Number(0, MANY_SECONDS, above=True), "seconds between rows of metrics")
    probe_every: int = value(1, Whole(), "updates between rows of probes.jsonl, of networks that read prompts")
    tensorboard: bool = value(True, Flag(), "write metrics also for TensorBoard")
    wandb: str = value("", Text(longest=128), "project of Weights & Biases, which must be installed; empty: none")


@dataclass(frozen=True)
class Profile:
    """A trace of the device's work, for XProf, TensorBoard or Perfetto."""

    start_step: int = value(10, Whole(), "first update of the trace")
    num_steps: int = value(0, Whole(), "updates to trace; 0: none")


TABLES: Tables = {
    "policy": table_of(Network)
    | table_of(LanguagePolicy, "language")
    | table_of(DrrnPolicy, "drrn")
    | table_of(Rewards)
    | SOURCE_VALUES
    | table_of(Playing)
    | table_of(Settings)
    | table_of(ReplaySettings, REPLAY)
    | table_of(Devices)
    | table_of(Keeping),
    "profile": table_of(Profile),
}
