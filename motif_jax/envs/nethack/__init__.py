"""The world NetHack. `game` steps one game, `engine` patches NLE's engine, `tasks` defines the rewards.

`observations` converts raw frames to observations, `world` declares the config values, steps many games in lock-step
and implements the World interface, and `gym_game` offers the tasks to other libraries. This file does not import them,
so that registering the tasks does not load NLE.
"""
