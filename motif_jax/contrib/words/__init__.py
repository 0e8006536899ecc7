"""ELLM's reward: similarity of a message and the goal as bags of words, in place of ONI's judge (docs/oni.md)."""

from motif_jax.plugins import Plugin

PLUGIN = Plugin(online_rewards={"words": "motif_jax.contrib.words.source:WordsSource"})
