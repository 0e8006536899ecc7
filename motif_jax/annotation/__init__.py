"""Asks a language model, or rules, which of two captions is better. Does not load JAX.

An annotator (`annotator.py`) maps a stream of `Question`s to a stream of `(Question, Answer)`, in any order.
"""
