"""Pairs of moments on disk, in the layout of the published Motif dataset. Independent of games and models.

Moments: `store` cuts episodes into moments, pairs them and writes them to disk; it also opens and checks datasets.
Labels: `questions` finds the pairs with the same two captions, and asks about moments without a message; `shards`
has what each job asks and is answered, and computes the labels.
"""
