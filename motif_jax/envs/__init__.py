"""Worlds. In: actions and seeds. Out: NumPy observations, rewards, ends. Never loads jax.

`world` says what a game is to everybody else, and `settings` makes the world that the config names: `nethack`, `toy`,
a world that is played by writing (`text_world`, `text_game`: `wordle`, `guessing`, `comments`), or a class of the
user's (`own_code` loads it, `strict` checks what it writes). `seeding` says which game is played.
Importing this room makes the ids of NetHack's tasks known to gymnasium.
"""

from motif_jax.envs.nethack.tasks import register

register()
