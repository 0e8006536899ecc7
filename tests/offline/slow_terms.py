"""Decisions by walking through each episode; losses of every recipe, and of games, as loops over numbers."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from tiny_decoder import LANGUAGE

from motif_jax.offline.recipes import Recipe
from motif_jax.transcripts.render import CUT, TERMINAL


def head(params, x):
    inner = np.maximum(x @ params["hidden_kernel"] + params["hidden_bias"], 0)
    return inner @ params["out_kernel"] + params["out_bias"]


def lse(values):
    top = max(values)
    return top + math.log(sum(math.exp(one - top) for one in values))


def hidden_of(params, rows, added=None):
    return np.asarray(LANGUAGE.hidden(params, jnp.asarray(rows.tokens), jnp.asarray(rows.segments), added), np.float64)


def logits_of(params, hidden):
    return np.asarray(LANGUAGE.logits(params, jnp.asarray(hidden, jnp.float32)), np.float64)


def expectile(v, y, tau):
    return (1 - tau if y < v else tau) * (y - v) ** 2


def huber(gap):
    return 0.5 * gap**2 if abs(gap) <= 1 else abs(gap) - 0.5


def policy_loss(recipe, settings, learnt, rows, advantages):
    added = None
    if recipe.conditioned:
        added = np.zeros((*rows.tokens.shape, LANGUAGE.width), np.float32)
        for row in range(len(rows.tokens)):
            for first, last in spans(rows, row):
                returned = rows.reward[row, first : last + 1].sum() / settings.reward_scale
                added[row, first] = returned * np.asarray(learnt["condition"]["kernel"]) + learnt["condition"]["bias"]
    logits = logits_of(learnt["policy"], hidden_of(learnt["policy"], rows, added))
    total, count = 0.0, 0
    for row, place in zip(*np.nonzero(rows.is_action), strict=True):
        count += 1
        loss = lse(logits[row, place]) - logits[row, place, rows.tokens[row, place + 1]]
        if recipe.by_advantage:
            if recipe.per_utterance:  # the advantage stands at the last token of the text
                closes = rows.closes[row] & (rows.segments[row] == rows.segments[row, place])
                place = next((int(end) + 1 for end in np.flatnonzero(closes) if end >= place), -1)
            if (row, place) not in advantages:
                continue
            gap = advantages[row, place]
            if settings.advantage_sign:
                loss *= settings.advantage_beta if gap > 0 else 1 - settings.advantage_beta
            else:
                loss *= min(math.exp(settings.advantage_beta * gap), settings.advantage_weight)
        total += loss
    if settings.mean_over_all_tokens:  # those that are predicted: all but the first of each episode
        count = sum(last - first for row in range(len(rows.tokens)) for first, last in spans(rows, row))
    return total / count


def loss_of(recipe: Recipe, settings, weights, batch):
    rows, weights = jax.tree.map(np.asarray, (batch.rows, weights))
    means, advantages = {}, {}
    if recipe.of_replies:
        means |= reply_means(settings, weights, rows, batch.replies)
    elif recipe.has_values:
        of_values, advantages = value_means(recipe, settings, weights, rows)
        means |= of_values
    if recipe.learns_policy:
        means["policy"] = policy_loss(recipe, settings, weights.learnt, rows, advantages)
    factors = {"policy": settings.policy_weight, "q": settings.q_weight, "v": settings.v_weight,
               "conservative": settings.conservative_weight, "margin": settings.margin_weight}  # fmt: skip
    return sum(factors[name] * mean for name, mean in means.items() if name in factors), means


def value_means(recipe, settings, weights, rows):
    learnt, target = weights.learnt, weights.target
    hidden, slow_hidden = hidden_of(learnt["trunk"], rows), hidden_of(target["trunk"], rows)
    tau = recipe.expectile or settings.expectile
    if recipe.per_token:
        steps = {place: (place[1], *one) for place, one in token_steps(rows).items()}
    else:
        steps = utterance_steps(rows)
    value = lambda row, place: float(head(learnt["v"], hidden[row, place])[0])  # noqa: E731
    least = lambda row, place: np.min([head(one, slow_hidden[row, place]) for one in target["q"]], 0)  # noqa: E731
    policy = weights.learnt.get("policy", weights.given.get("policy"))
    logits = logits_of(policy, hidden_of(policy, rows)) if recipe.soft_max else None
    to_go = returns_to_go(rows, settings.discount)
    names = ["v", "q"] + ["conservative"] * recipe.conservative
    sums = dict.fromkeys([*names, *(["margin"] if settings.margin_weight and recipe.per_token else [])], 0.0)
    advantages = {}
    for (row, place), (state, following, reward, terminal) in steps.items():
        action = rows.tokens[row, place + 1] if recipe.per_token else 0
        q_target = np.clip(least(row, place)[action], settings.value_min, settings.value_max)
        v = value(row, state)
        advantages[row, place] = q_target - v
        y = reward / settings.reward_scale
        after = value(row, following)
        if recipe.hard_max:
            after = np.clip(least(row, following).max(), settings.value_min, settings.value_max)
        elif recipe.soft_max:
            after = np.clip(lse(least(row, following)), settings.value_min, settings.value_max)
            y += logits[row, place, action] - lse(logits[row, place])
        y += 0.0 if terminal else settings.discount * after
        goal = to_go[row, place] / settings.reward_scale if recipe.from_returns else q_target
        sums["v"] += expectile(v, goal, tau)
        for one in learnt["q"]:
            q_all = head(one, hidden[row, place])
            sums["q"] += huber(y - q_all[action]) if recipe.soft_max else (y - q_all[action]) ** 2
            if recipe.conservative:
                cooled = q_all / settings.conservative_temperature
                sums["conservative"] += lse(cooled) - cooled[action]
            if "margin" in sums:
                sums["margin"] += sum(max(one - q_all[action] + settings.margin, 0) ** 2 for one in q_all)
    return {name: value / max(len(steps), 1) for name, value in sums.items()}, advantages


def reply_means(settings, weights, rows, replies):
    hidden = hidden_of(weights.given["policy"], rows)
    features, log_probs, random = (np.asarray(array, np.float64) for array in replies)
    steps = utterance_steps(rows)
    ends = {row: np.flatnonzero(rows.closes[row]) + 1 for row in range(len(rows.tokens))}
    density = -LANGUAGE.width * math.log(2)
    sums, count = {"q": 0.0, "conservative": 0.0}, 0
    for (row, place), (_, _, reward, terminal) in steps.items():
        first, last = next(span for span in spans(rows, row) if span[0] <= place <= span[1])
        later = [end for end in ends[row] if place < end <= last]
        if not terminal and not later:
            continue
        count += 1
        number = list(ends[row]).index(place)
        y = reward / settings.reward_scale
        if not terminal:
            best = [
                np.min([head(one, sampled)[0] for one in weights.target["q"]]) for sampled in features[row, number + 1]
            ]
            y += settings.discount * max(best)
        for one in weights.learnt["q"]:
            q = head(one, hidden[row, first : place + 1].mean(0))[0]
            sums["q"] += (y - q) ** 2
            others = [head(one, x)[0] - p for x, p in zip(features[row, number], log_probs[row, number], strict=True)]
            others += [head(one, x)[0] - density for x in random[row, number]]
            sums["conservative"] += lse(others) - math.log(len(others)) - q
    return {name: value / max(count, 1) for name, value in sums.items()}


# ---- decisions


def spans(rows, row):
    segments = rows.segments[row]
    for number in range(1, int(segments.max(initial=0)) + 1):
        places = np.flatnonzero(segments == number)
        if len(places):
            yield int(places[0]), int(places[-1])


def token_steps(rows):
    """{(row, position): (next state, reward, terminal)}"""
    steps = {}
    for row in range(len(rows.tokens)):
        for first, last in spans(rows, row):
            actions = [place for place in range(first, last + 1) if rows.is_action[row, place]]
            states = [*actions, last]  # S = A and the last position
            for index, place in enumerate(actions):
                final = index == len(actions) - 1
                end = rows.end[row, last]
                if final and end == CUT:
                    continue
                steps[row, place] = (states[index + 1], float(rows.reward[row, place]), final and end == TERMINAL)
    return steps


def utterance_steps(rows):
    """{(row, last token): (state, next state, reward, terminal)}"""
    steps = {}
    for row in range(len(rows.tokens)):
        for first, last in spans(rows, row):
            utterances, start = [], None
            for place in range(first, last + 1):
                if rows.is_action[row, place] and start is None:
                    start = place
                if rows.closes[row, place]:
                    utterances.append((start, place + 1, float(rows.reward[row, place])))
                    start = None
            states = [one[0] for one in utterances] + [last if start is None else start]
            for index, (state, end, reward) in enumerate(utterances):
                final = index == len(utterances) - 1 and start is None
                if final and rows.end[row, last] == CUT:
                    continue
                terminal = final and rows.end[row, last] == TERMINAL
                steps[row, end] = (state, states[index + 1], reward, terminal)
    return steps


def returns_to_go(rows, discount):
    """{(row, position before the agent's token): discounted sum}"""
    returns = {}
    for row in range(len(rows.tokens)):
        for first, last in spans(rows, row):
            later = float(rows.reward[row, last])  # of what was cut off
            for place in reversed(range(first, last)):
                if rows.is_action[row, place]:
                    later = returns[row, place] = float(rows.reward[row, place]) + discount * later
    return returns


# ---- written games


def relative(values, by_deviation):
    if len(values) < 2:
        return [0.0] * len(values)
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return [(value - mean) / (max(deviation, 1e-4) if by_deviation else 1.0) for value in values]


def advantages(returns, rewards, moments, size, by_deviation, discount, step_weight):
    """By episode and text. `rewards`: of each text; `moments`: what was read before each; discount None: grpo."""

    rows = []
    for episode in range(len(returns)):
        group = range(episode // size * size, episode // size * size + size)
        of_episode = relative([returns[other] for other in group], by_deviation)[episode % size]
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
                value += step_weight * relative(to_go, by_deviation)[alike.index((episode, text))]
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
