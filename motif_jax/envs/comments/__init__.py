"""Comments: the world shows a post, the agent writes one comment on it, and the comment is scored.

`scores` scores comments by a lexicon, a table, a server, or a language model (`judge`). `world` implements the World
interface and has the scripted players; `words/` has posts, comments and a lexicon, `texts/` the question to a language
model.
"""
