"""Worlds. In: actions and seeds. Out: NumPy observations, rewards, ends. Never loads jax.

`world` defines the World interface, and `worlds` makes the world that the config names: `nethack`, `toy`, `babyai`, a
text world (`text_world`, `text_game`: `wordle`, `maze`), or a user's class (loaded by `own_code`), such as a gymnasium
environment (`gym_world`). Importing this room registers NetHack's tasks with gymnasium.
"""

from motif_jax.envs.nethack.tasks import register

register()
