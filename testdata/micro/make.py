#!/usr/bin/env python3
"""Makes the micro checkpoints of this folder and their reference answers.

Every architecture that NSTF reads, and every variant of it that changes arithmetic, names or
configuration keys, gets a directory in the layout of the Hugging Face hub: random weights with
outliers, a small vocabulary, a few layers, well under 1 MB. The answers come from transformers in
float32 with eager attention, after the directory was written and read back, so that both the file
and the configuration are ones that transformers itself understands.

    python make.py                 every directory
    python make.py llama-3 phi3    the named ones (a variant's base is made again with it)
    python make.py --list          the names, one line each

Needs: transformers, torch (a CPU is enough), safetensors, numpy, tokenizers.
Made with: transformers 5.17.0, torch 2.15.0, safetensors 0.8.0, numpy 2.4.6, tokenizers 0.23.3,
Python 3.11.7. The versions of a run stand in each reference.json.

Weights depend on the seeds below only (torch's CPU generator). The reference logits may move by a
few units in the last place of float32 between machines, for matrix libraries sum in different
orders; greedy ids do not, as every recorded margin is above MIN_MARGIN.

Each directory holds
    config.json, generation_config.json, model*.safetensors   the checkpoint
    reference.json   {"prompts": [{"prompt_ids", "greedy_ids", "margins"}],
                      "logits": [{"file", "ids"}], versions, "ablations"}
                     greedy_ids are computed without a KV cache (the whole sequence again at each
                     step) and do not stop at an end token; margins[i] is the difference of the two
                     best logits at the step that chose greedy_ids[i]
    logits.npy       float32 [T][vocab]: the logits of every position of logits[0].ids, the
                     longest prompt; logits_short.npy where a second regime exists

"ablations" lists, for each configuration key that a variant is about, by how much the logits move
when that key is neutralised: the proof that the reference can tell a reader that ignores it.
"""

import argparse
import copy
import json
import math
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

import numpy as np
import safetensors
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

HERE = Path(__file__).resolve().parent
MIN_MARGIN = 1e-4      # a greedy step closer than this means: choose another seed
MIN_ABLATION = 2e-3    # of the logits' range; a tenth of this would still be ten times the tolerance
GREEDY_STEPS = 24
LOGIT_STD = 1.5
MIN_DISTINCT = 5       # different tokens among the greedy ones: a constant would prove little
DROP = object()        # as a value in an ablation or old-style edit: remove the key

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)


# ---------------------------------------------------------------- weights

def _student(shape, gen: torch.Generator) -> torch.Tensor:
    """Student's t with 5 degrees of freedom, scaled to unit variance: tails like trained weights."""
    normal = torch.randn(shape, generator=gen)
    chi2 = sum(torch.randn(shape, generator=gen) ** 2 for _ in range(5))
    return normal / torch.sqrt(chi2 / 5) * math.sqrt(3 / 5)


def _hot(n: int, gen: torch.Generator, share: float = 0.04) -> torch.Tensor:
    """n factors: mostly 1, a few (at least one) between 3 and 7."""
    factors = torch.ones(n)
    index = torch.randperm(n, generator=gen)[: max(1, round(n * share))]
    factors[index] = 3 + 4 * torch.rand(len(index), generator=gen)
    return factors


def fill(model: torch.nn.Module, seed: int, norm_zero: bool) -> None:
    """Overwrites every parameter. norm_zero: the norm multiplies by 1+w, so that w lies around 0."""
    gen = torch.Generator().manual_seed(seed)
    modules = dict(model.named_modules())
    tied = model.config.get_text_config().tie_word_embeddings
    for name, p in model.named_parameters():
        owner = modules[name.rpartition(".")[0]]
        kind = type(owner).__name__
        with torch.no_grad():
            if name.endswith("bias"):
                p.copy_(0.25 * _student(p.shape, gen) * _hot(p.numel(), gen))
            elif p.ndim == 1:  # norm weights
                centre = 0.0 if norm_zero and "vision" not in name else 1.0
                p.copy_(centre + 0.25 * torch.randn(p.shape, generator=gen) + 0.3 * (_hot(p.numel(), gen) - 1))
            elif kind == "Conv2d":
                p.copy_(0.05 * _student(p.shape, gen))
            elif "embed" in name or "wte" in name or "wpe" in name:
                std = 1 / math.sqrt(p.shape[-1]) if norm_zero else 1.0
                # Tied and loud embeddings would make every token predict itself.
                std *= 0.5 if "wpe" in name else 3 / p.shape[-1] if tied else 1.0
                p.copy_(std * _student(p.shape, gen) * _hot(p.shape[-1], gen))
            elif kind == "Conv1D":  # GPT-2 stores [K][N]
                p.copy_(_student(p.shape, gen) * _hot(p.shape[0], gen)[:, None] / math.sqrt(p.shape[0]))
            else:  # [N][K], or experts [E][N][K]
                p.copy_(_student(p.shape, gen) * _hot(p.shape[-1], gen) / math.sqrt(p.shape[-1]))


