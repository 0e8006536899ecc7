"""Learning from recorded conversations: token batches in, a new state out. Pure functions, without Flax.

`mdp` converts tokens to decisions, rewards and successors; `losses` has one function per loss; `recipes` is the table
of algorithms; `values` has the networks on top of the language model, `update` the training step and an algorithm's
objective; `decode` adds values to logits; `rankings` evaluates the values.
"""
