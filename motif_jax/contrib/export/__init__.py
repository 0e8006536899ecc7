"""Releases of what a workdir has learnt, for others to load (docs/releases.md); adapters by contrib/readers.

For those who publish: the stage writes a policy, its reward and a card in the layout of the Hugging Face Hub; or the
recorded conversations for TRL's trainers; or the policy's language model alone. To load a release it is not needed.

    python -m motif_jax.launch --config=configs/quickstart.py --workdir=runs/quickstart --stage=export
"""

from motif_jax.plugins import Plugin

PLUGIN = Plugin(stages={"export": "motif_jax.contrib.export.stage:STAGE"})
