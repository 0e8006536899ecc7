"""Rewards as programs: files of one expression, such as `gained(gold) + 0.1 * says("you kill")`.

tokens.py and parsing.py make a tree of the text, names.py finds what a world lets a program read, checking.py gives
types to the tree, running.py computes rewards of rollouts, and source.py makes a reward source of all that, with the
terms of its sum. Nothing here runs Python's own parser or any code of a file
(docs/code-rewards.md). Loads no JAX.
"""
