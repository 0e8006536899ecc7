"""Checks whether a reward is right: takes rewards, labels and the steps of episodes, and returns findings.

The checks are pure functions on NumPy arrays, which ask no judge and read no file: `judge.py` lists the questions, and
takes the answers as arrays; `findings.py` has the checks that need no judge, and turns all checks into findings.

For trajectories of other programs, `trajectories.py` reads and audits a file, `command.py` is the command
`motif-audit`, and `recording.py` writes such a file.
"""