def settle(model, ids: list[int], norm_zero: bool) -> None:
    """Scales the head (or, where it is tied, the last norm) until the logits' std is LOGIT_STD."""
    config = model.config.get_text_config()
    soft = getattr(config, "final_logit_softcapping", None)
    if soft is not None:
        config.final_logit_softcapping = None
    with torch.no_grad():
        std = model(torch.tensor([ids])).logits.std().item()
    if soft is not None:
        config.final_logit_softcapping = soft
    factor = LOGIT_STD / std
    head = model.get_output_embeddings()
    with torch.no_grad():
        if head.weight.data_ptr() != model.get_input_embeddings().weight.data_ptr():
            head.weight.mul_(factor)
            if head.bias is not None:
                head.bias.mul_(factor)
            return
        for name, p in model.named_parameters():
            if name.endswith(("language_model.norm.weight", "model.norm.weight", "ln_f.weight",
                              "ln_f.bias", "final_layer_norm.weight", "final_layer_norm.bias")):
                p.copy_((1 + p) * factor - 1 if norm_zero else p * factor)


# ---------------------------------------------------------------- reference

def logits_of(model, ids: list[int]) -> np.ndarray:
    with torch.no_grad():
        out = model(torch.tensor([ids]), use_cache=False).logits[0]
    assert out.dtype == torch.float32
    return out.numpy()


def greedy(model, prompt: list[int], steps: int) -> tuple[list[int], list[float]]:
    ids, margins = list(prompt), []
    for _ in range(steps):
        row = logits_of(model, ids)[-1]
        order = np.argsort(-row, kind="stable")
        margins.append(round(float(row[order[0]] - row[order[1]]), 5))
        ids.append(int(order[0]))
    return ids[len(prompt):], margins


