"""GLAM, small, on a CPU, with no download: a network of 73,000 parameters reads a manual, then plays.

    python -m motif_jax.launch --config=configs/glam_quickstart.py --workdir=runs/glam

The manual, motif_jax/envs/babyai/manuals, stands in for what a large language model has read; it is no Flan-T5. The
argument is a level, and `unread` for the same network without reading: `goto_small,unread`; or `demonstrations`: it
reads what the bot did in recorded games instead of the manual; or one of two baselines, `symbolic`, a network that sees
the grid, and `drrn`, Q-learning on prompts. It takes five minutes on two cores. In the
small room of the default, episodes are short: fifty thousand steps are five thousand of them.
"""

import runpy
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.envs.babyai.settings import FRENCH_LEVELS
from motif_jax.structs import UserError

UNREAD, DEMONSTRATIONS = "unread", "demonstrations"
REWORDINGS = ("synonyms", "other_nouns", "invented_nouns", "invented_adjectives", "invented_words", "i_would_like")


def get_config(argument: str = "goto_small") -> ConfigDict:
    """`glam.py`, made small."""
    level, *words = argument.split(",")
    given = ",".join([level, *(word for word in words if word not in (UNREAD, DEMONSTRATIONS))])
    config = runpy.run_path(str(Path(__file__).with_name("glam.py")))["get_config"](given)
    reads = not {UNREAD, "symbolic", "drrn"} & {*words}
    if DEMONSTRATIONS in words and not reads:
        raise UserError(f"{argument!r} names demonstrations, and a network that reads nothing beforehand (--config)")
    config.stages = ("train_language",) * reads + ("train_policy", "evaluate", "report")
    config.env.babyai.window = 1  # observations in a prompt: short prompts are read faster

    # ---- reading
    config.transcripts.import_format = "manual"
    config.transcripts.import_from = "goto" if level.startswith(("goto", "GoTo", "go_to_french")) else "goto,mixed"
    config.transcripts.template = "none"
    if DEMONSTRATIONS in words:
        config.stages = ("collect", *config.stages)
        config.transcripts.import_from = ""
        config.collect.collector = "bot"
        config.collect.transcripts = 4000  # games of about three moments in the small room, so as many as lessons
        config.collect.num_workers = 1
    config.language.family = "llama"
    config.language.width = 32
    config.language.layers = 4  # to find what is asked for among what is seen takes several, one after another
    config.language.heads = 2
    config.train_language.num_epochs = 1  # playing adds to it
    config.train_language.warmup_steps = 20
    config.train_language.max_length = 256
    config.train_language.learning_rate = 4e-3
    config.train_language.adam_b2 = 0.99
    config.train_language.batch_size = 8  # rows, with three lessons each; small updates, but many in the time there is
    config.train_language.validation_share = 0.02

    # ---- playing
    policy = config.policy
    policy.language.model = "trained" if reads else ""
    policy.language.family = "llama"
    policy.language.width = 32
    policy.language.layers = 4
    policy.language.heads = 2
    policy.language.hidden = 64
    policy.language.max_tokens = 248  # with the longest name of an action, no more than it was trained for
    policy.train_for_env_steps = 49_152
    policy.train_for_seconds = 240.0  # ends it on slow machines
    policy.learning_rate = 4e-4 if policy.network == "language" else 1e-3
    if "drrn" in words:
        policy.num_minibatches = 8  # per 128 steps: many updates, as the steps are few
        policy.drrn.width = 32
        policy.drrn.max_tokens = policy.language.max_tokens
        policy.replay.capacity = policy.train_for_env_steps  # all steps of the run
        policy.probe_every = 8
    else:
        # Of a language model, games take a thirtieth of the time and learning the rest: each step is learnt from once.
        # This and the learning rate were chosen in trials with one seed.
        policy.rollout_length = 32
        policy.batch_size = 1024
        policy.num_epochs = 1
        policy.num_minibatches = 4
    policy.save_every_s = 60.0
    policy.save_every_steps = 10_000
    policy.milestone_every_steps = 0
    config.evaluate.beside = "random,bot,@0" if reads else "random,bot"  # @0: what it could do before it played
    if reads and config.env.babyai.level not in FRENCH_LEVELS:  # rewordings are of English words
        config.evaluate.variations = ";".join(f"rewording={name}" for name in REWORDINGS)
    config.evaluate.episodes = 100
    config.evaluate.games_per_worker = 8
    return config
