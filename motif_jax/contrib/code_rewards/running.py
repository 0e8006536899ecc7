"""Computes the rewards of rollouts by a program, for all steps and games at once.

A program remembers, for each game, values of the current episode: the best of `record`, whether `once` has paid, and
the flag of `rose` in the last step. They stay between calls, because an episode may span several rollouts. Only these
need a loop over the steps; everything else is computed for all of them.

All numbers are float64. Numbers that are not finite count as 0, and every result is clipped to HUGE, so that no
infinity and no NaN arises. A step in which the game waits is worth 0 and changes nothing.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from motif_jax.contrib.code_rewards.grammar import Expression, Program
from motif_jax.contrib.code_rewards.names import GRID, NUMBER, STEP, TEXTS, Entry
from motif_jax.envs.world import waited
from motif_jax.rewards.source import Arrays
from motif_jax.structs import UserError

HUGE = 1e30  # limit of numbers within a program
MOST_PAID = 1e6  # limit of a reward
ABSENT = 1000.0  # `distance` to a value that no cell of the grid has
ARITHMETIC: dict[str, Callable[..., Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "min": np.minimum, "max": np.maximum,
    "negative": np.negative, "abs": np.abs,
}  # fmt: skip
OF_FLAGS: dict[str, Callable[..., Any]] = {  # operators whose results are flags
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
    "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
}  # fmt: skip


class Runner:
    """Computes rewards, and remembers the current episodes of the games."""

    def __init__(self, program: Program):
        self._program, uses = program, program.uses
        self._still = tuple(uses.entries[name] for name in uses.still)
        self._memory: dict[int, np.ndarray] = {}  # of each game. [M] float64

    def rewards(self, rollouts: Arrays) -> np.ndarray:
        """The reward of each step; `RewardSource.rewards` describes the arguments. [T, B] float64, finite"""
        games = rollouts["game"][0].tolist()
        values = np.zeros(rollouts["reward"].shape)
        part = {key: rollouts[key] for key in (*self._program.observations, *ALWAYS)}
        if len(set(games)) == len(games):
            return self._columns(part, games)  # without a copy
        for columns in _rounds(games):
            of_columns = {key: array[:, columns] for key, array in part.items()}
            values[:, columns] = self._columns(of_columns, [games[column] for column in columns])
        return values

    def _columns(self, rollouts: Arrays, games: list[int]) -> np.ndarray:
        fresh = np.zeros(self._program.memories)
        known = np.array([game in self._memory for game in games], bool)
        memory = np.array([self._memory.get(game, fresh) for game in games]).reshape(len(games), len(fresh))
        begins = rollouts["first"][: len(rollouts["action"])].copy()
        begins[:1] |= ~known
        steps = _Steps(self._still, rollouts, memory, begins)
        with np.errstate(over="ignore", invalid="ignore"):
            reward = np.broadcast_to(steps.number(self._program.root), steps.shape)
        for game, row in zip(games, steps.memory, strict=True):
            self._memory[game] = row
        return np.where(steps.played, np.clip(reward, -MOST_PAID, MOST_PAID), 0.0)


ALWAYS = ("action", "first", "terminated", "truncated")  # arrays that a run needs beside observations


def _rounds(games: list[int]) -> Iterable[list[int]]:
    """The columns of a batch in groups of different games; a game that occurs twice has its later steps later."""
    rounds, counts = collections.defaultdict[int, list[int]](list), collections.Counter[int]()
    for column, game in enumerate(games):
        rounds[counts[game]].append(column)
        counts[game] += 1
    return rounds.values()


class _Steps:
    """The values of a program in T steps of B games."""

    def __init__(self, still: tuple[Entry, ...], rollouts: Arrays, memory: np.ndarray, begins: np.ndarray):
        """Takes what `still` compares, what is remembered of the games, [B, M], and where episodes begin, [T, B]."""
        self._still, self._rollouts, self.memory, self._begins = still, rollouts, memory, begins
        self.shape = begins.shape  # T, B
        self.played = ~waited(rollouts["action"])  # [T, B]
        self._ended = rollouts["terminated"] | rollouts["truncated"]  # [T, B]
        self._cache: dict[tuple[Entry, bool], np.ndarray] = {}  # what has been read, after or before each step

    def value(self, one: Expression, before: bool = False) -> np.ndarray:
        """The value of an expression in each step, or `before` it. [T, B] or a shape that broadcasts to it"""
        match one.kind:
            case "number":
                return np.array(one.value, np.float64)
            case "read":
                return self._read(one.entry, before)
            case "text":
                return np.array(one.text.lower().encode())
            case "says":
                return np.asarray(np.char.find(self.value(one.args[0], before), one.text.lower().encode()) >= 0)
            case "gained":
                return _bounded(self.number(one.args[0]) - self.number(one.args[0], before=True))
            case "still":
                return self._nothing_changed()
            case "rose" if one.memory < 0:
                return self.value(one.args[0]) & ~self.value(one.args[0], before=True)
            case "rose" | "once" | "record":
                return self._remembered(one)
            case "any":
                return np.asarray(self._cells(one.args[0], before).any(axis=-1))
            case "count":
                cells = self._cells(one.args[0], before)
                # Numbers of one or two bytes add up many times faster.
                least = np.min_scalar_type(cells.shape[-1])
                return cells.view(np.uint8).sum(axis=-1, dtype=least).astype(np.float64)
            case "distance":
                return self._distance(one, before)
        if one.kind in OF_FLAGS:
            return OF_FLAGS[one.kind](*(self.value(part, before) for part in one.args))
        result, *others = (self.number(part, before) for part in one.args)
        if not others:
            return ARITHMETIC[one.kind](result)
        for other in others:
            result = _bounded(ARITHMETIC[one.kind](result, other))
        return result

    def number(self, one: Expression, before: bool = False) -> np.ndarray:
        """As `value`, with flags as 0 and 1. float64"""
        return np.asarray(self.value(one, before), np.float64)

    # ---- observations

    def _read(self, entry: Entry | None, before: bool) -> np.ndarray:
        assert entry is not None
        if (entry, before) in self._cache:
            return self._cache[entry, before]
        array = self._observed(entry, before)
        if array.shape[2:] != entry.shape:
            raise UserError(
                f"the observation {entry.observation!r} has the shape {array.shape[2:]}, but the program was checked "
                f"with {entry.shape} (--config.env)"
            )
        for place in reversed(entry.cell):
            array = array[..., place]
        if entry.type == NUMBER:
            array = array.astype(np.float64)
        array = self._cache[entry, before] = _texts(array) if entry.type == TEXTS else _finite(array)
        return array

    def _observed(self, entry: Entry, before: bool) -> np.ndarray:
        """An observation in each step, after or `before` it. [T, B, ...]"""
        steps = self.shape[0]
        plain = self._rollouts[entry.observation]
        if before or entry.of == STEP:
            return plain[:steps]
        if entry.after:
            return self._rollouts[entry.after][:steps]
        after = plain[1 : steps + 1]
        if self._ended.any():
            after = after.copy()
            after[self._ended] = plain[:steps][self._ended]
        return after

    def _nothing_changed(self) -> np.ndarray:
        unchanged = np.ones(self.shape, bool)
        for entry in self._still:
            same = self._read(entry, before=False) == self._read(entry, before=True)
            unchanged &= same.reshape(*self.shape, -1).all(axis=-1)
            if not entry.after:  # what the last step of an episode led to is not known
                unchanged &= ~self._ended
        return unchanged

    # ---- grids

    def _cells(self, one: Expression, before: bool) -> np.ndarray:
        """The comparison of a grid, with all its cells on one axis. [T, B, cells] bool"""
        parts = [self.value(part, before) for part in one.args]
        grid = next(part for part, arg in zip(parts, one.args, strict=True) if arg.type == GRID)
        parts = [
            part.reshape(*self.shape, -1) if arg.type == GRID else _comparable(part, grid)[..., None]
            for part, arg in zip(parts, one.args, strict=True)
        ]
        return OF_FLAGS[one.kind](*parts)

    def _distance(self, one: Expression, before: bool) -> np.ndarray:
        grid, viewpoint = self.value(one.args[0], before), one.viewpoint
        assert viewpoint is not None
        if viewpoint.plane is not None:
            grid = grid[:, :, viewpoint.plane] if viewpoint.planes_first else grid[..., viewpoint.plane]
        wanted = _comparable(self.number(one.args[1], before), grid)[..., None, None]
        steps, games, rows, columns = np.unravel_index(np.flatnonzero(grid == wanted), grid.shape)
        row, column = (np.broadcast_to(self.number(part, before), self.shape)[steps, games] for part in one.args[2:])
        nearest = np.full(self.shape, ABSENT)
        np.minimum.at(nearest, (steps, games), np.maximum(np.abs(rows - row), np.abs(columns - column)))
        return nearest

    # ---- memory

    def _remembered(self, one: Expression) -> np.ndarray:
        """`record`, `once`, and `rose` of a flag that has no value before the step."""
        inner = one.args[0]
        now = np.broadcast_to(self.number(inner), self.shape)
        start = self._before_episodes(inner, nothing=-np.inf if one.kind == "record" else 0.0)
        kept, gains = self.memory[:, one.memory].copy(), np.zeros(self.shape)
        for step in range(self.shape[0]):
            np.copyto(kept, start[step], where=self._begins[step])
            best = now[step] if one.kind == "rose" else np.maximum(kept, now[step])
            np.subtract(best, kept, out=gains[step])
            np.copyto(kept, best, where=self.played[step])
        self.memory[:, one.memory] = kept
        gains = np.where(self.played & np.isfinite(gains), gains, 0.0)
        return _bounded(gains) if one.kind == "record" else gains > 0

    def _before_episodes(self, one: Expression, nothing: float) -> np.ndarray:
        """The value at an episode's first moment, `nothing` for values of steps; valid only where one begins."""
        start = np.full(self.shape, nothing)
        if one.of != STEP and self._begins.any():
            games, steps = self._beginning
            start[:, games] = steps.number(one, before=True)
        return start

    @functools.cached_property
    def _beginning(self) -> tuple[np.ndarray, _Steps]:
        """The games of the batch in which an episode begins, which are few, and their steps alone."""
        games = np.flatnonzero(self._begins.any(axis=0))
        of_games = {key: array[:, games] for key, array in self._rollouts.items()}
        return games, _Steps(self._still, of_games, self.memory[games], self._begins[:, games])


