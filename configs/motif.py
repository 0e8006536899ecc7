"""Motif on NetHack (arXiv 2310.00166), with the published network and number of steps.

    python -m motif_jax.launch --config=configs/motif.py:score,gpu --workdir=runs/score

The argument is the task, because a task moves several values together: score, staircase, staircase_lvl3,
staircase_lvl4, staircase_continual, staircase_lvl3_continual, staircase_lvl4_continual, oracle, oracle_sober, or toy.
`:score,gpu` chooses games, batches and bfloat16 for a GPU and its cores, as quickstart.py does. `:score,reference`
reproduces the published system, including its defects if they change numbers; for as many pairs, add
--config.collect.num_pairs=500000 and a language model as judge, or take the published dataset (third_party/README.md).

On two cores, 100,000 pairs are collected in about ten seconds and annotated with the lexicon in one. Annotation by a
language model (--config.annotate.backend=vllm or server) takes minutes to hours. Training the reward takes about half a
minute; it agrees with the lexicon on 99 % of the validation pairs that have a preference. Training the policy takes two
billion steps, as published. One run on an H200, in bfloat16 with 15 workers of 128 games and batches of 16,384, made
81,200 steps/s after three minutes (docs/speed.md); at that rate two billion would take seven hours. Expected: not
measured at this size; quickstart.py is. A smaller --config.policy.train_for_env_steps takes less time.
"""

from ml_collections import ConfigDict

from motif_jax.envs.nethack.tasks import get_task
from motif_jax.experiment import defaults
from motif_jax.structs import UserError
from motif_jax.system.sizing import size_this_machine

SWITCHES = ("reference",)  # one of them may follow the task, and `gpu`; tests try all


def get_config(argument: str = "score") -> ConfigDict:
    """The whole experiment, for a task and optionally `reference` and `gpu`; docs/config.md lists all values."""
    task, *words = argument.split(",")
    switches = [word for word in words if word != "gpu"]
    if task != "toy" and ":" not in task:
        get_task(task)
    if len(switches) > 1 or not set(switches) <= set(SWITCHES):
        known = " and ".join(map(repr, (*SWITCHES, "gpu")))
        raise UserError(f"unknown switch {','.join(switches)!r} after the task {task!r}: there are {known} (--config)")

    config = defaults()
    config.env.task = task
    if task == "toy":
        config.collect.collector = "random"  # the explorer plays NetHack
    if task != "score":
        config.policy.extrinsic_coefficient = 10.0  # reaching a goal weighs more than messages
        config.policy.clip_value = 0.0  # goal rewards are 50, so clipping would stall learning
    if "reference" in switches:
        as_published(config)
    if "gpu" in words:
        config.sized = True
        config.policy.update(size_this_machine()._asdict())
    return config


def as_published(config: ConfigDict) -> None:
    """Sets values to those of the published system, defects included; --help=reference lists the effects."""
    config.env.reference_time_limit = True
    config.env.reference_sober = True
    config.annotate.both_orders = 0.0
    config.annotate.sampling.max_tokens = 4096
    config.reward.labels = "hard"  # without an anchor
    config.reward.learning_rate = 1e-5
    config.reward.reference_quantiles = True
    config.policy.reference_alignment = True
    config.policy.online.anchor = "none"
    config.policy.online.normalise = False
    config.policy.clip_value = 1.0
    config.policy.bootstrap = "inferred"
    config.policy.normalise_over_all = True
