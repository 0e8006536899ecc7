"""Trained policies: the network or language model as functions, the player that acts in games, and the choice and
mixture of checkpoints.
"""
