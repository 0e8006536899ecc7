"""A world of dialogues about a picture: the policy asks, a scripted player or a server answers (docs/wordle.md)."""

from motif_jax.plugins import Plugin

PLUGIN = Plugin(worlds={"guessing": "motif_jax.contrib.guessing.world:GuessingWorld"})