def _finite(array: np.ndarray) -> np.ndarray:
    """Numbers with 0 for those that are not finite, clipped to HUGE; integers and flags as they are."""
    if array.dtype.kind != "f":
        return array
    return _bounded(np.where(np.isfinite(array), array.astype(np.float64), 0.0))


def _bounded(array: np.ndarray) -> np.ndarray:
    return np.clip(array, -HUGE, HUGE)


def _comparable(number: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """A number as float64, or of the type of a grid of integers if it fits, so that the grid is not converted."""
    number = np.asarray(number, np.float64)
    if number.ndim == 0 and grid.dtype.kind in "iu":
        limits, value = np.iinfo(grid.dtype), float(number)
        if grid.itemsize <= 4 and value.is_integer() and limits.min <= value <= limits.max:
            return number.astype(grid.dtype)
    return number


def _texts(array: np.ndarray) -> np.ndarray:
    """Texts as byte strings in lower case, without the zeros at the end. [..., N] uint8 -> [...]"""
    used = np.flatnonzero(array.reshape(-1, array.shape[-1]).max(axis=0, initial=0))
    longest = used[-1] + 1 if used.size else 1  # most texts are short, and the time grows with the array's width
    array = np.ascontiguousarray(array[..., :longest])
    return np.char.lower(array.view(f"S{longest}")[..., 0])
