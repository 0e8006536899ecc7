"""Plays a world in worker processes, and delivers trajectories in shared memory. Contains no learning.

    parent (pool)                                     worker (one of W)
    idle slots ── SLOT g s ─────────────────────────> group g opens slot s and writes observation 0
    policy(observations) <── READY g s ────────────── row t is written, group g waits for actions
    actions in shared memory ── ACT g ──────────────> steps its games, writes step t and observation t + 1
    full slots <── FULL g s ───────────────────────── after T steps; the parent uses the slot and frees it

Two pipes per worker carry these eight-byte messages; arrays never pass through them. Only the parent tracks the slots
in use, so a killed worker can neither lose nor lock a slot. With a scripted player the worker does not need ACT.
"""
