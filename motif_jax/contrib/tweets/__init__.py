"""Transcripts from tweeted games of Wordle, as ILQL has them (docs/transcripts.md)."""

from motif_jax.plugins import Plugin

PLUGIN = Plugin(transcript_formats={"tweets": "motif_jax.contrib.tweets.reader:Tweets"})
