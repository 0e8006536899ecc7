"""Pairs of moments on disk, in the layout of the published Motif dataset. Owns the files; knows no game and no model.

Moments: `pairs` cuts episodes into moments and pairs them, `writer` puts them on disk, `store` opens and checks them.
Labels: `questions` says which pairs ask the same, `asked` collects their answers, `oracles` judge by the game's
numbers, `shards` keep what each job has labelled, `merging` makes one annotation of all shards, `folders` says where
they are.
"""
