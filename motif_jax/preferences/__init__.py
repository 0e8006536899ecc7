"""Pairs of moments on disk, in the layout of the published Motif dataset. Owns the files; knows no game and no model.

Moments: `pairs` cuts episodes into moments and pairs them, `writer` writes them to disk, `store` opens and checks them.
Labels: `questions` finds the pairs that show the same two captions, `asked` collects the answers to each question,
`oracles` label by the game's numbers, `shards` store the labels of each job, `merging` makes one annotation of all
shards, and `folders` has the paths of all these files.
"""
