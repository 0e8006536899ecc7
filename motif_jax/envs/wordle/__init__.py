"""Wordle as a benchmark of offline reinforcement learning with language: guess a word of five letters in six tries.

`vocabulary` has the words and colours, `game` the rules, `world` the world and its scripted players.
"""
