"""Learning from recorded conversations: token batches in, a new state out. Pure functions (Flax is not needed here).

`mdp` makes decisions, rewards and successors of tokens; `losses` has one function per loss; `recipes` is the table of
the algorithms that are made of them; `values` has the networks beside the language model, `terms` what an algorithm
minimises, `update` the training step; `decode` adds values to logits; `rank` says what the values are worth.
"""
