"""Trained policies: the network as functions, the player that acts in games, and the choice and mixture of
checkpoints.
"""
