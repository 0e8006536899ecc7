"""Exercises in reading: a new language model learns to look up what a prompt says about the thing that its goal names,
before it plays BabyAI-Text. They need no download (docs/reading.md).

    python -m motif_jax.launch --config=exercises:goto_local --workdir=runs/reads
"""

from motif_jax.plugins import Plugin

PLUGIN = Plugin(transcript_formats={"exercises": "motif_jax.contrib.exercises.reading:EXERCISES"})
