"""Motif on NetHack (arXiv 2310.00166), at the published size.

    python -m motif_jax.launch --config=configs/motif.py:score --workdir=runs/score

The argument is the task, because a task moves several values together: score, staircase, staircase_lvl3,
staircase_lvl4, staircase_continual, staircase_lvl3_continual, staircase_lvl4_continual, oracle, oracle_sober, or toy.
`:score,reference` reproduces the published system, defects included, where numbers depend on them.

Collecting 100,000 pairs takes about ten seconds on two cores.
"""

from ml_collections import ConfigDict

from motif_jax.actors.capacity import usable_cores
from motif_jax.envs.tasks import get_task
from motif_jax.structs import UserError


def get_config(argument: str = "score") -> ConfigDict:
    """The whole experiment, for a task and optionally `reference`."""
    task, *switches = argument.split(",")
    if task != "toy" and ":" not in task:
        get_task(task)
    if switches not in ([], ["reference"]):
        raise UserError(f"unknown switch {switches[0]!r} after the task {task!r}: there is only 'reference' (--config)")
    reference = switches == ["reference"]

    config = ConfigDict()
    config.seed = 777
    config.stages = ("collect",)  # what runs without --stage, in this order

    # ---- the game, in every stage
    config.env = ConfigDict()
    config.env.task = task
    config.env.screen = "terminal"  # the crop shows the terminal as published; "map" is 15 % faster and has no text
    config.env.max_episode_steps = 5000
    config.env.penalty_mode = "constant"  # of the score task, for steps without game time; see envs/tasks.py
    config.env.penalty_step = -0.01
    config.env.character = "mon-hum-neu-mal"  # neutral human male monk
    config.env.reference_time_limit = reference  # the time limit is a true end, not a cut
    config.env.reference_sober = reference  # hallucinating and levitating counts as sober

    # ---- the dataset of pairs
    config.collect = ConfigDict()
    config.collect.dataset = ""  # a directory in the published layout, to be used instead of playing
    config.collect.collector = "random" if task == "toy" else "explorer:0.8,random:0.2"  # who plays, with shares
    config.collect.num_pairs = 100_000  # the paper used 500,000 and says 100,000 reproduce most results
    config.collect.segment_length = 1  # steps per moment
    config.collect.keep_empty = 1.0  # share of the moments without any message that is kept
    config.collect.save_screen = False  # also tty_chars and tty_colors, 7.7 kB per pair and step
    config.collect.num_workers = usable_cores()  # 0: play in this process, for debugging
    config.collect.games_per_worker = 4
    config.collect.rollout_length = 128  # steps that a worker hands over at a time
    config.collect.commit_every_s = 20.0  # what a kill can cost at most
    config.collect.hang_timeout_s = 10.0  # a worker without a sign of life is replaced after so long

    # ---- measuring this machine
    config.benchmark = ConfigDict()
    config.benchmark.parts = ("env",)
    config.benchmark.seconds = 2.0  # per measurement
    config.benchmark.repeats = 3  # of which the median is reported
    return config
