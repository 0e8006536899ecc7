"""A slow interpreter of reward programs, one game and one step at a time, in plain Python; and random programs."""

import itertools
import math
import operator
import random
import re
from types import SimpleNamespace

import numpy as np

from motif_jax.envs.world import CAPTIONS, Viewpoint
from motif_jax.structs import ArraySpec

HUGE, PAID, FAR = 1e30, 1e6, 1000.0
STEPS, GAMES = 30, 3
MISSIONS, SAID = (b"red key", b"Red Door", b""), (b"You kill the newt!", b"you see GOLD", b"", b"Killed")

SMALL_WORLD = SimpleNamespace(
    name="small",
    specs={
        "stats": ArraySpec((4,), "int32"),
        "event_stats": ArraySpec((4,), "int32"),
        "body": ArraySpec((3,), "float32", "vector"),
        "level": ArraySpec((), "int32"),
        "lit": ArraySpec((), "bool"),
        "event_found": ArraySpec((), "float32"),
        "event_hurt": ArraySpec((), "int32"),
        "view": ArraySpec((3, 4), "uint8", "grid"),
        "map": ArraySpec((4, 5), "int16"),
        "event_map": ArraySpec((4, 5), "int16"),
        "image": ArraySpec((3, 3, 2), "uint8", "grid"),
        "crop": ArraySpec((2, 3, 3), "uint8", "planes"),
        "heights": ArraySpec((2, 2), "float32"),
        "mission": ArraySpec((12,), "uint8", "text"),
    }
    | CAPTIONS,
    reads=("stats", "view", "message"),
    numbers={"gold": ("stats", 0), "row": ("stats", 1), "column": ("stats", 2), "health": ("body", 1)},
    viewpoints={
        "view": Viewpoint(2, 1),
        "map": Viewpoint("row", "column"),
        "image": Viewpoint(1, 2, plane=0),
        "crop": Viewpoint(1, 1, plane=1, planes_first=True),
    },
    still=("gold", "view", "lit"),
)


def play(seed):
    """Steps of some games, [STEPS (+ 1), GAMES, ...]: short episodes, waits, numbers that are not finite."""
    numbers = np.random.default_rng(seed)
    found = {}
    for name, spec in SMALL_WORLD.specs.items():
        shape = (STEPS + (not name.startswith("event_")), GAMES, *spec.shape)
        if spec.kind == "text" or name.endswith("message"):
            texts = MISSIONS if name == "mission" else SAID
            rows = [np.frombuffer(text.ljust(spec.shape[0], b"\0"), np.uint8) for text in texts]
            found[name] = np.array(rows)[numbers.integers(len(rows), size=shape[:2])]
        else:
            found[name] = numbers.integers(0, 3, shape).astype(spec.dtype)
        if spec.dtype == "float32":
            odd = numbers.random(shape) < 0.1
            found[name] = np.where(odd, numbers.choice([np.nan, np.inf, -np.inf, 3e38, -7.25], shape), found[name])
            found[name] = found[name].astype(np.float32)
    same = numbers.random((STEPS, GAMES)) < 0.4  # steps after which nothing has changed
    for step in range(STEPS):
        for name, array in found.items():
            if not name.startswith("event_"):
                array[step + 1, same[step]] = array[step, same[step]]
        found["event_stats"][step, same[step]] = found["stats"][step, same[step]]
    ended = numbers.random((STEPS, GAMES)) < 0.15
    cut = numbers.random((STEPS, GAMES)) < 0.5
    waits = numbers.random((STEPS, GAMES)) < 0.15
    found["terminated"], found["truncated"] = ended & ~waits & ~cut, ended & ~waits & cut
    found["first"] = np.concatenate([np.ones((1, GAMES), bool), ended & ~waits])
    found["action"] = np.where(waits, -1, 2).astype(np.int32)
    found["reward"] = np.zeros((STEPS, GAMES), np.float32)
    return found


