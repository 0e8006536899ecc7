"""Environments in, trajectories out. Owns worker processes and the memory they share with the parent; no learning.

    parent (pool)                                     worker (one of W)
    idle slots ── SLOT g s ─────────────────────────> group g opens slot s and writes observation 0
    policy(observations) <── READY g s ────────────── "I wrote row t, what shall I do?"
    actions in shared memory ── ACT g ──────────────> steps its games, writes step t and observation t + 1
    full slots <── FULL g s ───────────────────────── after T steps; the parent uses the slot and frees it

Two pipes per worker carry these eight-byte messages; arrays never pass through them. The parent alone keeps account of
the slots, so nothing that a killed worker held can be lost or locked. With a scripted player the worker needs no ACT.
"""
