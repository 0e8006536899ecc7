"""The loop of all offline training: epochs over token batches, evaluation, checkpoints, resuming.

A stage that learns from transcripts declares itself by `declaration.declare`, chooses `episodes`, makes an `epochs.Job`
of its `batches` and gives it to `epochs.run_offline`.
"""
