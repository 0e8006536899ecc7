"""BabyAI-Text (arXiv 2302.02662): rooms of MiniGrid in words. In: actions. Out: sentences, prompts, grids.

Needs minigrid, which the extra `[babyai]` installs; nothing else of the program does. `settings` has the values of the
config, `world` is what others see, `game` one game. From the grid that a player sees, `describe` makes sentences in a
language of `words`, and `prompt` the text that a language model continues with an action. `levels` are MiniGrid's and
those of the paper, `bot` is MiniGrid's planner, `screen` a picture for people.
"""
