"""Which graphs are sound: the tables and requirements of docs/graph.md."""

import math


class Malformed(Exception):
    pass


class Unsupported(Exception):
    pass


def integer(digits):
    """H6: -0 is a number and no integer."""
    return -0.0 if digits == "-0" else int(digits)


def need(ok, at, why="is wrong"):
    if not ok:
        raise Malformed(f"{at} {why}")


# A field is (type, default); REQUIRED has none. Types that
# are words name a table here; what else a value must be stands in read_graph.

REQUIRED = object()
LINEAR = {k: ("string", REQUIRED) for k in ("role", "input")} | {"weight": ("tensor", REQUIRED), "bias": ("tensor", "")}
LINEAR |= {k: ("int", REQUIRED) for k in ("in", "out")}
GATED = {"act": ("string", REQUIRED), "gate": ("linear", None), "up": ("linear", REQUIRED), "down": ("linear", REQUIRED)}
GATED |= {k: ("f32", 0) for k in ("alpha", "limit", "up_offset")}
TABLES = {
    "graph": {"arch": ("string", REQUIRED), **{k: ("int", REQUIRED) for k in ("context", "vocab", "width")}, "embed": ("embed", REQUIRED), "per_layer": ("per_layer", None)}
    | {"ropes": (["rope"], []), "blocks": (["block"], REQUIRED), "norm": ("norm", REQUIRED), "head": ("head", REQUIRED), "mtp": (["mtp"], [])},
    "mtp": {k: ("norm", REQUIRED) for k in ("embed_norm", "hidden_norm")} | {"project": ("linear", REQUIRED), "block": ("block", REQUIRED)}
    | {"norm": ("norm", None), "table": ("tensor", ""), "head": ("linear", None)},
    "embed": {"table": ("tensor", REQUIRED), "scale": ("f32", REQUIRED), "positions": ("tensor", "")},
    "head": LINEAR | {"softcap": ("f32", 0)},
    "per_layer": {"width": ("int", REQUIRED), "table": ("tensor", REQUIRED), "projection": ("linear", REQUIRED), "norm": ("norm", REQUIRED)}
    | {k: ("f32", REQUIRED) for k in ("scale", "projection_scale", "factor")},
    "per_layer_input": {"act": ("string", REQUIRED), "gate": ("linear", REQUIRED), "down": ("linear", REQUIRED), "norm": ("norm", None)},
    "block": {"parallel": ("bool", False), "bare": ("bool", False), "attn_norm": ("norm", None), "attn": ("attn", None), "delta": ("delta", None), "latent": ("latent", None), "mamba": ("mamba", None), "shortconv": ("shortconv", None), "ffn": ("ffn", None), "moe": ("moe", None)}
    | {k: ("norm", None) for k in ("attn_post_norm", "ffn_norm", "ffn_post_norm", "dense_post_norm", "moe_norm", "moe_post_norm")}
    | {"per_layer": ("per_layer_input", None), "out_scale": ("tensor", "")},
    "norm": {"kind": ("string", REQUIRED), "weight": ("tensor", ""), "bias": ("tensor", ""), "eps": ("f32", REQUIRED), "offset": ("f32", 0), "scale": ("f32", 0)},
    "linear": LINEAR,
    "temperature": {"beta": ("f32", REQUIRED), "every": ("int", REQUIRED), "offset": ("int", 0)},
    "attn": {k: ("int", REQUIRED) for k in ("heads", "kv_heads", "head_dim", "rope")} | {k: ("linear", REQUIRED) for k in "qo"} | {k: ("linear", None) for k in "kv"}
    | {"scale": ("f32", REQUIRED), "softcap": ("f32", 0), "window": ("int", 0), "chunk": ("int", 0), "sinks": ("tensor", ""), "kv_from": ("int", None), "gate": ("linear", None)}
    | {k: ("norm", None) for k in ("q_norm", "k_norm", "v_norm")} | {"temperature": ("temperature", None), "joint_norms": ("bool", False), "late_norms": ("bool", False), "head_norms": ("bool", False)},
    "delta": {k: ("int", REQUIRED) for k in ("heads", "key_heads", "key_dim", "value_dim", "kernel")} | {k: ("tensor", REQUIRED) for k in ("conv", "decay", "dt_bias")}
    | {k: ("linear", REQUIRED) for k in ("qkv", "z", "beta", "alpha", "out")} | {"eps": ("f32", REQUIRED), "norm": ("norm", REQUIRED)}
    | {k: ("bool", False) for k in ("tiled", "decay_log", "by_channel", "sigmoid_gate")} | {k: ("linear", None) for k in ("z_a", "alpha_a")},
    "mamba": {k: ("int", REQUIRED) for k in ("heads", "head_dim", "groups", "state", "kernel")} | {k: ("tensor", REQUIRED) for k in ("conv", "decay", "dt_bias", "skip")}
    | {k: ("linear", REQUIRED) for k in ("z", "xbc", "dt", "out")} | {"norm": ("norm", None), "conv_bias": ("tensor", ""), "decay_log": ("bool", False)}
    | {k: ("f32", 0) for k in ("min_step", "max_step")},
    "shortconv": {"kernel": ("int", REQUIRED), "conv": ("tensor", REQUIRED), "conv_bias": ("tensor", ""), "in": ("linear", REQUIRED), "out": ("linear", REQUIRED)},
    "latent": {k: ("int", REQUIRED) for k in ("heads", "nope_dim", "rope_dim", "value_dim", "rank", "rope")} | {"scale": ("f32", REQUIRED), "q_norm": ("norm", None), "kv_norm": ("norm", REQUIRED)}
    | {"q_a": ("linear", None)} | {k: ("linear", REQUIRED) for k in ("q", "kv_a", "k_b", "v_b", "o")},
    "rope": {"style": ("string", REQUIRED), "dim": ("int", REQUIRED), "theta": ("f64", REQUIRED), "scaling": ("scaling", REQUIRED)},
    "scaling": {"kind": ("string", REQUIRED), "original": ("int", 0), "truncate": ("bool", False), "short": (["f32"], None), "long": (["f32"], None)}
    | {k: ("f64", 0) for k in ("factor", "low_freq", "high_freq", "beta_fast", "beta_slow", "attention")},
    "ffn": GATED | {"xielu": ("xielu", None)},
    "xielu": {k: ("f32", REQUIRED) for k in ("alpha_p", "alpha_n", "beta", "eps")},
    "moe": GATED | {"experts": ("int", REQUIRED), "top_k": ("int", REQUIRED), "router": ("linear", REQUIRED), "score": ("string", "")}
    | {"select_bias": ("tensor", ""), "expert_scale": ("tensor", ""), "router_norm": ("norm", None), "shared": ("ffn", None), "shared_gate": ("linear", None), "latent_down": ("linear", None), "latent_up": ("linear", None), "zero_masked": ("bool", False), "weigh_input": ("bool", False), "normalize": ("bool", False)}
    | {k: ("int", 0) for k in ("groups", "top_groups", "group_best")} | {k: ("f32", 0) for k in ("epsilon", "floor", "scale")},
}


ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "gelu_quick", "relu", "relu2")


