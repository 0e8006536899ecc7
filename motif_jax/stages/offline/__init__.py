"""The loop of all offline training: epochs over token batches, evaluation, checkpoints, resuming.

A stage that learns from transcripts makes an `epochs.Job` from its `batches` and passes it to `epochs.run_offline`.
"""
