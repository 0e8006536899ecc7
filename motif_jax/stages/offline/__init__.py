"""The loop that all offline training shares: epochs over token batches, evaluation, checkpoints, resuming.

A stage that learns from transcripts makes an `epochs.Job` of its `batches` and gives it to `epochs.run_offline`.
"""
