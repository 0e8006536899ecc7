"""Recorded conversations: episodes of text turns in, token batches out. NumPy; nothing here loads JAX.

`store` keeps episodes on disk; `imports`, `lmrl_wordle` and `tweets` read what others have published; `render` turns
texts into tokens, and `batches` cuts them into batches for training. `moments` makes episodes of prompts and actions.
"""
