"""Pairs of moments on disk, in the layout of the published Motif dataset. Owns the files; knows no game and no model.

`store` opens and checks a dataset, `pairs` cuts episodes into moments and pairs them, `writer` puts them on disk.
"""
