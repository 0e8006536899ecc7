"""The world NetHack. `game` steps one game, `engine` patches NLE's engine, `tasks` defines the rewards.

`observations` converts raw frames to observations, `vector` steps many games in lock-step, `game_settings` declares
the config values, `world` implements the World interface, and `gym_game` offers the tasks to other libraries. This file
does not import them, so that other worlds run without NLE.
"""
