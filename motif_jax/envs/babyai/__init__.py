"""BabyAI-Text (arXiv 2302.02662): rooms of MiniGrid in words. In: actions. Out: sentences, prompts, grids.

Needs minigrid, which the extra `[babyai]` installs. `level_settings` declares the config values, `world` implements the
World interface, and `game` has the levels, one game, and MiniGrid's planner. `words` turns the grid in view into
sentences, captions and prompts. `manual` makes data for training a language model from scratch.
"""
