"""BabyAI-Text (arXiv 2302.02662): rooms of MiniGrid in words. In: actions. Out: sentences, prompts, grids.

Needs minigrid, which the extra `[babyai]` installs. `level_settings` declares the config values, `world` implements the
World interface, and `game` has the levels and plays one game. `describe` turns the grid in view into sentences in a
language of `words`; `prompt` builds the text that a language model continues with an action. `bot` wraps MiniGrid's
planner. `manual` and `exercises` make data for training a language model from scratch.
"""
