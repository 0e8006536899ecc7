"""Published rules of evaluation, to compare a policy with others' results: those of the NetHack Challenge, and of
BALROG for NetHack and BabyAI (docs/protocols.md).

    --stage=evaluate --config.evaluate.protocol=challenge
"""

from motif_jax.plugins import Plugin

PLUGIN = Plugin(
    protocols={
        "challenge": "motif_jax.contrib.protocols.rules:CHALLENGE",
        "balrog_nethack": "motif_jax.contrib.protocols.rules:BALROG_NETHACK",
        "balrog_babyai": "motif_jax.contrib.protocols.rules:BALROG_BABYAI",
    },
)
