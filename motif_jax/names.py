"""Short names of the config and the `module:Class` that each stands for. Where a name is used, it is looked up once.

What is found here has the interface of a user's own class. Nothing imports the classes of `contrib` in another way.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from motif_jax.structs import UserError

WORLDS = {  # envs/world.py
    "nethack": "motif_jax.envs.nethack.world:NetHackWorld",
    "toy": "motif_jax.envs.toy:ToyWorld",
    "treasure": "motif_jax.envs.treasure:TreasureWorld",
    "babyai": "motif_jax.envs.babyai.world:BabyAIWorld",
    "wordle": "motif_jax.envs.wordle.world:WordleWorld",
    "guessing": "motif_jax.contrib.guessing:GuessingWorld",
    "comments": "motif_jax.contrib.comments:CommentsWorld",
    "maze": "motif_jax.envs.maze:MazeWorld",
    "choices": "motif_jax.envs.choices:ChoicesWorld",
}
PROMPT_NETWORKS = {  # networks that read prompts and score the names of actions: networks/kinds.py
    "language": "motif_jax.policies.language_network:LanguageNetwork",
    "drrn": "motif_jax.contrib.drrn:Drrn",
}
POLICY_SECTIONS = {  # sections of `config.policy` that contrib declares
    "drrn": "motif_jax.contrib.drrn.sections:DrrnSection",
    "replay": "motif_jax.contrib.drrn.sections:ReplaySettings",
}
ALGORITHMS = {  # classes with the interface `Algorithm` of learner/settings.py
    "appo": "motif_jax.learner.algorithms:Appo",
    "impala": "motif_jax.learner.algorithms:Impala",
    "ppo": "motif_jax.learner.algorithms:Ppo",
    "grpo": "motif_jax.learner.algorithms:Grpo",
    "gigpo": "motif_jax.learner.algorithms:Gigpo",
    "q_learning": "motif_jax.contrib.drrn:QLearning",
}
SCHEDULES = {  # of learning rates: schedules.py
    "linear": "motif_jax.schedules:linear",
    "cosine": "motif_jax.schedules:cosine",
    "exponential": "motif_jax.schedules:exponential",
}
BACKENDS = {  # annotation/backends.py
    "model": "motif_jax.annotation.backends:Model",
    "vllm": "motif_jax.annotation.backends:Vllm",
    "server": "motif_jax.annotation.backends:Server",
    "judge": "motif_jax.contrib.judge:RuleServer",
    "lexicon": "motif_jax.annotation.backends:Rules",
    "score": "motif_jax.annotation.backends:ScoreOracle",
    "return": "motif_jax.annotation.backends:ReturnOracle",
    "random": "motif_jax.annotation.backends:Chance",
}
ONLINE_REWARDS = {"words": "motif_jax.contrib.words:WordsSource"}  # kinds of online rewards without a judge
TRANSCRIPT_FORMATS = {"tweets": "motif_jax.contrib.tweets:Tweets"}  # those that need a world


def import_named(path: str) -> Any:
    """Imports `module:Class` from this package."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def find(table: Mapping[str, str], name: str) -> Any:
    """The object behind a short name; None if the table does not have the name."""
    return import_named(table[name]) if name in table else None


def check_end(decay: str, share: float, flag: str) -> None:
    """Raises UserError if a learning rate cannot end at this share; `flag`: of the share."""
    never_zero = {"exponential"}
    if decay in never_zero and not share:
        raise UserError(
            f"a learning rate with the decay {decay!r} never comes to 0: end at a share of the first one, or choose "
            f"another decay ({flag}, .learning_rate_decay)"
        )
