"""Rewards as programs: files of one expression, such as `gained(gold) + 0.1 * says("you kill")`.

For whoever can say what is good in a line: the reward source `code:FILE`. In the stage `write_reward` a language model
writes such programs, tries them on recorded episodes and revises them (docs/code-rewards.md; the section `code_rewards`
of the config; `bash launch/quickstart.sh code`). grammar.py makes a typed tree of the text, names.py finds what a world
lets a program read, running.py computes rewards of rollouts, source.py makes a reward source of all that; guide.py
holds models to the grammar, writers.py and job.py write. Nothing here runs Python's own parser or any code of a file.
"""

from motif_jax.plugins import Plugin

PLUGIN = Plugin(
    sources={"code": "motif_jax.contrib.code_rewards.source:CODE"},
    stages={"write_reward": "motif_jax.contrib.code_rewards.stage:STAGE"},
    section="motif_jax.contrib.code_rewards.sections:CodeRewardsSection",
)
