"""The maze as a world (`envs/world.py`): `--config.env.world=maze`.

Option: `position`, whether the world says where the agent is; otherwise it only says where walls are, so the agent
must remember its way.
"""

from __future__ import annotations

from motif_jax.config.table import Flag
from motif_jax.envs.maze.game import MAKERS, MazeGame
from motif_jax.envs.text_world import TextWorld

FLAG = "--config.env.options"
FIGURES: dict[str, type] = {"distance": int, "others": int}  # moves from the start to the goal; texts that are no moves


class MazeWorld(TextWorld):
    """See the module docstring."""

    name = "maze"
    about = "a maze, through which the agent walks by writing its moves"
    figures = FIGURES
    written, heard = 16, 64
    makers = MAKERS

    def __init__(self, max_episode_steps: int = 5000, position: bool = True):
        super().__init__(max_episode_steps)
        Flag().check("position", FLAG, position)
        self._position = position

    def game(self, shown: bool = True) -> MazeGame:
        return MazeGame(tells_position=self._position, written=self.written, heard=self.heard, limit=self.time_limit)
