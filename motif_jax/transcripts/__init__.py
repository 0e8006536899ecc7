"""Recorded conversations: episodes of text turns in, token batches out. Uses NumPy, not JAX.

`store` keeps episodes on disk; `imports` reads published formats; `render` turns texts into tokens, `live`
does so during a conversation, and `batches` makes batches for training. `decision_points` makes
episodes of prompts and actions.
"""