def strange(v, kind, at):
    """J1: refuses keys that are not in the tables."""
    if isinstance(kind, list):
        for i, x in enumerate(v if isinstance(v, list) else []):
            strange(x, kind[0], f"{at}[{i}]")
    elif kind in TABLES and isinstance(v, dict):
        for key, x in v.items():
            if key not in TABLES[kind]:
                raise Unsupported(f"{at}: key {key}")
            strange(x, TABLES[kind][key][0], f"{at}.{key}")


def typed(v, kind, at):
    """J2 to J5: checks types, and puts the defaults where keys are absent."""
    number = isinstance(v, (int, float)) and not isinstance(v, bool)
    if isinstance(kind, list):
        need(isinstance(v, list), at)
        for i, x in enumerate(v):
            typed(x, kind[0], f"{at}[{i}]")
    elif kind in TABLES:
        need(isinstance(v, dict), at)
        for key, (of, default) in TABLES[kind].items():
            if key in v:
                typed(v[key], of, f"{at}.{key}")
            else:
                need(default is not REQUIRED, f"{at}.{key}", "is missing")
                v[key] = default
    elif kind == "f32":
        need(number and math.isfinite(v) and abs(v) < float(2**128 - 2**103), at)
    elif kind == "f64":
        need(number and math.isfinite(v), at)
    elif kind == "int":
        need(number and isinstance(v, int) and -(2**63) <= v < 2**63, at)
    elif kind == "bool":
        need(isinstance(v, bool), at)
    else:
        need(isinstance(v, str) and (v or kind == "string"), at)


