"""A world of posts: the policy writes comments, which a lexicon, a table or a server scores (docs/wordle.md)."""

from motif_jax.plugins import Plugin

PLUGIN = Plugin(worlds={"comments": "motif_jax.contrib.comments.world:CommentsWorld"})
