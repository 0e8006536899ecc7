"""A slow, obvious twin of `learner/options.py`: one game at a time, each column's steps as a list."""

import numpy as np


def decision_rewards(rewards, decides, ended, discount=1.0):
    sums = np.zeros(rewards.shape)
    for game in range(rewards.shape[1]):
        for step in np.flatnonzero(decides[:, game]):
            factor = 1.0
            for later in range(step + 1, len(rewards)):
                if decides[later, game]:
                    break
                sums[step, game] += factor * rewards[later, game]
                factor *= discount
                if ended[later, game]:
                    break
    return sums


def next_of(step, charge, switches, terminated, truncated, known_last):
    """The next step of the same column in one game: its number, "ended", "cut", "unknown", or "last"."""
    column = charge[step]
    for now in range(step, len(charge)):
        if now > step and charge[now] == column:
            return now
        if terminated[now]:
            return "ended"
        if truncated[now]:
            return "cut"
        if now == step and switches[now]:
            return "unknown"
    return "last" if known_last[column] else "unknown"


def vtrace_in_columns(
    values, rewards, discounts, ratio, charge, switches, terminated, truncated, last, known_last,
    inferred=False, clip_rho=1.0, clip_c=1.0,
):  # fmt: skip
    """As `columns.vtrace_in_columns`: each target is a sum over all later steps of its column."""
    targets, advantages = np.zeros(values.shape), np.zeros(values.shape)
    for game in range(values.shape[1]):
        V, r, g, w = values[:, game], rewards[:, game], discounts[:, game], ratio[:, game]

        def after(step):
            following = next_of(
                step, charge[:, game], switches[:, game], terminated[:, game], truncated[:, game], known_last[:, game]
            )
            if following == "ended":
                return 0.0, None
            if following == "unknown" or (following == "cut" and inferred):
                return V[step] - r[step], None
            if following == "cut":
                return g[step] * V[step], None
            if following == "last":
                return g[step] * last[charge[step, game], game], None
            return g[step] * V[following], following

        def error(step):
            return min(w[step], clip_rho) * (r[step] + after(step)[0] - V[step])

        for step in range(len(values)):
            total, factor, now = 0.0, 1.0, step
            while now is not None:
                total += factor * error(now)
                factor *= g[now] * min(w[now], clip_c)
                now = after(now)[1]
            targets[step, game] = V[step] + total
        for step in range(len(values)):
            future, following = after(step)
            if following is not None:
                future = g[step] * targets[following, game]
            advantages[step, game] = min(w[step], clip_rho) * (r[step] + future - V[step])
    return targets, advantages
