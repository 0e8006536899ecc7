"""Comments: the world shows a post, the agent writes one comment on it, and the comment is scored.

`scores` says what a comment is worth: by a lexicon, a table, a server, or a language model (`judge`). `world` is what
`envs/world.py` asks for, `players` the scripted players; `words/` has posts, comments and a lexicon of our own, and
`texts/` the question to a language model.
"""
