"""Values of the config that had other names, or choices with other names, in the last minor version: both still work.

A flag is read with its new name, a line says so; config files may set the old name, and a workdir's record has either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

RENAMED = {  # the old name: the new one
    "cluster.address": "ray_games.address",
    "cluster.game_hosts": "ray_games.hosts",
    "cluster.cores": "ray_games.cores",
    "cluster.gpus": "ray_games.gpus",
    "policy.drrn.width": "drrn.width",
    "policy.drrn.max_tokens": "drrn.max_tokens",
    "policy.replay.capacity": "drrn.capacity",
    "policy.replay.minibatch_size": "drrn.minibatch_size",
    "policy.grpo.group_size": "group_advantages.group_size",
    "policy.grpo.divide_by": "group_advantages.divide_by",
    "policy.grpo.mean_over": "group_advantages.mean_over",
    "policy.grpo.ratio": "group_advantages.ratio",
    "policy.grpo.clip_high": "group_advantages.clip_high",
    "policy.grpo.reference_coefficient": "group_advantages.reference_coefficient",
    "policy.grpo.step_weight": "group_advantages.step_weight",
    "policy.online.audit_every_steps": "audit.every_steps",
    "policy.online.vectors": "words.vectors",
    "policy.online.lessons_early": "policy.online.updates_early",
    "policy.online.lessons_late": "policy.online.updates_late",
    "policy.pay": "policy.intrinsic_form",
    "policy.options": "options.rewards",
    "policy.controller": "options.controller",
    "policy.controller_chooses": "options.controller_chooses",
    "policy.control.length": "options.length",
    "policy.control.discount": "options.discount",
    "policy.control.bootstrap_on_switch": "options.bootstrap_on_switch",
    "policy.control.exploration": "options.exploration",
    "policy.control.anneal_exploration_to": "options.anneal_exploration_to",
    "policy.control.heads": "options.heads",
    "policy.control.coefficients": "options.coefficients",
    "policy.control.sum_to_one": "options.sum_to_one",
    "evaluate.beside": "evaluate.baselines",
    "write_reward.told": "code_rewards.feedback",
    "write_reward.writer": "code_rewards.writer",
    "write_reward.goal": "code_rewards.goal",
    "write_reward.grammar": "code_rewards.grammar",
    "write_reward.texts": "code_rewards.texts",
    "write_reward.proposals": "code_rewards.proposals",
    "write_reward.revisions": "code_rewards.revisions",
    "write_reward.attempts": "code_rewards.attempts",
    "write_reward.feedback": "code_rewards.feedback",
    "write_reward.players": "code_rewards.players",
    "write_reward.steps": "code_rewards.steps",
    "write_reward.pairs": "code_rewards.pairs",
    "write_reward.minutes": "code_rewards.minutes",
    "write_reward.train_for_env_steps": "code_rewards.train_for_env_steps",
    "write_reward.trainings": "code_rewards.trainings",
    "write_reward.chosen_by": "code_rewards.chosen_by",
}
CHOICES = {  # by the new name of a value: its old choices, and the new ones
    "annotate.order": {"as_now": "by_caption"},
    "options.heads": {"in_effect": "active"},
    "policy.intrinsic_form": {"reward": "thresholded", "share": "relative"},
    "policy.online.when_down": {"go_on": "continue"},
    "train_values.start": {"new_trunk": "fresh_trunk", "new": "fresh"},
}
CONFIGS = {  # a config and a word of its argument: the config that it is now, and its word there
    ("ilql", "dialogue"): ("guessing", ""),
    ("ilql", "comments"): ("comments", ""),
    ("ilql_quickstart", "dialogue"): ("guessing", "small"),
    ("ilql_quickstart", "comments"): ("comments", "small"),
    ("glam", "grpo"): ("groups", "grpo"),
    ("glam", "gigpo"): ("groups", "gigpo"),
}
FLAG = re.compile(r"(--?(?:no)?config\.)([^=]*)(=.*)?", re.DOTALL)


def current_choice(name: str, value: Any) -> Any:
    """The value with today's word for an old choice; `name`: the new one."""
    return CHOICES.get(name, {}).get(value, value) if isinstance(value, str) else value


def current_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by their old or new names, with the new ones."""
    renamed = {RENAMED.get(name, name): value for name, value in values.items()}
    return {name: current_choice(name, value) for name, value in renamed.items()}


def current_config(name: str, argument: str) -> tuple[str, str]:
    """The name and argument of today's config for those of a shipped one."""
    words = argument.split(",")
    moved = [word for word in words if (name, word) in CONFIGS]
    if not moved:
        return name, argument
    new, added = CONFIGS[name, moved[0]]
    return new, ",".join(filter(None, (*(word for word in words if word != moved[0]), added))) or "ilql"


def current_flag(word: str) -> str:
    """A word of the command line with the new name and choice; most words have them already."""
    if match := FLAG.fullmatch(word):
        start, name, value = match.groups(default="")
        new = RENAMED.get(name, name)
        return f"{start}{new}" + (f"={current_choice(new, value[1:])}" if value else "")
    return word
