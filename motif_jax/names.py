"""Short names of the config and the `module:Class` that each stands for. Where a name is used, it is looked up once.

What is found here has the interface of a user's own class. Here are core's names; plugins.py finds those of others.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any

from motif_jax.console import clean
from motif_jax.plugins import find_plugins
from motif_jax.structs import UserError

WORLDS = {  # envs/world.py
    "nethack": "motif_jax.envs.nethack.world:NetHackWorld",
    "toy": "motif_jax.envs.toy:ToyWorld",
    "babyai": "motif_jax.envs.babyai.world:BabyAIWorld",
    "wordle": "motif_jax.envs.wordle.world:WordleWorld",
    "maze": "motif_jax.envs.maze:MazeWorld",
    "choices": "motif_jax.envs.choices:ChoicesWorld",
}
PROMPT_NETWORKS = {  # networks that read prompts and score the names of actions: networks/kinds.py
    "language": "motif_jax.policies.language_network:LanguageNetwork",
}
ALGORITHMS = {  # classes with the interface `Algorithm` of learner/settings.py
    "appo": "motif_jax.learner.algorithms:Appo",
    "impala": "motif_jax.learner.algorithms:Impala",
    "ppo": "motif_jax.learner.algorithms:Ppo",
}
SCHEDULES = {  # of learning rates: a `Decay` of schedules.py
    "linear": "motif_jax.schedules:LINEAR",
    "cosine": "motif_jax.schedules:COSINE",
    "exponential": "motif_jax.schedules:EXPONENTIAL",
}
BACKENDS = {  # annotation/backends.py
    "model": "motif_jax.annotation.backends:Model",
    "vllm": "motif_jax.annotation.backends:Vllm",
    "server": "motif_jax.annotation.backends:Server",
    "judge": "motif_jax.annotation.rule_server:RuleServer",
    "lexicon": "motif_jax.annotation.backends:Rules",
    "score": "motif_jax.annotation.backends:ScoreOracle",
    "return": "motif_jax.annotation.backends:ReturnOracle",
    "random": "motif_jax.annotation.backends:Chance",
}
SOURCES = {  # of rewards: `SourceKind` of rewards/registry.py
    "learnt": "motif_jax.rewards.registry:LEARNT_KIND",
    "count": "motif_jax.rewards.registry:COUNT_KIND",
    "explore": "motif_jax.rewards.registry:EXPLORE_KIND",
    "rnd": "motif_jax.rewards.registry:RND_KIND",
    "online": "motif_jax.rewards.registry:ONLINE_KIND",
}
ONLINE_REWARDS: dict[str, str] = {}  # kinds of online rewards without a judge
TRANSCRIPT_FORMATS = {  # transcripts/imports.py
    "lmrl": "motif_jax.transcripts.imports:LMRL",
    "lmrl_wordle": "motif_jax.transcripts.imports:LMRL_WORDLE",
    "visdial": "motif_jax.transcripts.imports:VISDIAL",
    "reddit": "motif_jax.transcripts.imports:REDDIT",
    "manual": "motif_jax.stages.train_language.manual:MANUAL",
    "trl": "motif_jax.transcripts.imports:TRL",
}
PROTOCOLS = {"task": "motif_jax.envs.protocols:OWN_GAMES"}  # of evaluation
POOLS: dict[str, str] = {}  # functions of the config -> `Pools` of actors/pool.py, or None
ACTING: dict[str, str] = {}  # subclasses of `Acting` (learner/acting.py) by the key of their `record`
RUNNERS: dict[str, str] = {}  # functions of the config -> a `Runner` of system/runs.py, or None
READERS = {  # functions of a path -> `ModelFiles` of language/hub.py, or None for another format
    "gguf": "motif_jax.language.gguf_file:gguf_files",
}
REWARD_READERS: dict[str, str] = {}  # the same -> a `RewardFile` of rewards/statistics.py
FILMS: dict[str, str] = {}  # by the end of a file's name
OWN_STAGES = (
    "collect", "check_judge", "annotate", "train_reward", "train_policy", "train_language", "train_values", "evaluate",
    "report", "visualize",
)  # fmt: skip
TRAINING_HOOKS = {"probes": "motif_jax.stages.train_policy.hooks:Probes"}
API: dict[str, str] = {}  # beside api.py
STAGES = {name: f"motif_jax.stages.{name}:STAGE" for name in OWN_STAGES}
PLUGINS = find_plugins()
PLUGINS.join(
    worlds=WORLDS,
    networks=PROMPT_NETWORKS,
    algorithms=ALGORITHMS,
    judges=BACKENDS,
    transcript_formats=TRANSCRIPT_FORMATS,
    readers=READERS,
    sources=SOURCES,
    online_rewards=ONLINE_REWARDS,
    protocols=PROTOCOLS,
    pools=POOLS,
    runners=RUNNERS,
    acting=ACTING,
    reward_readers=REWARD_READERS,
    films=FILMS,
    training_hooks=TRAINING_HOOKS,
    api=API,
    stages=STAGES,
)

OF_OTHERS = {  # what plugins of others name
    target
    for plugin in PLUGINS.by_name.values()
    for table in plugin.tables().values()
    for target in table.values()
    if not target.startswith(f"{__package__}.")
}


def import_named(path: str) -> Any:
    """Imports `module:Class` from this package or a plugin; raises UserError if another's module cannot be imported."""
    module, _, name = path.partition(":")
    if path not in OF_OTHERS:
        return getattr(importlib.import_module(module), name)
    try:
        return getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:
        reason = clean(str(error) or type(error).__name__, 200)
        raise UserError(f"{clean(path, 80)!r}, which a plugin names, cannot be imported: {reason}") from error


def find(table: Mapping[str, str], name: str) -> Any:
    """The object behind a short name; None if the table does not have the name."""
    return import_named(table[name]) if name in table else None


def check_plugins(sections: Iterable[str]) -> None:
    """Raises UserError if two plugins, or a plugin and the program, have the same name; `sections`: the program's."""
    for name, plugin in PLUGINS.by_name.items():
        if unknown := {*plugin.decides} - STAGES.keys():
            raise UserError(f"the plugin {name!r} decides the results of {min(unknown)!r}, which is no stage")
    twice = [
        f"the plugin {name!r} has the name of a section of the config" for name in PLUGINS.sections.keys() & {*sections}
    ]
    for sentence in [*PLUGINS.conflicts, *twice]:
        raise UserError(sentence)


def check_end(decay: str, share: float, flag: str) -> None:
    """Raises UserError if a learning rate cannot end at this share; `flag`: of the share."""
    reaches_zero = find(SCHEDULES, decay).reaches_zero
    if not (share or reaches_zero):
        raise UserError(
            f"a learning rate with the decay {decay!r} never comes to 0: end at a share of the first one, or choose "
            f"another decay ({flag}, .learning_rate_decay)"
        )
