"""GRPO and GiGPO of policies that choose actions: advantages within groups of episodes, in place of a critic.

Episodes of a group begin alike and are played by the same policy; what is better than the others of its group is made
more probable. For those who fine-tune a language model on a game whose values are hard to learn (docs/groups.md). Its
values are the section `group_advantages` of the config. Policies that write learn so in the stage train_values.

    python -m motif_jax.launch --config=groups:goto_small,gigpo --workdir=runs/groups
"""

from motif_jax.plugins import Plugin

PLUGIN = Plugin(
    algorithms={
        "grpo": "motif_jax.contrib.group_advantages.algorithms:Grpo",
        "gigpo": "motif_jax.contrib.group_advantages.algorithms:Gigpo",
    },
    section="motif_jax.contrib.group_advantages.sections:GroupAdvantages",
    decides=("train_policy",),
)
