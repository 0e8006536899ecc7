"""Flax NNX modules, and nothing else: what goes in and comes out is in each class."""
