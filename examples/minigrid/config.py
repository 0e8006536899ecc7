"""The whole of Motif on a MiniGrid level, in about seven minutes on two cores.

    pip install -e ".[minigrid]"
    python -m motif_jax.launch --config=examples/minigrid/config.py --workdir=runs/minigrid

Random play makes pairs of captioned moments, the rules of lexicon.toml judge them, a reward is learnt from that, and an
agent learns from this reward alone; then it plays 200 games beside random play, and the report shows all of it.
Expected over five seeds: success in 0.81 [0.75, 0.87] of the games, random play in 0.28 (docs/results/own-game.md).
"""

from ml_collections import ConfigDict

from motif_jax.configs.own_game import get_config as own_game


def get_config() -> ConfigDict:
    """`configs/own_game.py` for this level."""
    return own_game("examples.minigrid.go_to:GoTo")
