"""Wordle as a benchmark of offline reinforcement learning with language: guess a word of five letters in six tries.

`vocabulary` has the words and colours, `game` the rules, `game` and `world` implement the World interface, `players`
has the scripted players.
"""
