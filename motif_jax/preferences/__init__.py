"""Pairs of moments on disk, in the layout of the published Motif dataset. Independent of games and models.

Moments: `pairs` cuts episodes into moments and pairs them, `writer` writes them to disk, `store` opens and checks them.
Labels: `questions` finds the pairs with the same two captions, `asked` collects the answers to each question,
`oracles` labels by the game's numbers, `shards` stores the labels of each job, `merging` combines all shards into one
annotation, and `folders` has the paths of an annotation.
"""
