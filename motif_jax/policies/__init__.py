"""Trained policies: the network or language model as functions, the player that acts in games, and the choice and
mixture of checkpoints; and policies that write: a language model with values (`values`), decoded (`decoding`,
`programs`, `writing`), in the conversations of many games (`conversations`).
"""
