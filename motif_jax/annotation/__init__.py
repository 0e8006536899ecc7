"""Text pairs in, answers out: which of two captions is better, asked of a language model or of rules.

No arrays and no JAX. An annotator takes a stream of `Question`s and gives back a stream of `(Question, Answer)`, in any
order; see `annotator.py` for what all of them share.
"""
