"""Checks whether a reward is right: takes rewards, labels and the steps of episodes, and returns findings.

Pure functions on NumPy arrays. Nothing here asks a judge or reads a file: `judge.py` and `whole_episodes.py` list the
questions, and take the answers as arrays; `findings.py` turns checks into findings.
"""
