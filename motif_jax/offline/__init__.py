"""Learning from recorded conversations: token batches in, a new state out. Pure functions.

`mdp` converts tokens to decisions, rewards and successors; `losses` has the inputs of the losses, and one function per
loss; `recipes` is the table of algorithms; `values` has the networks on top of the language model, and decoding with
them; `update` has the training step and an algorithm's objective; `rankings` evaluates the values.
"""
