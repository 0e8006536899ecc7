"""The slow, obvious twin: one row, one token, one head at a time, in NumPy, from a file's tensors by their names."""

import math

import numpy as np


def softmax(x):
    odds = np.exp(x - max(x))
    return odds / odds.sum()


def layer_norm(x, weight, bias, epsilon):
    return (x - x.mean()) / math.sqrt(x.var() + epsilon) * weight + bias


def rms_norm(x, weight, epsilon):
    return x / math.sqrt((x * x).mean() + epsilon) * weight


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def attend(queries, keys, values, scale, may_see, bias=lambda head, i, j: 0.0):
    """[T][N, H], [S][K, H], [S][K, H] -> [T, N * H]"""
    rows = []
    for i, query in enumerate(queries):
        row = []
        for head in range(len(query)):
            group = head * len(keys[0]) // len(query)
            seen = [j for j in range(len(keys)) if may_see(i, j)]
            odds = softmax(np.array([query[head] @ keys[j][group] * scale + bias(head, i, j) for j in seen]))
            row.append(sum(p * values[j][group] for p, j in zip(odds, seen, strict=True)))
        rows.append(np.concatenate(row))
    return np.array(rows)


def no_later(i, j):
    return j <= i


def gpt2(tensors, config, tokens):
    """Logits of all tokens of a row. [T, V]"""

    def get(name):
        return tensors[f"transformer.{name}"].astype(float)

    def norm(x, name):
        return np.array(
            [layer_norm(one, get(f"{name}.weight"), get(f"{name}.bias"), config["layer_norm_epsilon"]) for one in x]
        )

    def linear(x, name):
        return x @ get(f"{name}.weight") + get(f"{name}.bias")

    size = config["n_embd"] // config["n_head"]
    x = np.array([get("wte.weight")[token] + get("wpe.weight")[place] for place, token in enumerate(tokens)])
    for block in range(config["n_layer"]):
        at = f"h.{block}"
        q, k, v = np.split(linear(norm(x, f"{at}.ln_1"), f"{at}.attn.c_attn"), 3, -1)
        heads = [part.reshape(len(tokens), -1, size) for part in (q, k, v)]
        x = x + linear(attend(*heads, size**-0.5, no_later), f"{at}.attn.c_proj")
        x = x + linear(gelu(linear(norm(x, f"{at}.ln_2"), f"{at}.mlp.c_fc")), f"{at}.mlp.c_proj")
    return norm(x, "ln_f") @ get("wte.weight").T


def qwen3(tensors, config, tokens):
    """Logits of all tokens of a row. [T, V]"""
    size, epsilon = config["head_dim"], config["rms_norm_eps"]

    def get(name):
        return tensors[f"model.{name}.weight"].astype(float)

    def norm(x, name):
        return np.array([rms_norm(one, get(name), epsilon) for one in x])

    def turned(x, place):
        """Each pair (i, i + H/2) is a complex number, which is turned."""
        half = size // 2
        angles = [place * config["rope_theta"] ** (-2 * i / size) for i in range(half)]
        pairs = (x[:half] + 1j * x[half:]) * np.exp(1j * np.array(angles))
        return np.concatenate([pairs.real, pairs.imag])

    def heads(x, name, norm_name=None):
        parts = (x @ get(name).T).reshape(len(x), -1, size)
        if norm_name is None:
            return parts
        return np.array([
            [turned(rms_norm(head, get(norm_name), epsilon), place) for head in row] for place, row in enumerate(parts)
        ])  # fmt: skip

    x = np.array([get("embed_tokens")[token] for token in tokens])
    for block in range(config["num_hidden_layers"]):
        at = f"layers.{block}"
        inner = norm(x, f"{at}.input_layernorm")
        q = heads(inner, f"{at}.self_attn.q_proj", f"{at}.self_attn.q_norm")
        k = heads(inner, f"{at}.self_attn.k_proj", f"{at}.self_attn.k_norm")
        v = heads(inner, f"{at}.self_attn.v_proj")
        x = x + attend(q, k, v, size**-0.5, no_later) @ get(f"{at}.self_attn.o_proj").T
        inner = norm(x, f"{at}.post_attention_layernorm")
        gate, up = inner @ get(f"{at}.mlp.gate_proj").T, inner @ get(f"{at}.mlp.up_proj").T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ get(f"{at}.mlp.down_proj").T
    return norm(x, "norm") @ get("embed_tokens").T


def t5_bucket(distance, both_ways, buckets, most):
    """Of the relative position `distance`: that of what is looked at, minus that of the token that looks."""
    first = 0
    if both_ways:
        buckets //= 2
        if distance > 0:
            first = buckets
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    far = exact + int(math.log(distance / exact) / math.log(most / exact) * (buckets - exact) + 1e-6)
    return first + min(far, buckets - 1)


def t5(tensors, config, tokens, answer):
    """Logits of the decoder for what it reads, which begins with its start token. [T, V]"""
    gated = config["feed_forward_proj"] == "gated-gelu_new"
    heads, size = config["num_heads"], config["d_kv"]

    def get(name):
        return tensors[name].astype(float)

    def norm(x, name):
        return np.array([rms_norm(one, get(f"{name}.weight"), config["layer_norm_epsilon"]) for one in x])

    def attention(x, other, at, may_see, bias=lambda head, i, j: 0.0):
        q, k, v = (
            (y @ get(f"{at}.{name}.weight").T).reshape(len(y), heads, size)
            for name, y in zip("qkv", (x, other, other), strict=True)
        )
        return attend(q, k, v, 1.0, may_see, bias) @ get(f"{at}.o.weight").T

    def mlp(x, at):
        def up(name):
            return x @ get(f"{at}.{name}.weight").T

        inner = gelu(up("wi_0")) * up("wi_1") if gated else np.maximum(up("wi"), 0)
        return inner @ get(f"{at}.wo.weight").T

    def run(stack, tokens, blocks, memory=None):
        both = memory is None
        table = get(f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight")

        def bias(head, i, j):
            most = config["relative_attention_max_distance"]
            return table[t5_bucket(j - i, both, config["relative_attention_num_buckets"], most), head]

        x = np.array([get("shared.weight")[token] for token in tokens])
        for block in range(blocks):
            at = f"{stack}.block.{block}.layer"
            inner = norm(x, f"{at}.0.layer_norm")
            x = x + attention(inner, inner, f"{at}.0.SelfAttention", (lambda i, j: True) if both else no_later, bias)
            if memory is not None:
                x = x + attention(norm(x, f"{at}.1.layer_norm"), memory, f"{at}.1.EncDecAttention", lambda i, j: True)
            last = f"{at}.{1 if both else 2}"
            x = x + mlp(norm(x, f"{last}.layer_norm"), f"{last}.DenseReluDense")
        return norm(x, f"{stack}.final_layer_norm")

    memory = run("encoder", tokens, config["num_layers"])
    hidden = run("decoder", answer, config["num_decoder_layers"], memory)
    if config["scale_decoder_outputs"]:
        hidden = hidden / math.sqrt(config["d_model"])
    return hidden @ get("lm_head.weight" if "lm_head.weight" in tensors else "shared.weight").T