def cut_in_pieces(whole, chances):
    """The rollouts of these steps, cut at random; sometimes two pieces of the same games are in one batch."""
    pieces, start = [], 0
    while start < STEPS:
        size = min(chances.randint(1, 12), STEPS - start)
        at = [start, start + size]
        if start + 2 * size <= STEPS and chances.random() < 0.3:
            at.append(start + 2 * size)
        columns = [
            {
                name: array[a : b + (not name.startswith("event_") and len(array) > STEPS)]
                for name, array in whole.items()
            }
            for a, b in itertools.pairwise(at)
        ]
        batch = {name: np.concatenate([one[name] for one in columns], 1) for name in whole}
        batch["game"] = np.array([[7, 3, 11] * len(columns)])
        pieces.append((batch, at))
        start = at[-1]
    return pieces


ARITHMETIC = {
    "negative": operator.neg, "abs": abs, "min": min, "max": max,
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
}  # fmt: skip
COMPARISONS = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne
}  # fmt: skip


class SlowGame:
    def __init__(self, program, whole, column):
        self.program, self.whole, self.column = program, whole, column
        self.memory, self.last_flag = {}, {}

    def rewards(self):
        return [self.reward(step) for step in range(STEPS)]

    def reward(self, step):
        self.step = step
        if self.whole["first"][step, self.column]:
            self.memory, self.last_flag = {}, {}
        self.begin(self.program.root)
        if self.whole["action"][step, self.column] == -1:
            return 0.0
        return max(-PAID, min(PAID, float(self.value(self.program.root, "after"))))

    def begin(self, one):
        """Remembers the first moment of an episode, even if the game waits in its first step."""
        for part in one.args:
            self.begin(part)
        if one.memory not in self.memory and one.kind in ("record", "once"):
            of_step = one.args[0].of == "step"
            nothing = None if one.kind == "record" else False
            self.memory[one.memory] = nothing if of_step else self.value(one.args[0], "before")

    def observed(self, entry, when):
        plain, ended = self.whole[entry.observation], self.whole["terminated"] | self.whole["truncated"]
        if entry.of == "step" or when == "before":
            return plain[self.step, self.column]
        if entry.after:
            return self.whole[entry.after][self.step, self.column]
        if ended[self.step, self.column]:
            return plain[self.step, self.column]
        return plain[self.step + 1, self.column]

    def read(self, entry, when):
        array = self.observed(entry, when)
        if entry.type == "text":
            return bytes(array.tolist()).rstrip(b"\0").lower()
        if entry.cell:
            array = array[entry.cell]
        if entry.type == "grid":
            return array.tolist()
        return bool(array) if entry.type == "flag" else clean(float(array))

    def value(self, one, when):
        parts = one.args
        match one.kind:
            case "number":
                return one.value
            case "text":
                return one.text.lower().encode()
            case "read":
                return self.read(one.entry, when)
            case "says":
                return one.text.lower().encode() in self.value(parts[0], when)
            case "not":
                return not self.value(parts[0], when)
            case "and" | "or":
                left, right = (self.value(part, when) for part in parts)
                return (left and right) if one.kind == "and" else (left or right)
            case "gained":
                return limited(float(self.value(parts[0], "after")) - float(self.value(parts[0], "before")))
            case "record":
                now, best = float(self.value(parts[0], "after")), self.memory[one.memory]
                self.memory[one.memory] = now if best is None else max(now, float(best))
                return 0.0 if best is None else limited(max(0.0, now - float(best)))
            case "once":
                now, before = self.value(parts[0], "after"), self.memory[one.memory]
                self.memory[one.memory] = before or now
                return now and not before
            case "rose" if parts[0].of == "step":
                now, before = self.value(parts[0], "after"), self.last_flag.get(one.memory, False)
                self.last_flag[one.memory] = now
                return now and not before
            case "rose":
                return self.value(parts[0], "after") and not self.value(parts[0], "before")
            case "still":
                return self.still()
            case "any":
                return any(self.cells(parts[0], when))
            case "count":
                return float(sum(self.cells(parts[0], when)))
            case "distance":
                return self.distance(one, when)
            case "<" | "<=" | ">" | ">=" | "==" | "!=":
                return COMPARISONS[one.kind](*(self.value(part, when) for part in parts))
        found = ARITHMETIC[one.kind](*(float(self.value(part, when)) for part in parts))
        return limited(found) if one.kind in "+-*/" else found

    def still(self):
        ended = (self.whole["terminated"] | self.whole["truncated"])[self.step, self.column]
        for entry in map(self.program.uses.entries.get, self.program.uses.still):
            if ended and not entry.after:
                return False
            if self.read(entry, "after") != self.read(entry, "before"):
                return False
        return True

    def cells(self, one, when):
        left, right = (self.value(part, when) for part in one.args)
        if isinstance(left, list):
            return [COMPARISONS[one.kind](clean(float(cell)), right) for cell in flat(left)]
        return [COMPARISONS[one.kind](left, clean(float(cell))) for cell in flat(right)]

    def distance(self, one, when):
        grid, wanted, row, column = (self.value(part, when) for part in one.args)
        view, best = one.viewpoint, FAR
        if view.plane is not None and view.planes_first:
            grid = grid[view.plane]
        elif view.plane is not None:
            grid = [[cell[view.plane] for cell in line] for line in grid]
        for i, line in enumerate(grid):
            for j, cell in enumerate(line):
                if cell == float(wanted):
                    best = min(best, max(abs(i - float(row)), abs(j - float(column))))
        return best


