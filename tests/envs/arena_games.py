"""Worlds of TextArena as users write them."""

from motif_jax.envs.arena_world import ArenaWorld


class Guess(ArenaWorld):
    id = "GuessTheNumber-v0"
    moves = tuple(f"[{number}]" for number in range(1, 21))


class Hanoi(ArenaWorld):
    id = "TowerOfHanoi-v0"
    moves = tuple(f"[{one} {other}]" for one in "ABC" for other in "ABC" if one != other)
