"""Worlds. In: actions and seeds. Out: NumPy observations, rewards, ends. Never loads jax.

`world` defines the World interface, and `settings` makes the world that the config names: `nethack`, `toy`, `treasure`,
`babyai`, a text world (`text_world`, `text_game`: `wordle`, `guessing`, `comments`), or a user's class (loaded by
`own_code`).
`seeding` derives the seeds of games. Importing this room registers NetHack's tasks with gymnasium.
"""

from motif_jax.envs.nethack.tasks import register

register()
