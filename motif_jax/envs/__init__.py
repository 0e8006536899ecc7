"""Games. In: actions and seeds. Out: NumPy observations, rewards, ends. Owns everything NetHack; never loads jax.

`nethack` steps one game and `engine` corrects what NLE leaves open, `tasks` says what is rewarded, `observations` turns
raw frames into what is shipped, `vector` steps many games in lock-step, `toy` is a tiny world with the same frames,
and `gym_game` offers all of it to other libraries. Importing this room makes its ids known to gymnasium.
"""

from motif_jax.envs.registration import register

register()
