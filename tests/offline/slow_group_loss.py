"""grpo and gigpo on written games, as loops over numbers."""

import math

import numpy as np


def advantages(returns, rewards, moments, size, by_deviation, discount, step_weight):
    """By episode and text. `rewards`: of each text; `moments`: what was read before each; discount None: grpo."""

    def relative(value, others):
        if len(others) == 1:
            return 0.0
        mean = sum(others) / len(others)
        deviation = math.sqrt(sum((one - mean) ** 2 for one in others) / (len(others) - 1))
        return (value - mean) / (max(deviation, 1e-4) if by_deviation else 1.0)

    rows = []
    for episode in range(len(returns)):
        group = range(episode // size * size, episode // size * size + size)
        of_episode = relative(returns[episode], [returns[other] for other in group])
        row = []
        for text in range(len(rewards[episode])):
            value = of_episode
            if discount is not None:
                alike = [
                    (other, number) for other in group for number in range(len(rewards[other]))
                    if moments[other][number] == moments[episode][text]
                ]  # fmt: skip
                to_go = [
                    sum(reward * discount**later for later, reward in enumerate(rewards[other][number:]))
                    for other, number in alike
                ]
                value += step_weight * relative(to_go[alike.index((episode, text))], to_go)
            row.append(value)
        rows.append(row)
    return rows


def loss(logits, start_logits, allowed, temperature, tokens, is_action, advantage, log_written, group, limit):
    """The loss, with logits as arrays [B, T, V]; the arrays are aligned as in `Play`."""

    def log_prob(row, place, of):
        scaled = [float(of[row][place][token]) / temperature for token in np.flatnonzero(allowed)]
        most = max(scaled)
        whole = most + math.log(sum(math.exp(one - most) for one in scaled))
        return float(of[row][place][tokens[row][place + 1]]) / temperature - whole

    places = [[place for place in range(len(row)) if row[place]] for row in is_action]
    count, total = sum(map(len, places)), 0.0
    for row, own in enumerate(places):
        apart = [log_prob(row, place, logits) - float(log_written[row][place]) for place in own]
        if group.ratio == "episode" and own:
            apart = [sum(apart) / len(own)] * len(own)
        for place, log_ratio in zip(own, apart, strict=True):
            ratio, value = math.exp(log_ratio), float(advantage[row][place])
            clipped = min(max(ratio, 1 - group.clip_low), 1 + (group.clip_high or group.clip_low))
            term = -min(ratio * value, clipped * value)
            if group.reference_coefficient:
                ahead = log_prob(row, place, start_logits) - log_prob(row, place, logits)
                term += group.reference_coefficient * ratio * (math.exp(ahead) - ahead - 1)
            weight = {"tokens": 1 / count, "episodes": 1 / len(own) / len(places), "limit": 1 / limit / len(places)}
            total += term * weight[group.mean_over]
    return total
