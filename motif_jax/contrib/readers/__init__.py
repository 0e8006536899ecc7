"""Files of other programs: adapters in PEFT's layout, and rewards of the published Motif (PyTorch).

For those who come with models of their own. A directory with an adapter is taken wherever a language model is
(docs/language.md); --config.reward.import_from takes a checkpoint_N.pth in place of training (docs/motif.md), and
motif_jax.export_reward writes one:

    python -m motif_jax.launch --config=configs/motif.py:score --workdir=runs/score --stage=train_reward \
        --config.reward.import_from=EXPERIMENT/checkpoint_p0/checkpoint_3910.pth
"""

from motif_jax.plugins import Plugin

PLUGIN = Plugin(
    readers={"peft": "motif_jax.contrib.readers.peft:adapter_files"},
    reward_readers={"pytorch": "motif_jax.contrib.readers.torch_reward:torch_file"},
    api={"export_reward": "motif_jax.contrib.readers.torch_reward:export_reward"},
)
