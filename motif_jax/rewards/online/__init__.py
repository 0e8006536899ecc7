"""A reward that is learnt during training from a judge's labels (ONI, arXiv 2410.23022).

Captions of rollouts come in. The labels are looked up, or a small network learns them, and they become rewards.
"""
