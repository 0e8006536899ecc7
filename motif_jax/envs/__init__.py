"""Games. In: actions and seeds. Out: NumPy observations, rewards, ends. Owns everything NetHack; never loads jax.

`nethack` steps one game, `tasks` says what is rewarded, `observations` turns raw frames into what is shipped, `vector`
steps many games in lock-step, `toy` is a tiny world with the same frames, `registration` offers the tasks to gymnasium.
"""
