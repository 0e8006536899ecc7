"""Rewards as programs: files of one expression, such as `gained(gold) + 0.1 * says("you kill")`.

grammar.py makes a typed tree of the text, names.py finds what a world lets a program read, running.py computes rewards
of rollouts, and source.py makes a reward source of all that, with the terms of its sum. Nothing here runs Python's own
parser or any code of a file (docs/code-rewards.md). Loads no JAX.
"""
