"""Decisions by walking through each episode, as the specification words it."""

import numpy as np

from motif_jax.transcripts.render import CUT, TERMINAL


def spans(rows, row):
    """Start and end of each segment of a row."""
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