def clean(number):
    """A number of an observation, as programs have it."""
    return limited(number) if math.isfinite(number) else 0.0


def limited(number):
    """The result of arithmetic, as programs have it."""
    return max(-HUGE, min(HUGE, number))


def flat(cells):
    return [one for cell in cells for one in flat(cell)] if isinstance(cells, list) else [cells]


GRIDS = ("view", "map", "image", "crop", "heights", "stats", "body")
CELLS = [
    f"at({name}, {str(at)[1:-1].strip(',')})" for name in GRIDS for at in np.ndindex(SMALL_WORLD.specs[name].shape)
]
# Forms of random programs, with holes: N, F and C are a number, a flag and a comparison of cells, all of a moment; n, f
# and c may also be of a step.
SIMPLE = {
    "N": ("gold", "row", "health", "level", "{literal}", "{cell}"),
    "F": ("(lit)", '(says(mission, "red"))', '(mission == "red key")', '("red door" != mission)'),
    "literal": ("0", "1", "2", "0.5", "1e6", "3", "1e-3"), "divisor": ("-3", "0.25", "7", "1e-3", "1e-300"),
    "changing": ("({N} + gold)", "({N} + row)", "({N} + health)", "({N} + level)", "({N} + lit)"),
    "cell": CELLS, "grid": GRIDS, "seen": GRIDS[:4], "relation": [*COMPARISONS],
    "C": ("{grid} {relation} {N}", "{N} {relation} {grid}"),
}  # fmt: skip
FORMS = {
    "N": ("({N} + {N})", "({N} - {N})", "({N} + {N} - {N})", "({N} * {N})", "({N} / {divisor})", "min({N}, {N})",
          "max({N}, {N}, {N})", "abs({N})", "(-{N})", "count({C})", "distance({seen}, {N})", "({F} * {N})"),
    "F": ("({N} {relation} {N})", "({F} and {F})", "({F} or {F})", "(not {F})", "any({C})"),
}  # fmt: skip
for forms in SIMPLE, FORMS:
    forms |= {name.lower(): [re.sub("{[NFC]}", lambda hole: hole[0].lower(), form) for form in forms[name]]
              for name in "NFC" if name in forms}  # fmt: skip
SIMPLE["n"] += ["event_found", "found", "hurt", "event_hurt", "message_count"]
SIMPLE["f"] += ['(says("kill"))', "(still())", '(says("GOLD"))']
FORMS["n"] += ["gained({changing})", "record({changing})", "record({changing} + found)", "record({changing} + hurt)"]
FORMS["f"] += [f"{name}({{{flag}}} {word} lit)" for name in ("once", "rose") for flag in "fF" for word in ("or", "and")]


def written(kind, size, chances):
    form = chances.choice((FORMS if size > 1 and kind in FORMS else SIMPLE)[kind])
    holes = form.count("{")
    return re.sub(r"{(\w+)}", lambda hole: written(hole[1], (size - 1) // holes + chances.randint(0, 1), chances), form)


def program_text(seed):
    chances = random.Random(seed)
    return written(chances.choice("nnf"), chances.randint(1, 16), chances)
