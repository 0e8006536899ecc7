"""BabyAI-Text (arXiv 2302.02662): rooms of MiniGrid in words. In: actions. Out: sentences, prompts, grids.

Needs minigrid, which the extra `[babyai]` installs. `settings` declares the config values, `world` implements the World
interface, and `game` plays one game. `describe` turns the grid in view into sentences in a language of `words`;
`prompt` builds the text that a language model continues with an action. `levels` has MiniGrid's levels and the paper's,
`bot` wraps MiniGrid's planner, `screen` draws the game for people.
"""
