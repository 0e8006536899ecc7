"""The maze of LMRL-Gym, played by writing.

`game.py` has the maze and one game, `world.py` the world.
"""
