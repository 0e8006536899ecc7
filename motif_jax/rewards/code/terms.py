"""Splits a reward program into the terms of its sum, to show each term's share of the return."""

from __future__ import annotations

from collections.abc import Iterator

from motif_jax.rewards.code.names import NUMBER
from motif_jax.rewards.code.parsing import LOWEST, PREFIXES, STRENGTHS, Node, parse
from motif_jax.rewards.code.types import Expression, Program


def terms_of(program: Program) -> tuple[Program, ...]:
    """The terms of a program as programs with their signs; a program that is not a sum is its only term.

    `+`, `-` and a minus before a sum are resolved; a sum that is multiplied or divided is one term. In each step the
    rewards of the terms add up to the program's reward, except for rounding and limits: each term is limited as a
    reward is, and the program's reward is limited after its terms are added.
    """
    return tuple(_terms(program, parse(program.text), program.root, negative=False))


def _terms(program: Program, node: Node, root: Expression, negative: bool) -> Iterator[Program]:
    """The terms of a part of the program, with the opposite sign if `negative`."""
    if root.kind in ("+", "-", "negative"):
        signs = {"+": (False, False), "-": (False, True), "negative": (True,)}[root.kind]
        for inner, part, sign in zip(node.args, root.args, signs, strict=True):
            yield from _terms(program, inner, part, negative != sign)
    elif negative:
        text = _written(node, STRENGTHS["*"])
        text = text[1:] if text.startswith("-") else f"-{text}"
        yield program._replace(text=text, root=Expression("negative", NUMBER, root.of, (root,)))
    else:
        yield program._replace(text=_written(node), root=root)


def _written(node: Node, least: int = LOWEST) -> str:
    """The text of a tree, in parentheses if its operator is weaker than `least`."""
    value = str(node.value)
    match node.kind:
        case "number":
            return repr(node.value).removesuffix(".0")
        case "text":
            return f'"{value}"'
        case "name":
            return value
        case "call":
            return f"{value}({', '.join(map(_written, node.args))})"
        case "prefix":
            strength = PREFIXES[value]
            text = f"{'not ' if value == 'not' else value}{_written(node.args[0], strength)}"
        case _:
            strength = STRENGTHS[value]
            left, right = node.args
            text = f"{_written(left, strength)} {value} {_written(right, strength + 1)}"
    return text if strength >= least else f"({text})"
