"""Options over rewards: one network plays several behaviours, each for a sum of rewards of its own, and a controller
chooses among them, or mixes them (docs/options.md). For those who study such agents: flat ones beat them on NetHack.

    python -m motif_jax.launch --config=options:treasure --workdir=runs/options

Its values are the section `options` of the config. acting.py is what acts in a step; plan.py reads the rewards of the
options; control.py has what the learner computes, heads.py the outputs of the network; treasure/ is a small game.
"""

from motif_jax.plugins import Plugin

PLUGIN = Plugin(
    worlds={"treasure": "motif_jax.contrib.options.treasure:TreasureWorld"},
    acting={"options": "motif_jax.contrib.options.acting:Options"},
    training_hooks={"options": "motif_jax.contrib.options.figures:OptionFigures"},
    section="motif_jax.contrib.options.sections:OptionsSection",
    decides=("train_policy",),
)
