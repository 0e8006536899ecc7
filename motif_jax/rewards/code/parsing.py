"""Parses a reward program to a tree, with one function per side of an operator (V. Pratt, 1973).

    strongest first:  - (negative)   * /   + -   < <= > >= == !=   not   and   or

The tree has at most MOST_NODES nodes and MOST_LEVELS levels. A chain of equal operators, such as `a + b - c`, is one
level. Parentheses make no node, but count as a level, so recursion is bounded whatever the text is.
"""

from __future__ import annotations

from typing import NamedTuple

from motif_jax.rewards.code import grammar
from motif_jax.rewards.code.tokens import COMPARISONS, MOST_LEVELS, MOST_NODES, Place, ProgramError, Token, tokenize

STRENGTHS = {name: operator.strength for name, operator in grammar.OPERATORS.items()}
PREFIXES = {name: prefix.strength for name, prefix in grammar.PREFIXES.items()}
LOWEST, COMPARED = 0, STRENGTHS["<"]


class Node(NamedTuple):
    """A node of the tree."""

    kind: str  # "number", "text", "name", "call", "prefix" or "infix"
    value: str | float  # the number, text or name; the name of the function; the operator
    place: Place
    args: tuple[Node, ...] = ()
    levels: int = 1  # of the tree below it, itself included
    strength: int = 0  # of an operator between operands


def parse(text: str) -> Node:
    """The tree of a program; raises ProgramError."""
    return _Parser(tokenize(text)).whole()


class _Parser:
    def __init__(self, tokens: list[Token]):
        self._tokens, self._at = tokens, 0
        self._nodes = self._open = 0  # nodes so far; parentheses, calls and prefixes around the current token

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _node(self, kind: str, token: Token, args: tuple[Node, ...] = (), strength: int = 0) -> Node:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise ProgramError(
                token.place, f"a program has at most {MOST_NODES} numbers, names and operators: write a shorter one"
            )
        levels = [one.levels + (number > 0 or one.strength != strength or not strength)
                  for number, one in enumerate(args)]  # fmt: skip
        node = Node(kind, token.value, token.place, args, max(levels, default=1), strength)
        _check_depth(node.levels, token)
        return node

    def whole(self) -> Node:
        """The whole program."""
        if self._next.kind == "end":
            raise ProgramError(self._next.place, "the program is empty: write an expression such as gained(gold)")
        tree = self._expression(LOWEST)
        if self._next.kind != "end":
            hints = {")": "this parenthesis was not opened", ",": "only the arguments of a function need commas"}
            hint = hints.get(self._next.symbol, "a program is one expression, without statements")
            raise ProgramError(self._next.place, f"expected an operator or the end, not {self._next}: {hint}")
        return tree

    def _expression(self, lowest: int) -> Node:
        """An expression up to the first operator that is not stronger than `lowest`."""
        left = self._operand()
        while (strength := STRENGTHS.get(self._next.symbol, LOWEST)) > lowest:
            token = self._take()
            right = self._expression(strength)
            if strength == COMPARED and self._next.symbol in COMPARISONS:
                raise ProgramError(self._next.place, "a comparison has two sides: write 1 < x and x < 3, not 1 < x < 3")
            left = self._node("infix", token, (left, right), strength)
        return left

    def _operand(self) -> Node:
        token = self._take()
        if token.kind == "name" and self._next.symbol == "(":
            return self._call(token)
        if token.kind in ("number", "text", "name"):
            return self._node(token.kind, token)
        if token.symbol in PREFIXES:
            self._enter(token)
            inner = self._expression(PREFIXES[token.symbol] - 1)
            self._open -= 1
            return self._node("prefix", token, (inner,))
        if token.symbol == "(":
            self._enter(token)
            inner = self._expression(LOWEST)
            self._close("the parenthesis", token)
            return inner
        raise ProgramError(token.place, f"expected a number, a name or a function, not {token}")

    def _call(self, name: Token) -> Node:
        self._enter(self._take())
        args: list[Node] = []
        while self._next.symbol != ")":
            args.append(self._expression(LOWEST))
            if self._next.symbol != ",":
                break
            comma = self._take()
            if self._next.symbol == ")":
                raise ProgramError(comma.place, f"expected one more argument of {name.value} after the comma")
        self._close(f"the arguments of {name.value}", name)
        return self._node("call", name, tuple(args))

    def _enter(self, token: Token) -> None:
        self._open += 1
        _check_depth(self._open, token)

    def _close(self, what: str, opened: Token) -> None:
        token, (line, column) = self._take(), opened.place
        if token.symbol != ")":
            raise ProgramError(
                token.place, f"expected ')' to close {what} of line {line}, column {column}, not {token}"
            )
        self._open -= 1


def _check_depth(levels: int, token: Token) -> None:
    if levels > MOST_LEVELS:
        raise ProgramError(
            token.place, f"expressions are nested at most {MOST_LEVELS} levels deep: write a flatter one"
        )
