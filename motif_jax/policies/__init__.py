"""Trained policies: networks and language models as functions, the player that acts in games, the choice and mixture of
checkpoints; policies that write texts, a language model with values (`writing`), and how they are decoded.
"""