def known(v, names, at):
    if v not in names:
        raise Unsupported(f"{at} {v!r}")


def read_graph(g):
    """Checks a graph, fills in its defaults and returns its tensors with their shapes."""
    strange(g, "graph", "graph")
    typed(g, "graph", "graph")
    out, d = [], g["width"]
    for key, most in (("context", 1 << 40), ("vocab", 1 << 28), ("width", 1 << 24)):
        need(1 <= g[key] <= most, key)
    need(1 <= len(g["blocks"]) <= 4096, "blocks")

    def tensor(name, *shape):
        if name:
            out.append((name, list(shape)))

    def norm(n, at, *size):
        if n:
            known(n["kind"], ("rms", "layer"), at)
            need(n["eps"] > 0, at)
            if n["kind"] == "rms" and n["bias"]:
                raise Unsupported(f"{at}: bias on rms")
            tensor(n["weight"], *size)
            tensor(n["bias"], *size)

    def linear(l, at, rows, cols, *stack):
        if l:
            need((l["out"], l["in"]) == (rows, cols), at)
            need(l["role"].startswith("mtp_") == at.startswith("mtp["), at, "has a role of another place")
            need((l["role"].removeprefix("mtp_") in ("moe_gate", "moe_up", "moe_down", "attn_k_b", "attn_v_b")) == bool(stack), at, "has a role of another place")
            tensor(l["weight"], *stack, rows, cols)
            tensor(l["bias"], *stack, rows)

    def gated(f, at, *stack, d=d):
        if "xielu" in f:  # of feed-forward layers alone
            x = f["xielu"]
            need(bool(x) == (f["act"] == "xielu") and not (x and f["gate"]), f"{at}.xielu")
            for key in x or ():
                need(-80 <= x[key] <= 80, f"{at}.xielu.{key}")
        if not f.get("xielu"):
            known(f["act"], ACTIVATIONS, f"{at}.act")
        need(min(f["alpha"], f["limit"]) >= 0, at, "has a negative alpha or limit")
        need(not (f["alpha"] or f["limit"] or f["up_offset"]) or f["gate"] and f["act"] == "silu", at, "changes no gate of silu")
        need(1 <= f["up"]["out"] <= 1 << 28, f"{at}.up")
        for part in ("gate", "up"):
            linear(f[part], f"{at}.{part}", f["up"]["out"], d, *stack)
        linear(f["down"], f"{at}.down", d, f["up"]["out"], *stack)

    def attention(a, at, i):
        for key in ("heads", "kv_heads", "head_dim"):
            need(1 <= a[key] <= 1 << 16, f"{at}.{key}")
        h, kv, n = a["heads"], a["kv_heads"], a["head_dim"]
        need(h % kv == 0, f"{at}.heads")
        need(-1 <= a["rope"] < len(g["ropes"]) and (a["rope"] < 0 or g["ropes"][a["rope"]]["dim"] <= n), f"{at}.rope")
        need(a["window"] >= 0 and a["softcap"] >= 0, at, "has a negative window or softcap")
        need(a["chunk"] >= 0 and not (a["chunk"] and a["window"]), f"{at}.chunk")
        for part, rows, cols in (("q", h * n, d), ("k", kv * n, d), ("v", kv * n, d), ("o", d, h * n)):
            linear(a[part], f"{at}.{part}", rows, cols)
        linear(a["gate"], f"{at}.gate", h * n, d)
        for key, heads in (("q_norm", h), ("k_norm", kv), ("v_norm", 1)):
            own = a["head_norms"] and key != "v_norm"
            norm(a[key], f"{at}.{key}", *[heads, n] if own else [heads * n if a["joint_norms"] else n])
        need(not (a["joint_norms"] and a["late_norms"]), f"{at}.late_norms")
        need(not (a["joint_norms"] and a["head_norms"]), f"{at}.head_norms")
        if f := a["temperature"]:
            need(1 <= f["every"] <= 1 << 40, f"{at}.temperature.every")
            need(0 <= f["offset"] <= 1 << 40, f"{at}.temperature.offset")
        if a["kv_from"] is None:
            need(a["k"], f"{at}.k", "is missing")
        else:
            need(i is not None and 0 <= a["kv_from"] < i and not any(a[key] for key in ("k", "v", "k_norm", "v_norm")), f"{at}.kv_from")
            other = g["blocks"][a["kv_from"]]["attn"]
            need(other and other["kv_from"] is None and (other["kv_heads"], other["head_dim"]) == (kv, n), f"{at}.kv_from")
        tensor(a["sinks"], h)

    def delta(n, at):
        for key, most in (("heads", 1 << 16), ("key_heads", 1 << 16), ("key_dim", 1 << 10), ("value_dim", 1 << 10), ("kernel", 64)):
            need(1 <= n[key] <= most, f"{at}.{key}")
        h, values = n["heads"], n["heads"] * n["value_dim"]
        need(h % n["key_heads"] == 0, f"{at}.heads")
        need(n["eps"] > 0, f"{at}.eps")
        known(n["norm"]["kind"], ("rms",), f"{at}.norm")
        channels = 2 * n["key_heads"] * n["key_dim"] + values
        first = {}
        for part in ("z_a", "alpha_a"):
            if n[part]:
                first[part] = n[part]["out"]
                need(1 <= first[part] <= 1 << 16, f"{at}.{part}")
                linear(n[part], f"{at}.{part}", first[part], d)
        fades = h * n["key_dim"] if n["by_channel"] else h
        for part, rows, cols in (("qkv", channels, d), ("z", values, first.get("z_a", d)), ("beta", h, d), ("alpha", fades, first.get("alpha_a", d)), ("out", d, values)):
            linear(n[part], f"{at}.{part}", rows, cols)
        tensor(n["conv"], channels, n["kernel"])
        tensor(n["decay"], h)
        tensor(n["dt_bias"], fades)
        norm(n["norm"], f"{at}.norm", n["value_dim"])

    def mamba(n, at):
        for key, most in (("heads", 1 << 16), ("head_dim", 1 << 10), ("groups", 1 << 16), ("state", 1 << 10), ("kernel", 64)):
            need(1 <= n[key] <= most, f"{at}.{key}")
        h, values = n["heads"], n["heads"] * n["head_dim"]
        need(h % n["groups"] == 0, f"{at}.heads")
        need(0 <= n["min_step"] and (n["max_step"] == 0 or n["max_step"] >= n["min_step"]), f"{at}.min_step")
        channels = values + 2 * n["groups"] * n["state"]
        for part, rows, cols in (("z", values, d), ("xbc", channels, d), ("dt", h, d), ("out", d, values)):
            linear(n[part], f"{at}.{part}", rows, cols)
        tensor(n["conv"], channels, n["kernel"])
        tensor(n["conv_bias"], channels)
        for key in ("decay", "dt_bias", "skip"):
            tensor(n[key], h)
        if n["norm"]:
            known(n["norm"]["kind"], ("rms",), f"{at}.norm")
            norm(n["norm"], f"{at}.norm", values)

    def shortconv(n, at):
        need(1 <= n["kernel"] <= 64, f"{at}.kernel")
        channels = n["out"]["in"]
        need(1 <= channels <= 1 << 24, f"{at}.out")
        linear(n["in"], f"{at}.in", 3 * channels, d)
        linear(n["out"], f"{at}.out", d, channels)
        tensor(n["conv"], channels, n["kernel"])
        tensor(n["conv_bias"], channels)

    def latent(a, at):
        for key in ("heads", "nope_dim", "rope_dim", "value_dim", "rank"):
            need(1 <= a[key] <= 1 << 16, f"{at}.{key}")
        h, n, r, rank, values = (a[key] for key in ("heads", "nope_dim", "rope_dim", "rank", "value_dim"))
        need(-1 <= a["rope"] < len(g["ropes"]) and (a["rope"] < 0 or g["ropes"][a["rope"]]["dim"] == r), f"{at}.rope")
        need(bool(a["q_a"]) == bool(a["q_norm"]), f"{at}.q_norm")
        known(a["kv_norm"]["kind"], ("rms",), f"{at}.kv_norm")
        inner = a["q_a"]["out"] if a["q_a"] else d
        need(1 <= inner <= 1 << 28, f"{at}.q_a")
        for part, rows, cols in (("q_a", inner, d), ("q", h * (n + r), inner), ("kv_a", rank + r, d), ("o", d, h * values)):
            linear(a[part], f"{at}.{part}", rows, cols)
        linear(a["k_b"], f"{at}.k_b", rank, n, h)
        linear(a["v_b"], f"{at}.v_b", values, rank, h)
        norm(a["q_norm"], f"{at}.q_norm", inner)
        norm(a["kv_norm"], f"{at}.kv_norm", rank)

    def mixture(m, at):
        e = m["experts"]
        need(1 <= e <= 1 << 16, f"{at}.experts")
        need(1 <= m["top_k"] <= e, f"{at}.top_k")
        known(m["score"], ("", "sigmoid", "selected", "root"), f"{at}.score")
        need(min(m["epsilon"], m["floor"], m["scale"]) >= 0, at, "has a negative epsilon, floor or scale")
        m["group_best"] = m["group_best"] or (2 if m["groups"] or m["top_groups"] or m["zero_masked"] else 0)
        if m["group_best"]:
            need(1 <= m["groups"] <= e and e % m["groups"] == 0, f"{at}.groups")
            need(1 <= m["top_groups"] <= m["groups"], f"{at}.top_groups")
            need(m["group_best"] in (1, 2), f"{at}.group_best")
            need(e // m["groups"] >= m["group_best"], f"{at}.groups")
            need(m["top_k"] <= m["top_groups"] * (e // m["groups"]), f"{at}.top_k")
        need(m["shared"] or not m["shared_gate"], f"{at}.shared_gate")
        tensor(m["select_bias"], e)
        tensor(m["expert_scale"], e)
        norm(m["router_norm"], f"{at}.router_norm", d)
        linear(m["router"], f"{at}.router", e, d)
        linear(m["shared_gate"], f"{at}.shared_gate", 1, d)
        need(bool(m["latent_down"]) == bool(m["latent_up"]), f"{at}.latent_down", "or latent_up is alone")
        need(not (m["latent_down"] and m["shared_gate"]), f"{at}.shared_gate", "beside latent_down")
        need(not (m["latent_down"] and m["weigh_input"]), f"{at}.weigh_input", "beside latent_down")
        latent = m["latent_down"]["out"] if m["latent_down"] else d
        need(1 <= latent <= 1 << 24, f"{at}.latent_down")
        linear(m["latent_down"], f"{at}.latent_down", latent, d)
        linear(m["latent_up"], f"{at}.latent_up", d, latent)
        gated(m, at, e, d=latent)
        if m["shared"]:
            gated(m["shared"], f"{at}.shared")

    for i, r in enumerate(g["ropes"]):
        check_rope(r, f"ropes[{i}]")
    tensor(g["embed"]["table"], g["vocab"], d)
    tensor(g["embed"]["positions"], g["context"], d)

    def block(b, at, i):
        mixers = [key for key in ("attn", "latent", "delta", "mamba", "shortconv") if b[key]]
        need(len(mixers) <= 1, f"{at}.attn", "or another mixer, one of them")
        feeds = b["ffn"] or b["moe"]
        need(mixers or feeds, f"{at}.ffn", "or moe, or a mixer, one of them")
        need(not b["parallel"] or mixers and feeds, f"{at}.parallel", "of one branch")
        need(mixers or not (b["attn_norm"] or b["attn_post_norm"]), f"{at}.attn_norm", "of no mixer")
        need(feeds or not (b["ffn_norm"] or b["ffn_post_norm"]), f"{at}.ffn_norm", "of no layer")
        both = b["ffn"] and b["moe"]
        need(not (both and b["parallel"]), f"{at}.ffn", "and moe in a parallel block")
        need(both or not any(b[key] for key in ("dense_post_norm", "moe_norm", "moe_post_norm")), f"{at}.moe_norm")
        need(not (b["parallel"] and b["moe"] and b["moe"]["router_norm"]), f"{at}.moe.router_norm")
        need(not (b["bare"] and (b["parallel"] or b["attn_norm"] or b["ffn_norm"])), f"{at}.bare")
        need(b["attn_norm"] or b["bare"] or not mixers, f"{at}.attn_norm", "is missing")
        need(b["ffn_norm"] or b["parallel"] or b["bare"] or not feeds, f"{at}.ffn_norm", "is missing")
        for key in ("attn_norm", "attn_post_norm", "ffn_norm", "ffn_post_norm", "dense_post_norm", "moe_norm", "moe_post_norm"):
            norm(b[key], f"{at}.{key}", d)
        if b["attn"]:
            attention(b["attn"], f"{at}.attn", i)
        for key, check in (("latent", latent), ("delta", delta), ("mamba", mamba), ("shortconv", shortconv)):
            if b[key]:
                check(b[key], f"{at}.{key}")
        if b["ffn"]:
            gated(b["ffn"], f"{at}.ffn")
        if b["moe"]:
            mixture(b["moe"], f"{at}.moe")
        if p := b["per_layer"]:
            known(p["act"], ACTIVATIONS, f"{at}.per_layer.act")
            need(ple and i is not None, f"{at}.per_layer", "has no table")
            linear(p["gate"], f"{at}.per_layer.gate", ple["width"], d)
            linear(p["down"], f"{at}.per_layer.down", d, ple["width"])
            norm(p["norm"], f"{at}.per_layer.norm", d)
        tensor(b["out_scale"], 1)

    if ple := g["per_layer"]:
        need(1 <= ple["width"] <= 1 << 24, "per_layer.width")
        tensor(ple["table"], g["vocab"], len(g["blocks"]) * ple["width"])
        linear(ple["projection"], "per_layer.projection", len(g["blocks"]) * ple["width"], d)
        norm(ple["norm"], "per_layer.norm", ple["width"])
    for i, b in enumerate(g["blocks"]):
        block(b, f"blocks[{i}]", i)
    norm(g["norm"], "norm", d)
    linear(g["head"], "head", g["vocab"], d)
    need(g["head"]["softcap"] >= 0, "head.softcap")
    need(len(g["mtp"]) <= 4096, "mtp")
    for i, m in enumerate(g["mtp"]):
        at = f"mtp[{i}]"
        tensor(m["table"], g["vocab"], d)
        for key in ("embed_norm", "hidden_norm", "norm"):
            norm(m[key], f"{at}.{key}", d)
        linear(m["project"], f"{at}.project", d, 2 * d)
        block(m["block"], f"{at}.block", None)
        linear(m["head"], f"{at}.head", g["vocab"], d)
    return out


def check_rope(r, at):
    s, top = r["scaling"], 2.0**128 - 2.0**104
    known(r["style"], ("half", "interleaved"), f"{at}.style")
    known(s["kind"], ("none", "linear", "dynamic", "llama3", "yarn", "longrope", "factors"), f"{at}.scaling")
    at += ".scaling"
    need(2 <= r["dim"] <= 1 << 16 and r["dim"] % 2 == 0 and r["theta"] > 0, at)
    for x in (s["short"], s["long"]):
        need(x is None or len(x) == r["dim"] // 2 and min(x) > 0, at)
    need(s["kind"] not in ("linear", "dynamic", "llama3", "yarn") or s["factor"] >= 1, at)
    need(s["kind"] not in ("dynamic", "llama3", "yarn", "longrope") or s["original"] >= 1, at)
    need(s["kind"] != "llama3" or 0 < s["low_freq"] < s["high_freq"] <= top, at)
    need(s["kind"] != "yarn" or min(s["beta_fast"], s["beta_slow"]) > 0 and s["beta_fast"] + s["beta_slow"] <= top and r["theta"] > 1, at)
    need(s["kind"] not in ("longrope", "factors") or s["short"] is not None, at)
    need(s["kind"] != "longrope" or s["long"] is not None, at)
    need(0 <= s["attention"] <= top, at)
