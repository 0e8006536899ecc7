"""Trained policies: networks and language models as functions, the player that acts in games, the choice and mixture of
checkpoints. Policies that write texts: a language model with values (`values`), decoded (`decoding`, `programs`,
`writing`), in the conversations of many games (`conversations`).
"""
