"""Comments: the world shows a post, the agent writes one comment on it, and the comment is scored.

`world` has the world, its scripted players, and scores by a lexicon, a table or a server; `words/` has posts, comments
and a lexicon.
"""
