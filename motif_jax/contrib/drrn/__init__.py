"""DRRN, a network that scores actions by their names, and Q-learning from a replay buffer, which trains it: GLAM's
baseline (docs/glam.md). Its values are the section `drrn` of the config.
"""

from motif_jax.plugins import Plugin

PLUGIN = Plugin(
    networks={"drrn": "motif_jax.contrib.drrn.network:Drrn"},
    algorithms={"q_learning": "motif_jax.contrib.drrn.network:QLearning"},
    section="motif_jax.contrib.drrn.sections:DrrnSection",
    decides=("train_policy",),
)
