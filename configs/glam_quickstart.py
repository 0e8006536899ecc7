"""GLAM, small, on a CPU, without downloads: a network of 73,000 parameters reads a manual, then plays.

    python -m motif_jax.launch --config=configs/glam_quickstart.py --workdir=runs/glam

The manual (motif_jax/envs/babyai/manuals) stands in for pretraining, but does not replace it. The argument is a level,
optionally with a word: `unread` for the same network without the manual, as in `goto_small,unread`;
`demonstrations` for the bot's recorded games instead of the manual; or `symbolic`, a baseline that sees the grid. In
the small room of the default, episodes are short: fifty thousand steps are five thousand episodes.

Time: five minutes on two cores. Expected over five seeds: a return of 0.75 [0.70, 0.79], `unread` 0.60, random play
0.20 (docs/glam.md).
"""

import runpy
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.envs.babyai.level_settings import FRENCH_LEVELS
from motif_jax.structs import UserError

UNREAD, DEMONSTRATIONS = "unread", "demonstrations"
ALONE = {UNREAD, DEMONSTRATIONS, "symbolic"}  # words that exclude each other
REWORDINGS = ("synonyms", "other_nouns", "invented_nouns", "invented_adjectives", "invented_words", "i_would_like")


def get_config(argument: str = "goto_small") -> ConfigDict:
    """`glam.py` with small sizes."""
    level, *words = argument.split(",")
    given = ",".join([level, *(word for word in words if word not in (UNREAD, DEMONSTRATIONS))])
    config = runpy.run_path(str(Path(__file__).with_name("glam.py")))["get_config"](given)
    reads = not {UNREAD, "symbolic"} & {*words}
    if len(ALONE & {*words}) > 1:
        raise UserError(f"{argument!r} names two of {', '.join(sorted(ALONE))}: choose one (--config)")
    config.stages = ("train_language",) * reads + ("train_policy", "evaluate", "report")
    config.env.babyai.window = 1  # one observation per prompt: short prompts are faster

    # ---- reading
    config.transcripts.import_format = "manual"
    config.transcripts.import_from = "goto" if level.startswith(("goto", "GoTo", "go_to_french")) else "goto,mixed"
    config.transcripts.template = "none"  # as the policy reads a name right after its prompt
    if DEMONSTRATIONS in words:
        config.stages = ("collect", *config.stages)
        config.transcripts.import_from = ""
        config.collect.collector = "bot"
        config.collect.transcripts = 4000  # games of about three moments each: about as many as the manual's lessons
        config.collect.num_workers = 1  # enough for the bot
    config.language.family = "llama"
    config.language.width = 32  # small, for a CPU
    config.language.layers = 4  # several, to find the mission's thing among those in sight
    config.language.heads = 2
    config.train_language.num_epochs = 1  # the network goes on to learn by playing
    config.train_language.warmup_steps = 20  # of few updates
    config.train_language.max_length = 256  # three lessons
    config.train_language.learning_rate = 4e-3  # high, for a small network and few updates
    config.train_language.adam_b2 = 0.99  # a shorter average of squares, for few updates
    config.train_language.batch_size = 8  # small, so that there are more updates in the same time
    config.train_language.validation_share = 0.02  # more lessons to learn from

    # ---- playing
    policy = config.policy
    policy.language.model = "trained" if reads else ""
    policy.language.family = "llama"  # without reading, a new network of the same size
    policy.language.width = 32
    policy.language.layers = config.language.layers
    policy.language.heads = 2
    policy.language.hidden = 64  # units of the value's layers
    policy.language.max_tokens = 248  # with the longest name of an action, at most max_length
    policy.train_for_env_steps = 49_152  # 48 batches
    policy.train_for_seconds = 240.0  # the limit on slow machines
    policy.learning_rate = 4e-4 if policy.network == "language" else 1e-3  # high: small networks, few steps
    # Games take a thirtieth of the time and learning the rest, so each step is learnt from only once. This and the
    # learning rate were chosen in trials with one seed.
    policy.games_per_worker = 32
    policy.groups = 1
    policy.rollout_length = 32
    policy.batch_size = 1024
    policy.num_epochs = 1
    policy.num_minibatches = 4
    policy.save_every_s = 60.0  # of four minutes
    policy.save_every_steps = 10_000  # of 49,152
    policy.milestone_every_steps = 0  # a short run needs only the last checkpoints
    config.evaluate.baselines = "random,bot,@0" if reads else "random,bot"  # @0: the network before it played
    if reads and config.env.babyai.level not in FRENCH_LEVELS:  # rewordings replace English words
        config.evaluate.variations = ";".join(f"rewording={name}" for name in REWORDINGS)
    config.evaluate.games_per_worker = 8  # few episodes, so few at a time
    return config
