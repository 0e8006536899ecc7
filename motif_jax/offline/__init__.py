"""Learning from recorded conversations: token batches in, a new state out. Pure functions, without Flax.

`mdp` converts tokens to decisions, rewards and successors; `losses` has one function per loss; `recipes` is the table
of algorithms; `values` has the networks on top of the language model, `terms` the objective of an algorithm, `update`
the training step; `decode` adds values to logits; `rank` evaluates the values.
"""
