"""A reward that is learnt while the agent plays, from a judge that is asked on the side (ONI, arXiv 2410.23022).

Captions of new rollouts come in; labels of a judge are looked up, or taught to a small network, and become rewards.
"""
