"""What is said of NetHack, for tests of the parts that judge it."""

from pathlib import Path

from motif_jax.annotation.backends import Lexicon
from motif_jax.envs.texts import read_texts

FOLDER = Path(__file__).parent.parent / "motif_jax/envs/nethack/texts"
NETHACK = read_texts("the game NetHack", FOLDER)
GOALS, LEXICON = NETHACK.goals, Lexicon(NETHACK, "defaultgoal")
