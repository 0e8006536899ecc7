"""Wordle, as offline reinforcement learning of language uses it: guess a word of five letters in six tries.

`vocabulary` knows words and colours, `position` the rules, `game` and `world` what `envs/world.py` asks for, `players`
the scripted players, `shown` the picture.
"""
