"""A policy as actors, learner, evaluation and notebooks see it: the network as functions, the player, and the choice
and mixture of checkpoints.
"""