def random_ids(n: int, vocab: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(4, vocab, n).tolist()


def load(path: Path):
    """The checkpoint as transformers reads it, in float32 with the plain attention and experts."""
    config = AutoConfig.from_pretrained(path)
    cls = getattr(transformers, config.architectures[0])
    model, info = cls.from_pretrained(path, dtype=torch.float32, attn_implementation="eager",
                                      experts_implementation="eager", output_loading_info=True)
    missing = info["missing_keys"]
    assert not missing, f"{path.name}: transformers misses {missing}"
    return model.float().eval()


def edited(config: dict, edits: dict[str, Any]) -> dict:
    """A copy of config with dotted keys replaced, or removed where the value is DROP."""
    config = copy.deepcopy(config)
    for dotted, value in edits.items():
        *path, last = dotted.split(".")
        node = config
        for key in path:
            node = node[key]
        if value is DROP:
            node.pop(last, None)
        else:
            node[last] = value
    return config


def ablate(path: Path, edits: dict[str, Any], ids: list[int], want: np.ndarray) -> float:
    """How far the logits move, relative to their range, with the edits made to config.json."""
    with tempfile.TemporaryDirectory() as tmp:
        for f in path.glob("*.safetensors*"):
            shutil.copy(f, tmp)
        config = json.loads((path / "config.json").read_text())
        (Path(tmp) / "config.json").write_text(json.dumps(edited(config, edits)))
        got = logits_of(load(Path(tmp)), ids)
    return float(np.abs(got - want).max() / (want.max() - want.min()))


def write_json(path: Path, value: dict) -> None:
    """Indented by one level only: lists of numbers stay on one line."""
    body = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
    path.write_text("{\n" + body + "\n}\n")


def write_reference(path: Path, spec: "Spec") -> np.ndarray:
    model = load(path)
    vocab = model.config.get_text_config().vocab_size
    prompts = [random_ids(n, vocab, 1000 * spec.seed + n) for n in spec.prompts]
    entries = []
    for ids in prompts:
        out, margins = greedy(model, ids, GREEDY_STEPS)
        assert min(margins) > MIN_MARGIN, f"{path.name}: a tie in {margins}"
        assert len(set(out)) >= MIN_DISTINCT, f"{path.name}: greedy ids hardly change: {out}"
        entries.append({"prompt_ids": ids, "greedy_ids": out, "margins": margins})
    longest = max(prompts, key=len)
    want = logits_of(model, longest)
    np.save(path / "logits.npy", want)
    logits = [{"file": "logits.npy", "ids": longest}]
    if spec.short_logits:
        ids = longest[: spec.short_logits]
        np.save(path / "logits_short.npy", logits_of(model, ids))
        logits.append({"file": "logits_short.npy", "ids": ids})
    moved = []
    for edits in spec.ablations:
        by = ablate(path, edits, longest, want)
        assert by > MIN_ABLATION, f"{path.name}: {edits} moves the logits by {by:.1e} only"
        shown = {k: "(removed)" if v is DROP else v for k, v in edits.items()}
        moved.append({"edits": shown, "moved": float(f"{by:.2g}")})
    write_json(path / "reference.json", {
        "transformers": transformers.__version__, "torch": torch.__version__,
        "compute": "float32, attn_implementation=eager, no KV cache",
        "prompts": entries, "logits": logits, "ablations": moved})
    size = sum(f.stat().st_size for f in path.iterdir())
    print(f"{path.name:24} {size / 1024:6.0f} KiB  logits {want.min():6.2f} .. {want.max():5.2f}"
          f"  p(top) {torch.tensor(want).softmax(-1).amax(-1).mean():.2f}"
          f"  smallest margin {min(m for e in entries for m in e['margins']):.4f}"
          f"  moved {[m['moved'] for m in moved]}")
    return want


# ---------------------------------------------------------------- specifications

@dataclass
class Spec:
    """One directory. cls and config name the transformers classes; `base` borrows another Spec's
    weights and numbers and changes the writing only (`rewrite_config`, `rewrite_weights`)."""
    cls: str = ""
    config: dict = field(default_factory=dict)
    dtype: torch.dtype = torch.bfloat16
    seed: int = 1
    prompts: tuple = (5, 28)
    ablations: tuple = ()
    short_logits: int = 0
    shard: str = "1GB"
    stacked: bool = False           # write the in-memory names: experts stacked, newest module names
    base: str = ""
    rewrite_config: Callable[[dict], dict] | None = None
    rewrite_weights: Callable[[dict], dict] | None = None
    about: str = ""


SPECS: dict[str, Spec] = {}


def spec(name: str, **kw) -> None:
    SPECS[name] = Spec(**kw)


def old_style(*, drop=(), rename=None, theta="rope_theta", extra=None) -> Callable[[dict], dict]:
    """config.json as written before transformers 4.56/5: torch_dtype, flat rope_theta, rope_scaling
    (null for plain RoPE, "type" instead of "rope_type"), no layer_types."""
    def rewrite(config: dict) -> dict:
        c = copy.deepcopy(config)
        c["torch_dtype"] = c.pop("dtype")
        c["transformers_version"] = "4.41.0"
        c.pop("layer_types", None)
        rope = c.pop("rope_parameters", None)
        if rope is not None:
            c[theta] = rope.pop("rope_theta")
            kind = rope.pop("rope_type")
            rope.pop("partial_rotary_factor", None)
            c["rope_scaling"] = None if kind == "default" else {"type": kind, **rope}
        for key in drop:
            c.pop(key, None)
        for a, b in (rename or {}).items():
            c[b] = c.pop(a)
        return {**c, **(extra or {})}
    return rewrite


# -- llama

LLAMA = dict(vocab_size=256, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=256,
             rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2)


def llama(name: str, rope: dict | None = None, **kw) -> None:
    spec_kw = {k: kw.pop(k) for k in list(kw) if k in Spec.__dataclass_fields__}
    rope = {"rope_type": "default", "rope_theta": 10000.0, **(rope or {})}
    spec(name, cls="LlamaForCausalLM", config={**LLAMA, "rope_parameters": rope, **kw}, **spec_kw)


def with_inv_freq(head_dim: int, prefix: str, layers: int) -> Callable[[dict], dict]:
    """Old checkpoints carry a rotary buffer per layer that no reader needs."""
    def rewrite(w: dict) -> dict:
        freq = 1 / 10000 ** (torch.arange(0, head_dim, 2).float() / head_dim)
        return {**w, **{prefix.format(i): freq.clone() for i in range(layers)}}
    return rewrite


llama("llama-2", num_key_value_heads=4, head_dim=8, seed=11,
      about="Llama 2: as many key-value heads as heads, untied head")
spec("llama-2-oldcfg", base="llama-2",
     rewrite_config=old_style(drop=("head_dim", "rope_theta", "rope_scaling", "num_key_value_heads",
                                    "attention_bias", "mlp_bias", "attention_dropout", "pretraining_tp")),
     rewrite_weights=with_inv_freq(8, "model.layers.{}.self_attn.rotary_emb.inv_freq", 2),
     about="the first Llama configs: no rope_theta (10000), no num_key_value_heads (= heads); rotary_emb.inv_freq in the file")
llama("llama-3", rope={"rope_theta": 500000.0}, head_dim=8, seed=12, ablations=({"rope_parameters.rope_theta": 10000.0},),
      about="Llama 3: grouped queries, rope_theta 500000")
llama("llama-31", rope={"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                        "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
      seed=13, max_position_embeddings=512, prompts=(5, 40),
      ablations=({"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
                 {"rope_parameters.low_freq_factor": 3.9}),
      about="Llama 3.1 rope scaling (all three frequency bands are hit)")
spec("llama-31-oldcfg", base="llama-31",
     rewrite_config=lambda c: (lambda o: {**o, "rope_scaling": {"rope_type": o["rope_scaling"].pop("type"), **o["rope_scaling"]}})(
         old_style(drop=("head_dim",), extra={"head_dim": 16})(c)),
     about="the same, flat: rope_theta and rope_scaling with rope_type")
llama("llama-linear", rope={"rope_type": "linear", "factor": 4.0}, seed=14,
      ablations=({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},),
      about="linear rope scaling")
spec("llama-linear-oldcfg", base="llama-linear", rewrite_config=old_style(),
     about="the same, flat: rope_scaling {type: linear}")
llama("llama-dynamic", rope={"rope_type": "dynamic", "factor": 2.0}, seed=115, max_position_embeddings=32,
      prompts=(5, 40), short_logits=32,
      ablations=({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},),
      about="dynamic NTK: logits.npy beyond max_position_embeddings (32), logits_short.npy at it")
llama("llama-yarn", rope={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
      seed=16, prompts=(5, 40),
      ablations=({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
                 {"rope_parameters.attention_factor": 1.0}),
      about="YaRN with its defaults")
spec("llama-yarn-oldcfg", base="llama-yarn", rewrite_config=old_style(),
     about="the same, flat: rope_scaling {type: yarn}")
llama("llama-yarn-explicit", rope={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
                                   "beta_fast": 4.0, "beta_slow": 0.5, "attention_factor": 1.25, "truncate": False},
      seed=17, prompts=(5, 40),
      ablations=({"rope_parameters.beta_fast": DROP}, {"rope_parameters.beta_slow": DROP},
                 {"rope_parameters.attention_factor": DROP}, {"rope_parameters.truncate": DROP}),
      about="YaRN with beta_fast, beta_slow, attention_factor and truncate given")
llama("llama-bias", attention_bias=True, mlp_bias=True, seed=18, about="biases on every linear of attention and MLP")
llama("llama-tied", tie_word_embeddings=True, vocab_size=320, seed=219, about="tied embeddings, no lm_head in the file")
llama("llama-headdim", head_dim=24, hidden_size=48, num_attention_heads=3, num_key_value_heads=1, seed=20,
      num_hidden_layers=3, shard="40KB", about="head_dim is not hidden_size / heads; one key-value head; sharded with index")
llama("llama-f32", dtype=torch.float32, hidden_size=16, head_dim=8, seed=21, about="stored in float32")
llama("llama-f16", dtype=torch.float16, intermediate_size=256, seed=22, about="stored in float16; down_proj has K = 256")
llama("llama-k256", hidden_size=256, intermediate_size=256, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
      num_hidden_layers=1, tie_word_embeddings=True, seed=123, prompts=(5, 24),
      about="every K is 256: all k-quants apply everywhere")

# -- mistral

MISTRAL = {**LLAMA, "sliding_window": None}


def mistral(name: str, **kw) -> None:
    spec_kw = {k: kw.pop(k) for k in list(kw) if k in Spec.__dataclass_fields__}
    spec(name, cls="MistralForCausalLM",
         config={**MISTRAL, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, **kw}, **spec_kw)


mistral("mistral", seed=131, about="no window (sliding_window null)")
mistral("mistral-window", seed=32, sliding_window=8, ablations=({"sliding_window": None}, {"sliding_window": 7}),
        about="a window of 8 tokens in every layer")
spec("mistral-window-oldcfg", base="mistral-window", rewrite_config=old_style(),
     about="the same, flat")

# -- qwen2, qwen3

QWEN = dict(vocab_size=256, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-6, bos_token_id=1, eos_token_id=2,
            rope_parameters={"rope_type": "default", "rope_theta": 1000000.0})
spec("qwen2", cls="Qwen2ForCausalLM", config={**QWEN, "tie_word_embeddings": True}, seed=41,
     about="biases on q, k, v (not o); tied")
spec("qwen2-oldcfg", base="qwen2", rewrite_config=old_style(extra={"sliding_window": 8, "max_window_layers": 1}),
     about="the same, flat, with a sliding_window that use_sliding_window=false switches off")
spec("qwen2-window", cls="Qwen2ForCausalLM", seed=42,
     config={**QWEN, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2},
     ablations=({"use_sliding_window": False, "layer_types": DROP}, {"layer_types": ["sliding_attention"] * 3}),
     about="window of 8 in the layers from max_window_layers on (here the last of three), via layer_types")
spec("qwen2-window-oldcfg", base="qwen2-window", rewrite_config=old_style(),
     about="the same, flat: max_window_layers has to be read, for layer_types is not there")
spec("qwen3", cls="Qwen3ForCausalLM", seed=243, config={**QWEN, "head_dim": 16, "tie_word_embeddings": True, "num_hidden_layers": 2},
     about="norms on q and k, explicit head_dim, tied")
spec("qwen3-bias", cls="Qwen3ForCausalLM", seed=44,
     config={**QWEN, "head_dim": 16, "attention_bias": True, "num_hidden_layers": 2},
     about="attention_bias, untied")
spec("qwen3-oldcfg", base="qwen3", rewrite_config=old_style(), about="qwen3, flat")


# ---------------------------------------------------------------- making

def is_norm_zero(config: dict) -> bool:
    return config.get("model_type", "").startswith("gemma")


def save(path: Path, s: Spec) -> None:
    cls = getattr(transformers, s.cls)
    config = cls.config_class(**copy.deepcopy(s.config))
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = cls(config).float().eval()
    zero = is_norm_zero(config.to_dict())
    fill(model, s.seed, zero)
    model.tie_weights()
    vocab = config.get_text_config().vocab_size
    settle(model, random_ids(max(s.prompts), vocab, 1000 * s.seed + max(s.prompts)), zero)
    model.to(s.dtype).save_pretrained(path, max_shard_size=s.shard, save_original_format=not s.stacked)


def make(name: str) -> None:
    s = SPECS[name]
    path = HERE / name
    if path.exists():
        shutil.rmtree(path)
    root = s
    while root.base:
        root = SPECS[root.base]
    save(path, root if not s.stacked else Spec(**{**root.__dict__, "stacked": True}))
    if s.rewrite_config:
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(s.rewrite_config(config), indent=2) + "\n")
    if s.rewrite_weights:
        file = path / "model.safetensors"
        save_file(s.rewrite_weights(load_file(file)), file, metadata={"format": "pt"})
    merged = root if root is s else Spec(**{**root.__dict__, "ablations": s.ablations})
    got = write_reference(path, merged)
    if s.base and (HERE / s.base / "logits.npy").exists():
        want = np.load(HERE / s.base / "logits.npy")
        assert np.array_equal(got, want), f"{name}: differs from {s.base} by {np.abs(got - want).max()}"


def main() -> None:
    parser = argparse.ArgumentParser(description="makes the micro checkpoints; see the head of this file")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        for name, s in SPECS.items():
            print(f"{name:24} {s.about}")
        return
    unknown = [n for n in args.names if n not in SPECS]
    if unknown:
        sys.exit(f"error: no such checkpoint: {', '.join(unknown)}\nhint: make.py --list")
    names = list(args.names)
    for n in args.names:
        if SPECS[n].base and SPECS[n].base not in names:
            names.insert(0, SPECS[n].base)
    failed = []
    for name in names or SPECS:
        try:
            make(name)
        except AssertionError as e:
            failed.append(name)
            print(f"error: {e}")
    if failed:
        sys.exit(f"error: {len(failed)} checkpoints are not usable: {' '.join(failed)}\nhint: change their seed")


if __name__ == "__main__":
    main()
