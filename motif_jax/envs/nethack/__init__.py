"""The world NetHack. `game` steps one game and `engine` corrects what NLE leaves open, `tasks` says what is rewarded.

`observations` turns raw frames into what is shipped, `vector` steps many games in lock-step, `shown` plays one game
again for people, `settings` is NetHack's part of the config, `world` is what everybody else sees, and `gym_game` offers
the tasks to other libraries. Nothing is imported here, so that other worlds run without NLE.
"""
