"""Runs a language model from its NSTF package: tokens to logits, in NumPy.

usage: run.py PACKAGE TOKEN...

It prints the five best next tokens with their logits.

Written from docs/nstf.md, docs/graph.md, docs/schemes and docs/forms alone, as
the proof that they suffice: it shares no line and no table with the program.
"""

import math
import sys

import numpy as np

import package
from rules import need

F32 = np.float32


def frequencies(r, length):
    """Section 6: the angles of pairs for a position, float32 to the bit."""
    s, dim, theta = r["scaling"], r["dim"], r["theta"]
    kind, factor, original, base = s["kind"], F32(s["factor"]), s["original"], F32(theta)
    one = F32(1)
    if kind == "dynamic" and length > original and dim > 2:
        u = factor * F32(length) / F32(original) - F32(s["factor"] - 1)
        base = base * F32(math.pow(float(u), dim / (dim - 2)))
    p = np.array([math.pow(float(base), float(F32(2 * j) / F32(dim))) for j in range(dim // 2)]).astype(F32)
    if kind == "longrope":
        return one / (np.array(s["long"] if length > original else s["short"], F32) * p)
    g = one / p
    if kind == "linear":
        return g / factor
    if kind == "factors":
        return g / np.array(s["short"], F32)
    if kind == "llama3":
        wave = F32(2 * math.pi) / g
        z = (F32(original) / wave - F32(s["low_freq"])) / F32(s["high_freq"] - s["low_freq"])
        f = ((one - z) * g) / factor + z * g
        f = np.where(wave < F32(original / s["high_freq"]), g, f)
        return np.where(wave > F32(original / s["low_freq"]), g / factor, f)
    if kind == "yarn":
        lo, hi = (dim * math.log(original / (n * 2 * math.pi)) / (2 * math.log(theta)) for n in (s["beta_fast"], s["beta_slow"]))
        if s["truncate"]:
            lo, hi = math.floor(lo), math.ceil(hi)
        lo, hi = max(lo, 0), min(hi, dim - 1)
        hi += 0.001 if lo == hi else 0
        keep = one - np.clip((np.arange(dim // 2, dtype=F32) - F32(lo)) / F32(hi - lo), F32(0), one)
        return (one / (factor * p)) * (one - keep) + g * keep
    return g


sigmoid = lambda x: 1 / (1 + np.exp(-x))
ACTIVATIONS = {
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_quick": lambda x: x * sigmoid(1.702 * x),
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
}


def xielu(n, x):
    p, m, beta, eps = (float(F32(n[k])) for k in ("alpha_p", "alpha_n", "beta", "eps"))
    curve = np.where(x > 0, np.log1p(np.exp(p)) * x * x, (beta + np.log1p(np.exp(m))) * (np.exp(np.minimum(x, eps)) - 1 - x))
    return curve + beta * x


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Runner:
    """Runs a package in float64, but for the frequencies."""

    def __init__(self, package):
        self.w, self.g = package, package.graph

    def norm(self, n, x):
        if not n:
            return x
        w = ((self.w[n["weight"]] if n["weight"] else 1) + F32(n["offset"])) * F32(n["scale"] or 1)
        if n["kind"] == "layer":
            x = x - x.mean(-1, keepdims=True)
        y = x / np.sqrt((x * x).mean(-1, keepdims=True) + F32(n["eps"])) * w
        return y + self.w[n["bias"]] if n["bias"] else y

    def linear(self, l, x, *expert):
        y = x @ self.w[l["weight"]][expert].T.astype(float)
        return y + self.w[l["bias"]][expert] if l["bias"] else y

    def gated(self, f, x, *expert):
        act, up = ACTIVATIONS.get(f["act"]), self.linear(f["up"], x, *expert)
        if n := f.get("xielu"):
            act = lambda u: xielu(n, u)
        if not f["gate"]:
            return self.linear(f["down"], act(up), *expert)
        gate = self.linear(f["gate"], x, *expert)
        if f["limit"]:
            limit = F32(f["limit"])
            gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
        opened = gate * sigmoid(F32(f["alpha"]) * gate) if f["alpha"] else act(gate)
        return self.linear(f["down"], opened * (up + F32(f["up_offset"])), *expert)

    def rotate(self, r, x):
        """Rotates x[T][heads][head_dim] by positions."""
        t, half = len(x), r["dim"] // 2
        angle = np.arange(t).astype(F32)[:, None] * frequencies(r, t)
        m = F32(r["scaling"]["attention"] or 1)
        c, s = (f(angle.astype(float)).astype(F32)[:, None] * m for f in (np.cos, np.sin))
        first, second = (slice(0, half), slice(half, 2 * half)) if r["style"] == "half" else (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
        y, a, b = x.copy(), x[..., first], x[..., second]
        y[..., first], y[..., second] = a * c - b * s, b * c + a * s
        return y

    def attention(self, a, h, i, kept):
        t, dim = len(h), a["head_dim"]
        turn = lambda x: self.rotate(self.g["ropes"][a["rope"]], x) if a["rope"] >= 0 else x

        def finish(n, x):
            if a["joint_norms"]:
                return turn(self.norm(n, x).reshape(t, -1, dim))
            x = x.reshape(t, -1, dim)
            return self.norm(n, turn(x)) if a["late_norms"] else turn(self.norm(n, x))

        q = finish(a["q_norm"], self.linear(a["q"], h))
        if f := a["temperature"]:
            q = q * (1 + F32(f["beta"]) * np.log(1 + (np.arange(t) + f["offset"]) // f["every"]))[:, None, None]
        if a["kv_from"] is None:
            k = self.linear(a["k"], h)
            v = (self.linear(a["v"], h) if a["v"] else k).reshape(t, -1, dim)
            kept[i] = finish(a["k_norm"], k), self.norm(a["v_norm"], v)
        k, v = (np.repeat(x, a["heads"] // a["kv_heads"], 1) for x in kept[i if a["kv_from"] is None else a["kv_from"]])
        score = np.einsum("thd,shd->hts", q, k) * F32(a["scale"])
        if a["softcap"]:
            score = np.tanh(score / F32(a["softcap"])) * F32(a["softcap"])
        apart = np.arange(t)[:, None] - np.arange(t)
        seen = (apart >= 0) & (apart < a["window"] if a["window"] else True)
        if c := a["chunk"]:
            seen &= np.arange(t)[:, None] // c == np.arange(t) // c
        score = np.where(seen, score, -np.inf)
        if a["sinks"]:
            sink = np.broadcast_to(self.w[a["sinks"]][:, None, None].astype(float), (a["heads"], t, 1))
            score = np.concatenate([score, sink], 2)
        p = softmax(score)[:, :, :t]
        out = np.einsum("hts,shd->thd", p, v).reshape(t, -1)
        return self.linear(a["o"], out * sigmoid(self.linear(a["gate"], h)) if a["gate"] else out)

    def convolve(self, n, x):
        """A causal convolution of each channel of x[T][C]."""
        before = np.concatenate([np.zeros((n["kernel"] - 1, x.shape[1])), x])
        y = sum(self.w[n["conv"]][:, j] * before[j : j + len(x)] for j in range(n["kernel"]))
        return y + self.w[n["conv_bias"]] if n.get("conv_bias") else y

    def shortconv(self, n, h):
        b, c, x = np.split(self.linear(n["in"], h), 3, 1)
        return self.linear(n["out"], c * self.convolve(n, b * x))

    def mamba(self, n, h):
        t, heads, dim, groups, size = (len(h), *(n[key] for key in ("heads", "head_dim", "groups", "state")))
        m = ACTIVATIONS["silu"](self.convolve(n, self.linear(n["xbc"], h)))
        x, b, c = np.split(m, [heads * dim, heads * dim + groups * size], 1)
        x = x.reshape(t, heads, dim)
        b, c = (np.repeat(y.reshape(t, groups, size), heads // groups, 1) for y in (b, c))
        step = np.clip(np.logaddexp(0, self.linear(n["dt"], h) + self.w[n["dt_bias"]]), F32(n["min_step"]), F32(n["max_step"]) if n["max_step"] else None)
        a = self.w[n["decay"]].astype(float)
        fade = np.exp((-np.exp(a) if n["decay_log"] else a) * step)
        s, o = np.zeros((heads, size, dim)), np.zeros(x.shape)
        for p in range(t):
            s = s * fade[p][:, None, None] + b[p][:, :, None] * (step[p][:, None] * x[p])[:, None]
            o[p] = np.einsum("aij,ai->aj", s, c[p]) + self.w[n["skip"]][:, None] * x[p]
        o = o.reshape(t, -1) * ACTIVATIONS["silu"](self.linear(n["z"], h))
        if k := n["norm"]:
            runs = o.reshape(t, groups, -1)
            o = (runs / np.sqrt((runs * runs).mean(-1, keepdims=True) + F32(k["eps"]))).reshape(t, -1)
            o = o * (((self.w[k["weight"]] if k["weight"] else 1) + F32(k["offset"])) * F32(k["scale"] or 1))
        return self.linear(n["out"], o)

    def mixer(self, b, h, i, kept):
        if b["attn"]:
            return self.attention(b["attn"], h, i, kept)
        kind = next(key for key in ("latent", "delta", "mamba", "shortconv") if b[key])
        return getattr(self, kind)(b[kind], h)

    def latent(self, a, h):
        t, heads, nope = len(h), a["heads"], a["nope_dim"]
        turn = lambda x: self.rotate(self.g["ropes"][a["rope"]], x) if a["rope"] >= 0 else x
        u = self.norm(a["q_norm"], self.linear(a["q_a"], h)) if a["q_a"] else h
        q, kv = self.linear(a["q"], u).reshape(t, heads, -1), self.linear(a["kv_a"], h)
        c, k, r = self.norm(a["kv_norm"], kv[:, : a["rank"]]), turn(kv[:, None, a["rank"] :])[:, 0], turn(q[:, :, nope:])
        out = []
        for i in range(heads):
            score = (self.linear(a["k_b"], q[:, i, :nope], i) @ c.T + r[:, i] @ k.T) * F32(a["scale"])
            p = softmax(np.where(np.arange(t) <= np.arange(t)[:, None], score, -np.inf))
            out.append(self.linear(a["v_b"], p @ c, i))
        return self.linear(a["o"], np.concatenate(out, 1))

    def delta(self, n, h):
        t, heads, keys, dim = (len(h), *(n[key] for key in ("heads", "key_heads", "key_dim")))
        c = ACTIVATIONS["silu"](self.convolve(n, self.linear(n["qkv"], h)))
        length = lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True) + F32(n["eps"]))
        q, k = (length(x.reshape(t, keys, dim)) for x in (c[:, : keys * dim], c[:, keys * dim : 2 * keys * dim]))
        v = c[:, 2 * keys * dim :].reshape(t, heads, -1)
        of = [a % keys if n["tiled"] else a // (heads // keys) for a in range(heads)]
        q, k, a = q[:, of] / math.sqrt(dim), k[:, of], self.w[n["decay"]].astype(float)
        by = lambda first: self.linear(n[first], h) if n[first] else h
        softplus = np.logaddexp(0, self.linear(n["alpha"], by("alpha_a")) + self.w[n["dt_bias"]]).reshape(t, heads, -1)
        g = np.exp((-np.exp(a) if n["decay_log"] else a)[:, None] * softplus)  # a number for each row, or one for all
        r, s, out = sigmoid(self.linear(n["beta"], h)), np.zeros((heads, dim, n["value_dim"])), np.zeros(v.shape)
        for p in range(t):
            s *= g[p][:, :, None]
            u = r[p][:, None] * (v[p] - np.einsum("aij,ai->aj", s, k[p]))
            s += k[p][:, :, None] * u[:, None]
            out[p] = np.einsum("aij,ai->aj", s, q[p])
        out = self.norm(n["norm"], out).reshape(t, -1) * (sigmoid if n["sigmoid_gate"] else ACTIVATIONS["silu"])(self.linear(n["z"], by("z_a")))
        return self.linear(n["out"], out)

    def route(self, m, l, bias):
        """One position's chosen experts and their weights, from the router's logits."""
        e, best = m["experts"], m["group_best"]
        s = {"": softmax, "sigmoid": sigmoid, "selected": lambda x: x, "root": lambda x: np.sqrt(np.logaddexp(0, x))}[m["score"]](l)
        v = s + bias
        if m["groups"]:
            groups = v.reshape(m["groups"], -1)
            worth = np.sort(groups, 1)[:, -best:].sum(1)
            stay = np.argsort(-worth, kind="stable")[: m["top_groups"]]
            masked = np.full(groups.shape, 0.0 if m["zero_masked"] else -np.inf)
            masked[stay] = groups[stay]
            v = masked.reshape(e)
        chosen = np.argsort(-v, kind="stable")[: m["top_k"]]
        w = softmax(s[chosen]) if m["score"] == "selected" else s[chosen]
        if m["normalize"]:
            w = w / max(w.sum() + F32(m["epsilon"]), F32(m["floor"]))
        return chosen, w * F32(m["scale"] or 1) * (self.w[m["expert_scale"]][chosen] if m["expert_scale"] else 1)

    def mixture(self, m, x, state):
        inner = self.linear(m["latent_down"], x) if m["latent_down"] else x
        y = np.zeros_like(inner)
        bias = self.w[m["select_bias"]] if m["select_bias"] else 0
        for i, l in enumerate(self.linear(m["router"], self.norm(m["router_norm"], state) if m["router_norm"] else x)):
            for e, w in zip(*self.route(m, l, bias)):
                y[i] += self.gated(m, w * x[i], e) if m["weigh_input"] else w * self.gated(m, inner[i], e)
        if m["latent_up"]:
            y = self.linear(m["latent_up"], y)
        if m["shared"]:
            s = self.gated(m["shared"], x)
            y += sigmoid(self.linear(m["shared_gate"], x)) * s if m["shared_gate"] else s
        return y

    def feed(self, b, h, x):
        if not b["moe"]:
            return self.gated(b["ffn"], h)
        if not b["ffn"]:
            return self.mixture(b["moe"], h, x)
        beside = self.norm(b["moe_norm"], x) if b["moe_norm"] else h
        return self.norm(b["dense_post_norm"], self.gated(b["ffn"], h)) + self.norm(b["moe_post_norm"], self.mixture(b["moe"], beside, x))

    def per_layer(self, p, x, tokens):
        c = self.linear(p["projection"], x) * F32(p["projection_scale"])
        c = self.norm(p["norm"], c.reshape(len(x), -1, p["width"]))
        return (c + self.w[p["table"]][tokens].reshape(c.shape) * F32(p["scale"])) * F32(p["factor"])

    def logits(self, tokens):
        g, embed = self.g, self.g["embed"]
        need(all(0 <= t < g["vocab"] for t in tokens), "tokens", "are not of this model")
        x = self.w[embed["table"]][tokens] * float(F32(embed["scale"]))
        if embed["positions"]:
            need(len(tokens) <= g["context"], "tokens", "are more than the context")
            x = x + self.w[embed["positions"]][: len(tokens)]
        inputs = self.per_layer(g["per_layer"], x, tokens) if g["per_layer"] else None
        kept = {}
        for i, b in enumerate(g["blocks"]):
            h = self.norm(b["attn_norm"], x)
            mixes, feeds = any(b[key] for key in ("attn", "latent", "delta", "mamba", "shortconv")), b["ffn"] or b["moe"]
            a = self.norm(b["attn_post_norm"], self.mixer(b, h, i, kept)) if mixes else 0
            if b["parallel"]:
                x = x + a + self.norm(b["ffn_post_norm"], self.feed(b, self.norm(b["ffn_norm"], x) if b["ffn_norm"] else h, x))
            else:
                x = x + a
                if feeds:
                    x = x + self.norm(b["ffn_post_norm"], self.feed(b, self.norm(b["ffn_norm"], x), x))
            if p := b["per_layer"]:
                x = x + self.norm(p["norm"], self.linear(p["down"], ACTIVATIONS[p["act"]](self.linear(p["gate"], x)) * inputs[:, i]))
            if b["out_scale"]:
                x = x * self.w[b["out_scale"]]
        y, cap = self.linear(g["head"], self.norm(g["norm"], x)), F32(g["head"]["softcap"])
        return np.tanh(y / cap) * cap if cap else y


def main():
    last = Runner(package.Package(sys.argv[1])).logits([int(t) for t in sys.argv[2:]])[-1]
    for t in np.argsort(-last)[:5]:
        print(t, last[t])


if __name__ == "__main__":
    main()
