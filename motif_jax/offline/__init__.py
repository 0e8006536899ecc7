"""Learning from recorded conversations: token batches in, a new state out. Pure functions.

`mdp` converts tokens to decisions, rewards and successors; `recipes` is the table of algorithms; `values` has the
networks on top of the language model, and decoding with them; `update` has the losses, an algorithm's objective and the
training step; `rankings` evaluates the values.
"""
