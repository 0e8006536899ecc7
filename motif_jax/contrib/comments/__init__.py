"""Comments: the world shows a post, the agent writes one comment on it, and the comment is scored.

`scores` scores comments by a lexicon, a table or a server. `world` implements the World interface and has the scripted
players; `words/` has posts, comments and a lexicon.
"""
