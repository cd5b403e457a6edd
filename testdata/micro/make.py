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
Made with: transformers 5.17.0 (5.23.0 from "twins" on), torch 2.15.0, safetensors 0.8.0, numpy 2.4.6, tokenizers 0.23.3,
Python 3.11.7. The versions of a run stand in each reference.json.

Weights depend on the seeds below only (torch's CPU generator). The reference logits may move by a
few units in the last place of float32 between machines, for matrix libraries sum in different
orders; greedy ids do not, as every recorded margin is above MIN_MARGIN.

Each directory holds
    config.json, generation_config.json, model*.safetensors   the checkpoint
    tokenizer.json, tokenizer_config.json                     byte-level, the same for all but for BOS and EOS:
                                                              a link to one of four (TOKENIZERS)
    reference.json   {"prompts": [{"prompt_ids", "greedy_ids", "margins"}],
                      "logits": [{"file", "ids"}], versions, "ablations"}
                     greedy_ids are computed without a KV cache (the whole sequence again at each
                     step) and do not stop at an end token; margins[i] is the difference of the two
                     best logits at the step that chose greedy_ids[i]
    logits.npy       float32 [T][vocab]: the logits of every position of logits[0].ids, the
                     longest prompt; logits_short.npy where a second regime exists. A directory that
                     only writes another one's model differently refers to that one's file, after
                     its own logits were found to be equal to the last bit

"ablations" lists, for each configuration key that a variant is about, by how much the logits move
when that key is neutralised: the proof that the reference can tell a reader that ignores it.
(The two forms of GELU are the exception: they move these logits by 1e-4 of the range only.)
"""

import argparse
import copy
import dataclasses
import json
import math
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoTokenizer

HERE = Path(__file__).resolve().parent
MIN_MARGIN = 1e-4      # a greedy step closer than this means: choose another seed
MIN_ROUTING = 1e-3     # router logits of the last expert chosen and the first left out may not be closer
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
    tied = getattr(model.config.get_text_config(), "tie_word_embeddings", False) or getattr(model.config, "tie_word_embeddings", False)
    for name, p in model.named_parameters():
        owner = modules[name.rpartition(".")[0]]
        kind = type(owner).__name__
        with torch.no_grad():
            if name.endswith("moe_statics.e_score_correction_bias"):  # beside probabilities
                p.copy_(0.1 * torch.randn(p.shape, generator=gen).abs())
            elif name.endswith("A_log"):  # what a head forgets: little at each position
                p.copy_(torch.randn(p.shape, generator=gen) - 2)
            elif "act_fn.alpha" in name:  # of xIELU, in each layer another
                p.copy_(0.7 * torch.randn(p.shape, generator=gen))
            elif name.endswith("bias"):
                p.copy_(0.25 * _student(p.shape, gen) * _hot(p.numel(), gen).reshape(p.shape))
            elif name.endswith("sinks"):  # about as large as the scores beside them
                p.copy_(1.5 * torch.randn(p.shape, generator=gen))
            elif kind == "GptOssExperts":  # [E][K][N], of MXFP4's numbers, the gates well beyond their limit
                p.copy_(mxfp4_round(_student(p.shape, gen) * (3 if "gate" in name else 1) / math.sqrt(p.shape[1])))
            elif p.ndim == 1 or name.endswith(("q_norm.weight", "k_norm.weight")):  # norm weights, which may be of each head
                centre = 0.0 if norm_zero and "vision" not in name and "visual" not in name and "linear_attn.norm" not in name else 1.0
                p.copy_(centre + 0.25 * torch.randn(p.shape, generator=gen) + 0.3 * (_hot(p.numel(), gen).reshape(p.shape) - 1))
            elif kind == "Conv2d":
                p.copy_(0.05 * _student(p.shape, gen))
            elif "embed" in name or "wte" in name or "wpe" in name:
                std = 1 / math.sqrt(p.shape[-1]) if norm_zero else 1.0
                # Tied and loud embeddings would make every token predict itself.
                if "per_layer" in name:
                    tied_here, std = False, 1 / math.sqrt(model.config.get_text_config().hidden_size_per_layer_input)
                else:
                    tied_here = tied
                std *= 0.5 if "wpe" in name else 3 / p.shape[-1] if tied_here else 1.0
                p.copy_(std * _student(p.shape, gen) * _hot(p.shape[-1], gen))
            elif kind == "Conv1D":  # GPT-2 stores [K][N]
                p.copy_(_student(p.shape, gen) * _hot(p.shape[0], gen)[:, None] / math.sqrt(p.shape[0]))
            else:  # [N][K], or experts [E][N][K]
                p.copy_(_student(p.shape, gen) * _hot(p.shape[-1], gen) / math.sqrt(p.shape[-1]))
    for name, b in model.named_buffers():
        if name.endswith(("e_score_correction_bias", ".expert_bias")):
            b.copy_(0.3 * torch.randn(b.shape, generator=gen))


    for name, b in model.named_buffers():
        if name.endswith("layer_scalar"):  # of Gemma 4's layers: a number that is trained
            b.fill_(0.5 + torch.rand(1, generator=gen).item())


FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def with_mtp(layers: int, own: bool) -> Callable[[dict], dict]:
    """A module of multi-token prediction behind the last layer, which transformers does not read: a layer like the
    last one, what joins embedding and hidden state, and, with own, a table, a norm and a head."""
    def rewrite(w: dict) -> dict:
        gen, out = torch.Generator().manual_seed(77), dict(w)
        last, new = f"model.layers.{layers - 1}.", f"model.layers.{layers}."
        noisy = lambda t: (t.float() * (1 + 0.3 * torch.randn(t.shape, generator=gen))).to(t.dtype)
        for name in [n for n in w if n.startswith(last)]:
            out[new + name.removeprefix(last)] = noisy(w[name])
        d = w["model.norm.weight"].shape[0]
        out[new + "eh_proj.weight"] = (_student((d, 2 * d), gen) / math.sqrt(2 * d)).to(w["model.norm.weight"].dtype)
        more = {"enorm.weight": "model.norm.weight", "hnorm.weight": "model.norm.weight"}
        if own:
            more |= {"embed_tokens.weight": "model.embed_tokens.weight", "shared_head.norm.weight": "model.norm.weight", "shared_head.head.weight": "lm_head.weight"}
        for name, like in more.items():
            out[new + name] = noisy(w[like])
        return out
    return rewrite


def with_qwen_mtp(layer: int, prefix: str = "model.") -> Callable[[dict], dict]:
    """Qwen's module of multi-token prediction, which transformers does not read: a layer like that one, of attention,
    a norm of its own and what joins embedding and hidden state."""
    def rewrite(w: dict) -> dict:
        gen, out = torch.Generator().manual_seed(78), dict(w)
        like = f"{prefix}layers.{layer}."
        noisy = lambda t: (t.float() * (1 + 0.3 * torch.randn(t.shape, generator=gen))).to(t.dtype)
        for name in [n for n in w if n.startswith(like)]:
            out["mtp.layers.0." + name.removeprefix(like)] = noisy(w[name])
        norm = w[prefix + "norm.weight"]
        d = norm.shape[0]
        out["mtp.fc.weight"] = (_student((d, 2 * d), gen) / math.sqrt(2 * d)).to(norm.dtype)
        for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
            out[f"mtp.{name}.weight"] = noisy(norm)
        return out
    return rewrite


def mxfp4_codes(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [E][N][K/32][32] and exponents [E][N][K/32] of experts [E][K][N], nearest."""
    blocks = w.transpose(1, 2).float().reshape(w.shape[0], w.shape[2], -1, 32)
    exponent = torch.floor(torch.log2(blocks.abs().amax(-1))) - 2
    scaled = blocks / torch.exp2(exponent)[..., None]
    level = (scaled.abs()[..., None] - FP4).abs().argmin(-1)
    return level + 8 * ((scaled < 0) & (level > 0)), exponent + 127


def mxfp4_round(w: torch.Tensor) -> torch.Tensor:
    codes, exponent = mxfp4_codes(w)
    values = FP4[codes % 8] * torch.where(codes > 7, -1, 1) * torch.exp2(exponent - 127)[..., None]
    return values.reshape(w.shape[0], w.shape[2], w.shape[1]).transpose(1, 2)


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
            if name.endswith(("language_model.norm.weight", "model.norm.weight", "embedding_norm.weight", "model.norm.bias", "ln_f.weight",
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


def routing_gap(model, ids: list[int]) -> float:
    """The smallest gap, over layers and tokens, between the router's logits of the last expert
    chosen and the first left out: where it is tiny, two right programs may choose differently."""
    gaps = [math.inf]

    def look(module, _, output):
        if type(module).__name__ == "Llama4Router":
            output = output[1:]
        if type(module).__name__ == "Ernie4_5_MoeTopKRouter":
            output = (module.moe_statics(output[0].softmax(-1)).log(),)
        scores = output[0].log() if type(module).__name__ == "Gemma4TextRouter" else output[0]  # which gives probabilities
        ordered, k = scores.sort(dim=-1, descending=True).values, module.top_k if hasattr(module, "top_k") else module.config.top_k_experts
        gaps.append((ordered[:, k - 1] - ordered[:, k]).min().item())

    hooks = [m.register_forward_hook(look) for m in model.modules() if type(m).__name__.endswith(("TopKRouter", "TextRouter", "Llama4Router", "HunYuanMoEV1Gate", "KimiLinearTopkRouter"))]
    logits_of(model, ids)
    for hook in hooks:
        hook.remove()
    return min(gaps)


def random_ids(n: int, vocab: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(4, vocab, n).tolist()


def load(path: Path):
    """The checkpoint as transformers reads it, in float32 with the plain attention and experts."""
    if json.loads((path / "config.json").read_text())["model_type"] == "kimi_k2":  # whose class transformers knows by another name
        with tempfile.TemporaryDirectory() as tmp:
            shutil.copytree(path, tmp, dirs_exist_ok=True)
            config = json.loads((path / "config.json").read_text()) | {"model_type": "deepseek_v3"}
            (Path(tmp) / "config.json").write_text(json.dumps(config))
            return load(Path(tmp))
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


def write_reference(path: Path, spec: "Spec") -> None:
    model = load(path)
    vocab = model.config.get_text_config().vocab_size
    prompts = [random_ids(n, vocab, 1000 * spec.seed + n) for n in spec.prompts]
    entries = []
    for ids in prompts:
        out, margins = greedy(model, ids, GREEDY_STEPS)
        assert min(margins) > MIN_MARGIN, f"{path.name}: a tie in {margins}"
        assert len(set(out)) >= MIN_DISTINCT, f"{path.name}: greedy ids hardly change: {out}"
        entries.append({"prompt_ids": ids, "greedy_ids": out, "margins": margins})
        gap = routing_gap(model, ids + out)
        assert gap > MIN_ROUTING, f"{path.name}: two experts lie {gap:.1e} apart"
    longest = max(prompts, key=len)
    # Loaded again each time: dynamic RoPE remembers the longest sequence that a model has seen.
    want = logits_of(load(path), longest)
    np.save(path / "logits.npy", want)
    logits = [{"file": "logits.npy", "ids": longest}]
    if spec.short_logits:
        ids = longest[: spec.short_logits]
        np.save(path / "logits_short.npy", logits_of(load(path), ids))
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
        "prompts": entries, "logits": logits, "ablations": moved,
        "tokenizer": tokenizer_reference(path)})
    size = sum(f.stat().st_size for f in path.iterdir())
    print(f"{path.name:24} {size / 1024:6.0f} KiB  logits {want.min():6.2f} .. {want.max():5.2f}"
          f"  p(top) {torch.tensor(want).softmax(-1).amax(-1).mean():.2f}"
          f"  smallest margin {min(m for e in entries for m in e['margins']):.4f}"
          f"  moved {[m['moved'] for m in moved]}")


# ---------------------------------------------------------------- tokenizer

MERGES = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n")]  # Ġ is the byte-level letter of a space


def write_tokenizer(path: Path, config) -> None:
    """A byte-level BPE that fits any of these models, so that text goes in and comes out: ids 0 to 3
    are special, 4 to 259 the bytes, then four merges. Random weights say nothing with it, of course."""
    gemma = config.model_type.startswith("gemma")
    special = ["<pad>", "<eos>", "<bos>", "<image>"] if gemma else ["<unk>", "<s>", "</s>", "<|endoftext|>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = special + letters + [a + b for a, b in MERGES]
    tok = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=MERGES))
    tok.add_special_tokens(special)
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    bos, eos = special[config.bos_token_id], special[config.eos_token_id]
    adds_bos = config.model_type in ("llama", "mistral", "mixtral", "gemma2", "gemma3_text")
    if adds_bos:
        tok.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, config.bos_token_id)])
    else:
        tok.post_processor = processors.ByteLevel(trim_offsets=False)
    (path / "tokenizer.json").write_text(tok.to_str(pretty=False))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": bos, "eos_token": eos,
                "add_bos_token": adds_bos, "clean_up_tokenization_spaces": False}
    (path / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def tokenizer_reference(path: Path) -> dict:
    text = "In the thin inn, naïve 😀\n"
    tok = AutoTokenizer.from_pretrained(path)
    assert len(tok) == 264, f"{path.name}: transformers adds tokens of its own"
    return {"text": text, "ids": tok(text)["input_ids"], "ids_no_special": tok(text, add_special_tokens=False)["input_ids"]}


# ---------------------------------------------------------------- specifications

@dataclass
class Spec:
    """One directory. cls and config name the transformers classes; `base` borrows another Spec's
    weights and numbers and changes the writing only (`rewrite_config`, `rewrite_weights`)."""
    cls: str = ""
    config: dict = field(default_factory=dict)
    dtype: torch.dtype = torch.bfloat16
    seed: int = 1
    prompts: tuple = (5, 24)
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

LLAMA = dict(vocab_size=264, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
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
      seed=13, max_position_embeddings=512,
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
      prompts=(5, 36), short_logits=32,
      ablations=({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},),
      about="dynamic NTK: logits.npy beyond max_position_embeddings (32), logits_short.npy at it")
llama("llama-yarn", rope={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
      seed=16,
      ablations=({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
                 {"rope_parameters.attention_factor": 1.0}),
      about="YaRN with its defaults")
spec("llama-yarn-oldcfg", base="llama-yarn", rewrite_config=old_style(),
     about="the same, flat: rope_scaling {type: yarn}")
llama("llama-yarn-explicit", rope={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
                                   "beta_fast": 4.0, "beta_slow": 0.5, "attention_factor": 1.25, "truncate": False},
      seed=17,
      ablations=({"rope_parameters.beta_fast": DROP}, {"rope_parameters.beta_slow": DROP},
                 {"rope_parameters.attention_factor": DROP}, {"rope_parameters.truncate": DROP}),
      about="YaRN with beta_fast, beta_slow, attention_factor and truncate given")
llama("llama-bias", attention_bias=True, mlp_bias=True, seed=18, about="biases on every linear of attention and MLP")
llama("llama-tied", tie_word_embeddings=True, seed=519, about="tied embeddings, no lm_head in the file")
llama("llama-headdim", head_dim=24, hidden_size=48, num_attention_heads=3, num_key_value_heads=1, seed=20,
      shard="40KB", about="head_dim is not hidden_size / heads; one key-value head; sharded with index")
llama("llama-f32", dtype=torch.float32, hidden_size=16, head_dim=8, seed=321, about="stored in float32")
llama("llama-f16", dtype=torch.float16, intermediate_size=256, num_hidden_layers=1, seed=222, about="stored in float16; down_proj has K = 256")
llama("llama-k256", hidden_size=256, intermediate_size=256, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
      num_hidden_layers=1, tie_word_embeddings=True, seed=223, prompts=(5, 16),
      about="every K is 256: all k-quants apply everywhere")

# -- mistral

MISTRAL = {**LLAMA, "sliding_window": None}


def mistral(name: str, **kw) -> None:
    spec_kw = {k: kw.pop(k) for k in list(kw) if k in Spec.__dataclass_fields__}
    spec(name, cls="MistralForCausalLM",
         config={**MISTRAL, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, **kw}, **spec_kw)


mistral("mistral", seed=431, about="no window (sliding_window null)")
mistral("mistral-window", seed=32, sliding_window=8, ablations=({"sliding_window": None}, {"sliding_window": 7}),
        about="a window of 8 tokens in every layer")
spec("mistral-window-oldcfg", base="mistral-window", rewrite_config=old_style(),
     about="the same, flat")

# -- qwen2, qwen3

QWEN = dict(vocab_size=264, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-6, bos_token_id=1, eos_token_id=2,
            rope_parameters={"rope_type": "default", "rope_theta": 1000000.0})
spec("qwen2", cls="Qwen2ForCausalLM", config={**QWEN, "num_hidden_layers": 2, "tie_word_embeddings": True}, seed=841,
     about="biases on q, k, v (not o); tied")
spec("qwen2-oldcfg", base="qwen2", rewrite_config=old_style(extra={"sliding_window": 8, "max_window_layers": 1}),
     about="the same, flat, with a sliding_window that use_sliding_window=false switches off")
spec("qwen2-window", cls="Qwen2ForCausalLM", seed=142,
     config={**QWEN, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2},
     ablations=({"use_sliding_window": False, "layer_types": DROP}, {"layer_types": ["sliding_attention"] * 3}),
     about="window of 8 in the layers from max_window_layers on (here the last of three), via layer_types")
spec("qwen2-window-oldcfg", base="qwen2-window", rewrite_config=old_style(),
     about="the same, flat: max_window_layers has to be read, for layer_types is not there")
spec("qwen3", cls="Qwen3ForCausalLM", seed=243, config={**QWEN, "head_dim": 16, "tie_word_embeddings": True, "num_hidden_layers": 2},
     about="norms on q and k, explicit head_dim, tied")
spec("qwen3-bias", cls="Qwen3ForCausalLM", seed=144,
     config={**QWEN, "head_dim": 16, "attention_bias": True, "num_hidden_layers": 2},
     about="attention_bias, untied")
spec("qwen3-oldcfg", base="qwen3", rewrite_config=old_style(), about="qwen3, flat")


# -- mixtral, qwen3_moe

spec("mixtral", cls="MixtralForCausalLM", seed=151,
     config={**MISTRAL, "intermediate_size": 32, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2,
             "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}},
     ablations=({"num_experts_per_tok": 1},), about="4 experts, 2 used; a tensor per expert (block_sparse_moe.experts.0.w1)")
spec("mixtral-stacked", base="mixtral", stacked=True,
     about="the same with stacked experts: mlp.experts.gate_up_proj [E][2F][D], mlp.experts.down_proj [E][D][F]")
spec("mixtral-oldcfg", base="mixtral", rewrite_config=old_style(drop=("head_dim",)), about="mixtral, flat, without head_dim")

QWEN_MOE = {**QWEN, "head_dim": 8, "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}
spec("qwen3_moe", cls="Qwen3MoeForCausalLM", seed=252, config={**QWEN_MOE, "norm_topk_prob": True, "mlp_only_layers": [1]},
     ablations=({"norm_topk_prob": False},),
     about="norm_topk_prob true; mlp_only_layers: layer 1 of 3 has a plain MLP")
spec("qwen3_moe-sparse-step", cls="Qwen3MoeForCausalLM", seed=353, stacked=True,
     config={**QWEN_MOE, "norm_topk_prob": False, "decoder_sparse_step": 2, "intermediate_size": 48},
     ablations=({"norm_topk_prob": True},),
     about="norm_topk_prob false; decoder_sparse_step 2: only layer 1 of 3 has experts; stacked experts")
spec("qwen3_moe-oldcfg", base="qwen3_moe", rewrite_config=old_style(), about="qwen3_moe, flat")

# -- gpt_oss

spec("gpt_oss", cls="GptOssForCausalLM", seed=155,
     config=dict(vocab_size=264, hidden_size=32, intermediate_size=96, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
                 head_dim=12, num_local_experts=5, num_experts_per_tok=2, sliding_window=8, max_position_embeddings=256,
                 bos_token_id=1, eos_token_id=2,
                 rope_parameters={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                  "truncate": False, "original_max_position_embeddings": 64}),
     ablations=({"swiglu_limit": 100.0}, {"swiglu_alpha": 1.0}, {"num_experts_per_tok": 1}, {"layer_types": ["full_attention"] * 2},
                {"rope_parameters.truncate": True}, {"rope_parameters": {"rope_type": "default", "rope_theta": 150000.0}}),
     about="sinks, a window of 8 in the first of two layers, limited gates, biases everywhere, experts [E][K][N] whose gate and up columns take turns")


def gpt_oss_hub(config: dict) -> dict:
    """As openai/gpt-oss-20b has it."""
    c = copy.deepcopy(config)
    rope = c.pop("rope_parameters")
    c["torch_dtype"] = c.pop("dtype")
    c.pop("swiglu_alpha")
    c["rope_theta"], c["rope_scaling"] = rope.pop("rope_theta"), rope
    return {**c, "experts_per_token": c["num_experts_per_tok"], "initial_context_length": 64, "transformers_version": "4.55.0.dev0",
            "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
                "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}}


def gpt_oss_mxfp4(w: dict) -> dict:
    """The experts as blocks of codes, the even one low, and exponents."""
    out = {}
    for name, t in w.items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            codes, exponent = mxfp4_codes(t)
            assert torch.equal(mxfp4_round(t), t.float()), f"{name} is not of MXFP4's numbers"
            codes = codes.to(torch.uint8)
            out[name + "_blocks"] = (codes[..., ::2] | codes[..., 1::2] << 4).contiguous()
            out[name + "_scales"] = exponent.to(torch.uint8).contiguous()
        else:
            out[name] = t
    return out


spec("gpt_oss-mxfp4", base="gpt_oss", rewrite_config=gpt_oss_hub, rewrite_weights=gpt_oss_mxfp4,
     about="the same as the hub has it: experts in MXFP4 ([E][N][K/32][16] blocks and their scales), flat rope_theta and rope_scaling")
# -- qwen3_next, qwen3_5

HYBRID = dict(vocab_size=264, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
              max_position_embeddings=256, rms_norm_eps=1e-6, bos_token_id=1, eos_token_id=2,
              linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
              rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25})
HYBRID_MOE = dict(moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2, shared_expert_intermediate_size=24)
QWEN_VISION = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, in_channels=1, patch_size=4, spatial_merge_size=1,
                   temporal_patch_size=1, out_hidden_size=32, num_position_embeddings=4)
QWEN_IMAGES = dict(image_token_id=3, video_token_id=3, vision_start_token_id=1, vision_end_token_id=2)
MROPE = {**HYBRID["rope_parameters"], "mrope_interleaved": True, "mrope_section": [1, 1, 0]}
spec("qwen3_next", cls="Qwen3NextForCausalLM", seed=653, prompts=(5, 70), stacked=True,
     config={**HYBRID, **HYBRID_MOE, "intermediate_size": 48, "mlp_only_layers": [1]},
     ablations=({"rope_parameters.partial_rotary_factor": 1.0}, {"norm_topk_prob": False}),
     about="gated delta nets, two value heads to a key head, packed by key head; gated attention in the last layer; "
           "shared layer beside stacked experts, a plain MLP in layer 1; 70 positions")
spec("qwen3_5", cls="Qwen3_5ForCausalLM", seed=153, prompts=(5, 70),
     config={**HYBRID, "intermediate_size": 48, "num_hidden_layers": 3, "linear_num_value_heads": 6, "linear_value_head_dim": 12,
             "linear_conv_kernel_dim": 3, "tie_word_embeddings": True, "rope_parameters": MROPE,
             "layer_types": ["linear_attention", "full_attention", "linear_attention"]},
     about="qwen3_5_text: three value heads to a key head, values of 12 with keys of 8, a convolution of 3; layer_types; tied; 70 positions")
spec("qwen3_5-oldcfg", base="qwen3_5", rewrite_config=old_style(extra={
         "partial_rotary_factor": 0.25, "layer_types": ["linear_attention", "full_attention", "linear_attention"]}), about="the same, flat")
spec("qwen3_5-mm", cls="Qwen3_5ForConditionalGeneration", seed=154,
     config=dict(
         text_config={**HYBRID, "intermediate_size": 48, "linear_num_value_heads": 2,
                      "rope_parameters": MROPE, "model_type": "qwen3_5_text"},
         vision_config={**QWEN_VISION, "model_type": "qwen3_5_vision"}, **QWEN_IMAGES),
     about="multimodal qwen3_5: nested text_config, names model.language_model.*; as many value heads as key heads")
spec("qwen3_5_moe", cls="Qwen3_5MoeForCausalLM", seed=155, prompts=(5, 70),
     config={**HYBRID, **HYBRID_MOE, "num_hidden_layers": 3, "full_attention_interval": 2, "rope_parameters": MROPE},
     about="qwen3_5_moe_text: every second layer has attention, all have experts and a gated shared layer")
spec("qwen3_5_moe-mm", cls="Qwen3_5MoeForConditionalGeneration", seed=156, stacked=True,
     config=dict(text_config={**HYBRID, **HYBRID_MOE, "num_hidden_layers": 2, "full_attention_interval": 2, "rope_parameters": MROPE,
                              "model_type": "qwen3_5_moe_text"},
                 vision_config={**QWEN_VISION, "model_type": "qwen3_5_moe_vision"}, **QWEN_IMAGES),
     about="multimodal qwen3_5_moe: stacked experts")

spec("qwen3_next-mtp", cls="Qwen3NextForCausalLM", seed=656, rewrite_weights=with_qwen_mtp(1),
     config={**HYBRID, **HYBRID_MOE, "linear_num_value_heads": 6, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "moe_intermediate_size": 12, "num_experts": 3,
             "hidden_size": 20, "num_hidden_layers": 2, "full_attention_interval": 2, "rope_parameters": {**HYBRID["rope_parameters"], "partial_rotary_factor": 0.5}},
     about="experts in every layer, three value heads to a key head; a module of multi-token prediction, which no key counts")
spec("qwen3_5-mtp", cls="Qwen3_5ForCausalLM", seed=157, rewrite_weights=with_qwen_mtp(1),
     config={**HYBRID, "hidden_size": 20, "intermediate_size": 44, "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 1, "linear_num_value_heads": 6, "head_dim": 12, "tie_word_embeddings": True,
             "rope_parameters": {**MROPE, "partial_rotary_factor": 0.5}, "mtp_num_hidden_layers": 1,
             "layer_types": ["linear_attention", "full_attention", "linear_attention"]},
     about="three value heads to a key head, of as many numbers as keys; three pairs turned; a module of multi-token prediction")
spec("qwen3_5_moe-mtp", cls="Qwen3_5MoeForConditionalGeneration", seed=162, stacked=True, rewrite_weights=with_qwen_mtp(1, "model.language_model."),
     config=dict(text_config={**HYBRID, **HYBRID_MOE, "hidden_size": 20, "num_attention_heads": 2, "num_key_value_heads": 1, "num_experts": 3,
                              "num_hidden_layers": 2, "full_attention_interval": 2,
                              "rope_parameters": MROPE, "mtp_num_hidden_layers": 1, "model_type": "qwen3_5_moe_text"},
                 vision_config={**QWEN_VISION, "out_hidden_size": 20, "model_type": "qwen3_5_moe_vision"}, **QWEN_IMAGES),
     about="multimodal, stacked experts, a module of multi-token prediction beside the language model")

QWEN_VL = dict(vocab_size=264, hidden_size=24, intermediate_size=28, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
               max_position_embeddings=256, bos_token_id=1, eos_token_id=2)
spec("qwen2_5_vl", cls="Qwen2_5_VLForConditionalGeneration", seed=821,
     config=dict(text_config={**QWEN_VL, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 2, 1]}},
                 vision_config=dict(depth=1, hidden_size=16, intermediate_size=12, num_heads=2, in_channels=1, patch_size=4, spatial_merge_size=1,
                                    temporal_patch_size=1, out_hidden_size=24, fullatt_block_indexes=[0], model_type="qwen2_5_vl"), **QWEN_IMAGES),
     about="the text of a multimodal qwen2: rms_norm_eps of 1e-5 where it is absent")
spec("qwen2_5_vl-oldcfg", base="qwen2_5_vl", rewrite_config=lambda c: {
         **{k: v for k, v in c.items() if k not in ("text_config", "dtype")}, "torch_dtype": "bfloat16", "transformers_version": "4.41.0",
         **{k: v for k, v in c["text_config"].items() if k not in ("rope_parameters", "layer_types", "model_type", "dtype", "rms_norm_eps")},
         "rope_theta": 10000.0, "rope_scaling": {"type": "mrope", "mrope_section": [1, 2, 1]}},
     about="the same as published: one flat object, rope_scaling of type mrope")
spec("qwen2_vl", cls="Qwen2VLForConditionalGeneration", seed=825,
     config=dict(text_config={**QWEN_VL, "num_hidden_layers": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 2, 1]}},
                 vision_config=dict(depth=1, embed_dim=16, hidden_size=24, num_heads=2, mlp_ratio=1, in_channels=1, patch_size=4, spatial_merge_size=1,
                                    temporal_patch_size=1, model_type="qwen2_vl"), tie_word_embeddings=True, **QWEN_IMAGES),
     about="the text of a multimodal qwen2 of the class before, tied by the outer object alone")
spec("qwen3_vl", cls="Qwen3VLForConditionalGeneration", seed=823,
     config=dict(text_config={**QWEN_VL, "head_dim": 8, "tie_word_embeddings": True,
                              "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1], "mrope_interleaved": True}},
                 vision_config=dict(depth=1, hidden_size=16, intermediate_size=12, num_heads=2, in_channels=1, patch_size=4, spatial_merge_size=1,
                                    temporal_patch_size=1, out_hidden_size=24, num_position_embeddings=4, deepstack_visual_indexes=[0],
                                    model_type="qwen3_vl"), tie_word_embeddings=True, **QWEN_IMAGES),
     about="the text of a multimodal qwen3, tied")
spec("qwen3_vl_moe", cls="Qwen3VLMoeForConditionalGeneration", seed=824,
     rewrite_weights=lambda w: {n: t.transpose(1, 2).contiguous() if ".experts." in n else t for n, t in w.items()},  # as the hub has them
     config=dict(text_config={**QWEN_VL, "head_dim": 8, "tie_word_embeddings": True, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 20,
                              "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1], "mrope_interleaved": True}},
                 vision_config=dict(depth=1, hidden_size=16, intermediate_size=12, num_heads=2, in_channels=1, patch_size=4, spatial_merge_size=1,
                                    temporal_patch_size=1, out_hidden_size=24, num_position_embeddings=4, deepstack_visual_indexes=[0],
                                    model_type="qwen3_vl_moe"), tie_word_embeddings=True, **QWEN_IMAGES),
     about="the text of a multimodal qwen3 with experts, whose stacks are transposed, tied")

# -- glm4_moe

GLM = dict(vocab_size=264, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
           head_dim=16, max_position_embeddings=256, rms_norm_eps=1e-5, moe_intermediate_size=20, n_routed_experts=6, num_experts_per_tok=2,
           first_k_dense_replace=1, bos_token_id=1, eos_token_id=2,
           rope_parameters={"rope_type": "default", "rope_theta": 100000.0, "partial_rotary_factor": 0.5})
spec("glm4_moe", cls="Glm4MoeForCausalLM", seed=456, rewrite_weights=with_mtp(3, True),
     config={**GLM, "attention_bias": True, "use_qk_norm": True, "routed_scaling_factor": 1.5},
     ablations=({"routed_scaling_factor": 1.0}, {"norm_topk_prob": False}, {"rope_parameters.partial_rotary_factor": 1.0}, {"num_experts_per_tok": 1}),
     about="a dense layer, then experts by sigmoid with a bias for the choice beside a shared one; norms on q and k; a module of multi-token prediction")
spec("glm4_moe-groups", cls="Glm4MoeForCausalLM", seed=457, stacked=True, rewrite_weights=with_mtp(3, False),
     config={**GLM, "n_group": 3, "topk_group": 1, "norm_topk_prob": False, "n_shared_experts": 2, "first_k_dense_replace": 2},
     ablations=({"n_group": 1, "topk_group": 1}, {"norm_topk_prob": True}),
     about="groups, two dense layers, two shared experts in one, stacked experts; its module of multi-token prediction has no table, norm and head of its own")

# -- minimax_m2

MINIMAX = dict(vocab_size=264, hidden_size=20, intermediate_size=12, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, head_dim=8,
               max_position_embeddings=256, num_local_experts=5, num_experts_per_tok=2, bos_token_id=1, eos_token_id=2)
spec("minimax_m2", cls="MiniMaxM2ForCausalLM", seed=811,
     config={**MINIMAX, "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0, "partial_rotary_factor": 0.5}},
     ablations=({"rope_parameters.partial_rotary_factor": 1.0}, {"num_experts_per_tok": 1}),
     about="experts by sigmoid with a bias for the choice; norms of q and k over all heads; half of each head is rotated; experts named as Mixtral's")
spec("minimax_m2-oldcfg", base="minimax_m2", rewrite_config=lambda c: {**{k: v for k, v in old_style()(c).items() if k not in ("partial_rotary_factor", "rope_scaling")},
                                                                       "rotary_dim": 4, "use_qk_norm": True, "scoring_func": "sigmoid", "attn_type_list": [1, 1]},
     about="the same with rotary_dim, as published")

# -- deepseek_v2, deepseek_v3, glm4_moe_lite

LATENT = dict(vocab_size=264, hidden_size=12, intermediate_size=18, moe_intermediate_size=8, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=4, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, first_k_dense_replace=1, q_lora_rank=14,
              kv_lora_rank=18, qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=9, max_position_embeddings=256, rms_norm_eps=1e-6,
              bos_token_id=1, eos_token_id=2, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
YARN_LATENT = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "original_max_position_embeddings": 16, "beta_fast": 32.0,
               "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}
PUBLISHED = {"num_nextn_predict_layers": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1, "ep_size": 1,
             "aux_loss_alpha": 0.001, "seq_aux": True}
spec("deepseek_v2", cls="DeepseekV2ForCausalLM", seed=3971,
     config={**LATENT, "q_lora_rank": None, "n_shared_experts": 2, "routed_scaling_factor": 1.3, "topk_method": "greedy", "norm_topk_prob": False,
             "rope_parameters": {**YARN_LATENT, "mscale": 0.707, "mscale_all_dim": 0.707}},
     ablations=({"rope_parameters.mscale_all_dim": 0.3, "rope_parameters.mscale": 0.3}, {"routed_scaling_factor": 1.0}, {"rope_parameters.factor": 2.0}),
     about="DeepSeek-V2-Lite: attention over latents, queries by none; yarn that changes the scale of scores; experts by softmax")
spec("deepseek_v2-groups", cls="DeepseekV2ForCausalLM", seed=1872,
     config={**LATENT, "num_hidden_layers": 1, "first_k_dense_replace": 0, "n_routed_experts": 6, "topk_method": "group_limited_greedy", "n_group": 3,
             "topk_group": 1, "attention_bias": True},
     ablations=({"topk_method": "greedy"}, {"topk_group": 2}),
     about="DeepSeek-V2: queries by a latent, experts of the group with the best one; biases")
spec("deepseek_v3", cls="DeepseekV3ForCausalLM", seed=1973, rewrite_weights=with_mtp(2, True),
     config={**LATENT, "n_routed_experts": 6, "n_group": 3, "topk_group": 2, "routed_scaling_factor": 2.5, "num_mtp_layers": 1,
             "rope_parameters": YARN_LATENT},
     ablations=({"rope_parameters.mscale_all_dim": DROP, "rope_parameters.mscale": DROP}, {"n_group": 1, "topk_group": 1}, {"rope_interleave": False}),
     about="DeepSeek-V3 and R1: queries by a latent, yarn, experts by sigmoid in groups, a module of multi-token prediction")
spec("kimi_k2", cls="DeepseekV3ForCausalLM", seed=1874,
     config={**LATENT, "num_attention_heads": 2, "num_key_value_heads": 2, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.827, "rms_norm_eps": 1e-5,
             "num_mtp_layers": 0},
     ablations=({"rope_interleave": False}, {"routed_scaling_factor": 1.0}),
     rewrite_config=old_style(drop=("num_mtp_layers", "qk_head_dim", "head_dim", "rope_interleave"), extra=PUBLISHED | {"model_type": "kimi_k2"}),
     about="Kimi K2: one group, another eps than that of latents; flat, with the keys of the published config.json, and no module")
spec("glm4_moe_lite", cls="Glm4MoeLiteForCausalLM", seed=875, rewrite_weights=with_mtp(2, False), stacked=True,
     config={**LATENT, "num_attention_heads": 5, "num_key_value_heads": 5, "v_head_dim": 13, "routed_scaling_factor": 1.8,
             "mlp_layer_types": ["dense", "sparse"], "rms_norm_eps": 1e-5, "n_group": 1, "topk_group": 1},
     ablations=({"routed_scaling_factor": 1.0},),
     rewrite_config=lambda c: {**c, "num_nextn_predict_layers": 1},
     about="GLM-4.7-Flash: five heads whose values are wider than their keys, stacked experts, a module of multi-token prediction without a table, norm and head")

# -- kimi_linear

KIMI = dict(vocab_size=264, hidden_size=12, intermediate_size=14, moe_intermediate_size=8, num_hidden_layers=2, num_attention_heads=3,
            num_key_value_heads=3, num_local_experts=3, n_shared_experts=1, num_experts_per_tok=2, kv_lora_rank=7, qk_nope_head_dim=5,
            qk_rope_head_dim=4, v_head_dim=6, linear_num_heads=3, linear_head_dim=5, linear_conv_kernel_dim=3, max_position_embeddings=256,
            routed_scaling_factor=1.7, layer_types=["linear_attention", "full_attention"], bos_token_id=1, eos_token_id=2,
            pad_token_id=None)
spec("kimi_linear", cls="KimiLinearForCausalLM", seed=882, prompts=(5, 10), stacked=True, config=KIMI,
     ablations=({"routed_scaling_factor": 1.0}, {"moe_renormalize": False}, {"num_experts_per_token": 1}),
     about="delta nets that fade by the channel beside attention over latents without rotation; a dense layer, then experts by sigmoid; names as in memory")
spec("kimi_linear-oldcfg", base="kimi_linear", rewrite_config=lambda c: {
         **{k: v for k, v in c.items() if not k.startswith("linear_") and k not in ("layer_types", "mlp_layer_types", "qk_head_dim", "dtype")},
         "torch_dtype": "bfloat16", "transformers_version": "4.56.2", "head_dim": 72, "first_k_dense_replace": 1, "mla_use_nope": True, "moe_layer_freq": 1,
         "moe_router_activation_func": "sigmoid", "num_nextn_predict_layers": 0, "rope_scaling": None, "rope_theta": 10000.0, "use_grouped_topk": True,
         "linear_attn_config": {"full_attn_layers": [2], "head_dim": 5, "kda_layers": [1], "num_heads": 3, "short_conv_kernel_size": 3}},
     about="the same as the hub has it: linear_attn_config, which counts layers from 1; convolutions and experts apart, a dense layer as save_pretrained names it")

# -- gemma2, gemma3

GEMMA = dict(vocab_size=264, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=256, rms_norm_eps=1e-6, query_pre_attn_scalar=24,
             sliding_window=8, bos_token_id=2, eos_token_id=1, pad_token_id=0)
spec("gemma2", cls="Gemma2ForCausalLM", seed=361,
     config={**GEMMA, "attn_logit_softcapping": 4.0, "final_logit_softcapping": 6.0,
             "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
     ablations=({"attn_logit_softcapping": None}, {"final_logit_softcapping": None}, {"query_pre_attn_scalar": 16},
                {"layer_types": ["full_attention"] * 3}, {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}),
     about="soft caps on scores (4) and logits (6), window of 8 in layers 0 and 2, query_pre_attn_scalar is not head_dim")
spec("gemma2-oldcfg", base="gemma2",
     rewrite_config=old_style(drop=("tie_word_embeddings", "use_bidirectional_attention", "rope_scaling"),
                              extra={"hidden_act": "gelu_pytorch_tanh", "cache_implementation": "hybrid"}),
     about="the same, flat: no layer_types (even layers have the window), tie_word_embeddings left out (true)")

GEMMA3_ROPE = {"full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
               "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
spec("gemma3", cls="Gemma3ForCausalLM", seed=262,
     config={**GEMMA, "num_hidden_layers": 3, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
             "rope_parameters": GEMMA3_ROPE},
     ablations=({"layer_types": ["full_attention"] * 3}, {"query_pre_attn_scalar": 16},
                {"rope_parameters.full_attention": {"rope_type": "default", "rope_theta": 1000000.0}},
                {"rope_parameters.full_attention.rope_theta": 10000.0}, {"rope_parameters.sliding_attention.rope_theta": 1000000.0}),
     about="gemma3_text: local and global layers with a rope each (global: linear, factor 8), norms on q and k, four norms a layer")


def gemma3_old(config: dict, pattern: int | None) -> dict:
    """transformers 4.50: rope_theta and rope_scaling are the global layers', rope_local_base_freq the local ones'."""
    c = copy.deepcopy(config)
    rope = c.pop("rope_parameters")
    c.pop("layer_types")
    if "dtype" in c:
        c["torch_dtype"] = c.pop("dtype")
    c["rope_theta"] = rope["full_attention"].pop("rope_theta")
    c["rope_scaling"] = rope["full_attention"]
    c["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
    if pattern:
        c["sliding_window_pattern"] = pattern
    c["transformers_version"] = "4.50.0"
    return c


spec("gemma3-oldcfg", base="gemma3", rewrite_config=lambda c: gemma3_old(c, 2),
     about="the same, flat: rope_theta, rope_scaling, rope_local_base_freq, sliding_window_pattern 2")


def gemma3_hub(config: dict) -> dict:
    """As google/gemma-3-4b-it says it: text_config leaves out all that equals the class's default."""
    text = gemma3_old(config["text_config"], None)
    keep = ("hidden_size", "intermediate_size", "model_type", "num_hidden_layers", "rope_scaling", "sliding_window",
            "vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    outer = {k: v for k, v in config.items() if k not in ("dtype", "tie_word_embeddings")}
    vision = {k: v for k, v in config["vision_config"].items() if k != "dtype"}
    return {**outer, "text_config": {k: text[k] for k in keep}, "vision_config": vision,
            "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0"}


spec("gemma3-mm", cls="Gemma3ForConditionalGeneration", seed=363, stacked=True,
     config=dict(
         text_config={**GEMMA, "num_hidden_layers": 6, "query_pre_attn_scalar": 256, "intermediate_size": 32, "head_dim": 8,
                      "max_position_embeddings": 131072, "rope_parameters": GEMMA3_ROPE, "model_type": "gemma3_text"},
         vision_config=dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=8,
                            patch_size=4, model_type="siglip_vision_model"),
         mm_tokens_per_image=1, boi_token_index=1, eoi_token_index=2, image_token_index=3),
     about="multimodal gemma3: nested text_config, names model.language_model.*; a vision tower to pass through")
spec("gemma3-mm-oldcfg", base="gemma3-mm", rewrite_config=gemma3_hub,
     about="the same as the hub has it: names language_model.model.*, text_config without the keys that equal the defaults")

# -- gemma4

GEMMA4 = dict(vocab_size=264, hidden_size=32, intermediate_size=40, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
              global_head_dim=16, max_position_embeddings=256, rms_norm_eps=1e-6, sliding_window=8, bos_token_id=2, eos_token_id=1,
              pad_token_id=0, vocab_size_per_layer_input=264, hidden_size_per_layer_input=0, final_logit_softcapping=6.0)


def gemma4_layers(s: str) -> list[str]:
    return [{"s": "sliding_attention", "f": "full_attention"}[c] for c in s]


def gemma4_hub(config: dict) -> dict:
    """As google/gemma-4-*'s config.json has it: sizes of full layers as keys of their own, not per layer."""
    c = copy.deepcopy(config)
    text = c.get("text_config", c)
    layers = text.pop("per_layer_config", None) or {}
    full = next((v for v in layers.values() if v), {})
    text["global_head_dim"] = full.get("head_dim", 512)
    text["num_global_key_value_heads"] = full.get("num_key_value_heads")
    c["transformers_version"] = "5.5.0"
    return c


spec("gemma4-e", cls="Gemma4ForCausalLM", seed=711,
     config={**GEMMA4, "num_hidden_layers": 6, "layer_types": gemma4_layers("sfsssf"), "num_kv_shared_layers": 3, "use_double_wide_mlp": True,
             "num_key_value_heads": 1, "hidden_size_per_layer_input": 12},
     ablations=({"final_logit_softcapping": None}, {"rope_parameters.full_attention.partial_rotary_factor": 1.0},
                {"rope_parameters.full_attention.rope_theta": 10000.0}, {"sliding_window": 4}),
     about="Gemma 4's E models: per-layer embeddings, three layers that read keys and values of earlier ones behind wider feed-forward layers, heads of two sizes, a factor on each layer")
spec("gemma4-dense", cls="Gemma4ForCausalLM", seed=712,
     config={**GEMMA4, "num_hidden_layers": 3, "layer_types": gemma4_layers("ssf"), "attention_k_eq_v": True, "num_global_key_value_heads": 1,
             "hidden_size": 48, "num_attention_heads": 6, "intermediate_size": 72, "tie_word_embeddings": False,
             "rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 100000.0, "partial_rotary_factor": 0.5},
                                 "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}}},
     ablations=({"rope_parameters.sliding_attention.rope_theta": 100.0}, {"rope_parameters.full_attention.partial_rotary_factor": 0.25}),
     about="Gemma 4's large dense models: full layers whose values are what their keys' projection gives, with fewer key-value heads; a head of its own")
spec("gemma4-moe", cls="Gemma4ForCausalLM", seed=720, stacked=True, rewrite_config=gemma4_hub,
     config={**GEMMA4, "num_hidden_layers": 3, "layer_types": gemma4_layers("ssf"), "attention_k_eq_v": True, "num_global_key_value_heads": 1,
             "tie_word_embeddings": False, "enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 20},
     ablations=({"top_k_experts": 3},),
     about="Gemma 4's mixtures: experts beside a dense layer, each with norms of its own, a router with a norm and a factor for each expert; num_global_key_value_heads, as the hub has it")
spec("gemma4-mm", cls="Gemma4ForConditionalGeneration", seed=714, stacked=True, rewrite_config=gemma4_hub,
     config=dict(
         text_config={**GEMMA4, "num_hidden_layers": 4, "layer_types": gemma4_layers("sfsf"), "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 8,
                      "model_type": "gemma4_text"},
         vision_config=dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=8, patch_size=4,
                            pooling_kernel_size=1, position_embedding_size=16, model_type="gemma4_vision"),
         boi_token_id=500, eoi_token_id=501, image_token_id=502, video_token_id=503, boa_token_id=504, eoa_token_index=505, audio_token_id=506),
     about="multimodal gemma4: nested text_config, names model.language_model.*, global_head_dim; a vision tower to leave out")

GEMMA4_SMALL = {k: v for k, v in GEMMA4.items() if "per_layer" not in k} | dict(
    hidden_size=16, intermediate_size=20, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, head_dim=6, global_head_dim=12,
    attention_k_eq_v=True, tie_word_embeddings=False)
spec("gemma4_unified-text", cls="Gemma4UnifiedForCausalLM", seed=811, prompts=(5, 12),
     config={**GEMMA4_SMALL, "layer_types": gemma4_layers("sff"), "num_kv_shared_layers": 1},
     about="Gemma 4 12B's class alone: two full layers, one of which reads the other's keys and values")
spec("gemma4_unified", cls="Gemma4UnifiedForConditionalGeneration", seed=812, prompts=(5, 12),
     config=dict(tie_word_embeddings=False, text_config={**GEMMA4_SMALL, "layer_types": gemma4_layers("ssf"), "model_type": "gemma4_unified_text"},
                 vision_config=dict(patch_size=2, pooling_kernel_size=1, mm_embed_dim=16, mm_posemb_size=4, output_proj_dims=16,
                                    model_type="gemma4_unified_vision"),
                 boi_token_id=500, eoi_token_id=501, image_token_id=502, video_token_id=503, boa_token_id=504, eoa_token_index=505, audio_token_id=506),
     about="Gemma 4 12B: nested text_config; matrices for patches to leave out")

# -- phi3

PHI3 = dict(vocab_size=264, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, pad_token_id=2)


def phi3_factors(n: int) -> dict:
    return {"short_factor": [1.0 + 0.05 * i for i in range(n)], "long_factor": [1.1 + 0.4 * i * i for i in range(n)]}


def phi3_old(config: dict) -> dict:
    c = copy.deepcopy(config)
    rope = c["rope_parameters"]
    out = old_style()(c)
    out["original_max_position_embeddings"] = config["original_max_position_embeddings"]
    if out["rope_scaling"] is not None:
        out["rope_scaling"].pop("original_max_position_embeddings", None)
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        out["partial_rotary_factor"] = rope["partial_rotary_factor"]
    return out


spec("phi3", cls="Phi3ForCausalLM", seed=171, config={**PHI3, "max_position_embeddings": 128, "original_max_position_embeddings": 128,
     "sliding_window": 8, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
     ablations=({"sliding_window": None},), about="fused qkv_proj and gate_up_proj, window of 8")
spec("phi3-oldcfg", base="phi3", rewrite_config=phi3_old, about="the same, flat")
spec("phi3-longrope", cls="Phi3ForCausalLM", seed=72, prompts=(5, 36), short_logits=32,
     config={**PHI3, "max_position_embeddings": 128, "original_max_position_embeddings": 32,
             "rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0, **phi3_factors(8)}},
     ablations=({"rope_parameters.long_factor": [1.0] * 8}, {"max_position_embeddings": 32}),
     about="longrope: logits.npy beyond original_max_position_embeddings (32), logits_short.npy at it; the prompt of 5 stays below")
spec("phi3-longrope-oldcfg", base="phi3-longrope", rewrite_config=phi3_old,
     about="the same, flat: rope_scaling {type: longrope}")
spec("phi3-partial", cls="Phi3ForCausalLM", seed=573, prompts=(5, 36), short_logits=32,
     config={**PHI3, "max_position_embeddings": 128, "original_max_position_embeddings": 32, "num_key_value_heads": 1,
             "tie_word_embeddings": True, "rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0,
                                                              "partial_rotary_factor": 0.75, **phi3_factors(6)}},
     ablations=({"rope_parameters.long_factor": [1.0] * 6},),
     about="as Phi-4-mini: partial_rotary_factor 0.75 (12 of 16), longrope, one key-value head, tied")
spec("phi3-partial-oldcfg", base="phi3-partial", rewrite_config=phi3_old, about="the same, flat: partial_rotary_factor at the top")

# -- twins: small, and about what their configurations have beyond llama's

TWIN = dict(vocab_size=264, hidden_size=16, intermediate_size=28, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}


def twin(name: str, cls: str, drop: tuple = (), rope: dict | None = PLAIN, **kw) -> None:
    spec_kw = {k: kw.pop(k) for k in list(kw) if k in Spec.__dataclass_fields__}
    config = {k: v for k, v in TWIN.items() if k not in drop}
    config |= {"rope_parameters": rope} if rope else {}
    spec(name, cls=cls, config={**config, **kw}, **{"prompts": (5, 12), **spec_kw})


twin("seed_oss", "SeedOssForCausalLM", head_dim=10, seed=701, ablations=({"attention_bias": False},),
     about="biases on q, k, v; heads of 10 where 4 of them are wider than the model")
twin("ernie4_5", "Ernie4_5ForCausalLM", head_dim=10, num_attention_heads=3, num_key_value_heads=1, tie_word_embeddings=True, seed=1102,
     ablations=({"rope_parameters.rope_theta": 100.0},), about="interleaved rotation, one key-value head, tied")
twin("smollm3", "SmolLM3ForCausalLM", num_hidden_layers=4, tie_word_embeddings=True, seed=903, pad_token_id=2,
     ablations=({"no_rope_layers": [1, 1, 1, 1]},), about="no rotation in the fourth layer, tied")
twin("smollm3-window", "SmolLM3ForCausalLM", no_rope_layers=[0, 1], use_sliding_window=True, sliding_window=6, attention_bias=True, mlp_bias=True,
     tie_word_embeddings=False, seed=1104, pad_token_id=2, ablations=({"sliding_window": 5}, {"layer_types": ["full_attention"] * 2}),
     about="no rotation in the first layer, which has a window; biases, untied")
twin("starcoder2", "Starcoder2ForCausalLM", tie_word_embeddings=True, seed=1005, about="LayerNorms, biases everywhere, no gate, tied")
twin("stablelm", "StableLmForCausalLM", num_attention_heads=2, use_qkv_bias=True, seed=806, rope={**PLAIN, "partial_rotary_factor": 0.25},
     ablations=({"rope_parameters.partial_rotary_factor": 1.0},), about="LayerNorms with biases, rotation of 2 of 8 numbers, biases on q, k, v")
twin("stablelm-parallel", "StableLmForCausalLM", num_attention_heads=2, use_parallel_residual=True, tie_word_embeddings=True, seed=1007,
     rope={**PLAIN, "partial_rotary_factor": 0.5}, about="both branches behind one norm, tied")
twin("stablelm-norms", "StableLmForCausalLM", num_attention_heads=2, num_key_value_heads=1, use_parallel_residual=True, qk_layernorm=True, seed=1017,
     ablations=({"qk_layernorm": False},), about="StableLM 2 12B: norms of q and k with weights for each head, without biases")
FALCON = ("intermediate_size", "num_key_value_heads")
twin("falcon", "FalconForCausalLM", FALCON, ffn_hidden_size=40, seed=908, about="Falcon 7B: parallel behind one norm, one key-value head, tied")
twin("falcon-grouped", "FalconForCausalLM", FALCON, new_decoder_architecture=True, num_kv_heads=2, tie_word_embeddings=False, seed=709,
     ablations=({"num_ln_in_parallel_attn": 2, "layer_norm_epsilon": 0.5},),
     about="Falcon 40B: parallel behind two norms, q, k and v fused by group, untied")
twin("falcon-sequential", "FalconForCausalLM", FALCON, multi_query=False, parallel_attn=False, bias=True, ffn_hidden_size=40, seed=2110,
     about="Falcon RW without alibi: sequential, q, k and v fused by head, biases")
twin("qwen2_moe", "Qwen2MoeForCausalLM", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=20, shared_expert_intermediate_size=28, seed=711,
     ablations=({"num_experts_per_tok": 1}, {"qkv_bias": False}), about="4 experts, 2 used, and a shared one behind a gate; biases on q, k, v")

twin("olmo2", "Olmo2ForCausalLM", seed=821, pad_token_id=1, about="norms behind the branches alone, norms of q and k over all heads")
twin("olmo3", "Olmo3ForCausalLM", num_hidden_layers=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"], sliding_window=6, seed=722,
     rope={"full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 4.0, "original_max_position_embeddings": 16},
           "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0}},
     ablations=({"sliding_window": 5}, {"rope_parameters.full_attention": {"rope_type": "default", "rope_theta": 500000.0}}),
     about="OLMo 2 with windows of 6; yarn where there is none")
twin("exaone4", "Exaone4ForCausalLM", sliding_window=None, layer_types=["full_attention"] * 2, tie_word_embeddings=True, seed=1223,
     about="EXAONE 4 1.2B: norms behind the branches alone, norms of q and k, tied")
twin("exaone4-window", "Exaone4ForCausalLM", sliding_window=6, sliding_window_pattern=2, seed=624, ablations=({"sliding_window": 5},),
     about="EXAONE 4 32B: a window in the first layer, no rotation in the second")
twin("ministral3", "Ministral3ForCausalLM", head_dim=10, num_attention_heads=3, num_key_value_heads=1, seed=625,
     rope={"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "original_max_position_embeddings": 4, "beta_fast": 32.0, "beta_slow": 1.0,
           "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.4},
     ablations=({"rope_parameters.llama_4_scaling_beta": 0.2}, {"rope_parameters.mscale": 2.0}),
     about="yarn with both mscales, queries that grow from position 4 on; heads of 10, one of keys and values")
spec("mistral3", cls="Mistral3ForConditionalGeneration", seed=626, stacked=True, prompts=(5, 12),
     config=dict(
         text_config={**TWIN, "model_type": "ministral3", "head_dim": 4, "rope_parameters": {
             "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 8, "llama_4_scaling_beta": 0.3}},
         vision_config=dict(model_type="pixtral", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, head_dim=4,
                            image_size=8, patch_size=4), tie_word_embeddings=False, image_token_index=3),
     about="multimodal: nested text_config of type ministral3, names model.language_model.*; a vision tower to pass through")
twin("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", head_dim=6, tie_word_embeddings=True, seed=827,
     rope={"rope_type": "dynamic", "rope_theta": 100.0, "alpha": 20.0, "factor": 1.0}, ablations=({"rope_parameters.alpha": 1.0},),
     about="norms of q and k behind the rotation, a base raised by alpha, tied")
twin("apertus", "ApertusForCausalLM", seed=933, rope={"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
     "high_freq_factor": 4.0, "original_max_position_embeddings": 16}, ablations=({"hidden_act": "relu2"},),
     about="xIELU with numbers of each layer and no gate, norms of q and k, llama3's rotation")
spec("apertus-oldcfg", base="apertus", rewrite_config=old_style(), about="the same, flat")
LLAMA4 = dict(num_hidden_layers=4, head_dim=6, num_key_value_heads=1, intermediate_size=12, intermediate_size_mlp=28, num_local_experts=4)
twin("llama4", "Llama4ForCausalLM", **LLAMA4, interleave_moe_layer_step=2, num_experts_per_tok=2, attention_chunk_size=5, floor_scale=3, attn_scale=0.4, seed=944,
     no_rope_layers=[1, 0, 1, 1],
     ablations=({"attention_chunk_size": 100}, {"attn_temperature_tuning": False}, {"use_qk_norm": False}, {"num_experts_per_tok": 1}),
     about="Llama 4: runs of 5 positions where heads rotate and are normalised, temperatures where not, every second layer with experts whose input the router weighs")
spec("llama4-mm", cls="Llama4ForConditionalGeneration", seed=942, prompts=(5, 12), stacked=True,
     config=dict(text_config={**TWIN, **LLAMA4, "model_type": "llama4_text", "tie_word_embeddings": False, "rope_parameters": {
                     "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192}},
                 vision_config=dict(hidden_size=16, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, image_size=4, patch_size=2,
                                    vision_output_dim=16, projector_input_dim=16, projector_output_dim=16, model_type="llama4_vision_model")),
     about="Llama 4 Scout: nested text_config, names language_model.model.*, a run of 8192 positions; a vision tower to pass through")
twin("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", moe_num_experts=4, moe_k=2, moe_intermediate_size=12, moe_num_shared_experts=2, num_hidden_layers=3,
     tie_word_embeddings=True, seed=954, ablations=({"moe_k": 1}, {"rope_parameters.rope_theta": 100.0}),
     about="a dense layer, then experts by softmax with a bias for the choice beside shared ones; interleaved rotation, tied")
twin("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", num_experts=4, moe_topk=2, head_dim=6, seed=961, ablations=({"moe_topk": 1},),
     about="experts beside a shared layer, norms of q and k behind the rotation")
twin("granite", "GraniteForCausalLM", embedding_multiplier=3.0, residual_multiplier=0.6, attention_multiplier=0.4, logits_scaling=5.0, rms_norm_eps=1e-3,
     seed=628, ablations=({"embedding_multiplier": 6.0}, {"residual_multiplier": 0.9}, {"attention_multiplier": 0.8},
                                                    {"logits_scaling": 8.0}, {"rms_norm_eps": 0.1}),
     about="four multipliers")
twin("cohere", "CohereForCausalLM", logit_scale=0.3, seed=929, ablations=({"logit_scale": 0.5},), about="parallel behind one LayerNorm without bias, interleaved rotation, scaled logits, tied")
twin("cohere-norms", "CohereForCausalLM", logit_scale=0.3, use_qk_norm=True, seed=1230, ablations=({"use_qk_norm": False},),
     about="Command R+: norms of q and k with weights for each head")
twin("cohere2", "Cohere2ForCausalLM", num_hidden_layers=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"], sliding_window=6, logit_scale=0.25,
     num_key_value_heads=1, seed=730, ablations=({"sliding_window": 5}, {"layer_types": ["sliding_attention"] * 3}),
     about="Cohere with windows of 6, and no rotation where there is none")

# -- gptj, gpt2, gpt_neox


def with_masks(prefix: str, layers: int, positions: int, dtype: torch.dtype, extra: Callable[[int], dict] = lambda i: {}):
    """Old checkpoints carry the causal mask (and more) as buffers of each layer that no reader needs."""
    def rewrite(w: dict) -> dict:
        mask = torch.tril(torch.ones(positions, positions)).to(dtype)[None, None]
        w = dict(w)
        for i in range(layers):
            w[f"{prefix.format(i)}.bias"] = mask.clone()
            w.update({f"{prefix.format(i)}.{k}": v for k, v in extra(i).items()})
        return w
    return rewrite


spec("gptj", cls="GPTJForCausalLM", seed=581, dtype=torch.float16,
     config=dict(vocab_size=264, n_positions=64, n_embd=32, n_layer=2, n_head=2, rotary_dim=8, bos_token_id=1, eos_token_id=2),
     ablations=({"rotary_dim": 16},),
     about="parallel block with one LayerNorm, interleaved rotary on 8 of 16 dimensions, lm_head with bias")
spec("gptj-oldcfg", base="gptj",
     rewrite_config=old_style(extra={"rotary": True, "scale_attn_weights": True, "gradient_checkpointing": False}),
     rewrite_weights=with_masks("transformer.h.{}.attn", 2, 64, torch.uint8,
                                lambda i: {"masked_bias": torch.tensor(-1e9, dtype=torch.float16)}),
     about="the same with the buffers attn.bias and attn.masked_bias in the file")

GPT2 = dict(vocab_size=264, n_positions=56, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)


def gpt2_hub(w: dict) -> dict:
    return with_masks("h.{}.attn", 2, 56, torch.float32)({k.removeprefix("transformer."): v for k, v in w.items()})


spec("gpt2", cls="GPT2LMHeadModel", seed=182, dtype=torch.float16, config=GPT2,
     about="learned positions, Conv1D weights ([K][N]), fused c_attn, tied")
spec("gpt2-oldcfg", base="gpt2", rewrite_weights=gpt2_hub,
     rewrite_config=old_style(drop=("torch_dtype", "tie_word_embeddings", "n_inner", "add_cross_attention", "scale_attn_weights",
                                    "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "use_cache", "pad_token_id"),
                              extra={"n_ctx": 56}),
     about="as openai-community/gpt2: names without transformer., mask buffers, no dtype, most keys left out")
spec("gpt2-scaled", cls="GPT2LMHeadModel", seed=283, dtype=torch.float16,
     config={**GPT2, "n_layer": 3, "n_inner": 80, "scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True},
     ablations=({"scale_attn_by_inverse_layer_idx": False},),
     about="scale_attn_by_inverse_layer_idx, n_inner is not 4 n_embd")
spec("gpt2-untied", cls="GPT2LMHeadModel", seed=684, dtype=torch.float32,
     config={**GPT2, "n_embd": 16, "n_head": 2, "tie_word_embeddings": False, "scale_attn_weights": False, "activation_function": "gelu"},
     ablations=({"scale_attn_weights": True},), about="untied head, scale_attn_weights false, exact gelu, float32")

NEOX = dict(vocab_size=264, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
            max_position_embeddings=64, bos_token_id=1, eos_token_id=2)


def neox_buffers(w: dict) -> dict:
    freq = 1 / 10000 ** (torch.arange(0, 4, 2).float() / 4)
    return with_masks("gpt_neox.layers.{}.attention", 2, 64, torch.bool,
                      lambda i: {"masked_bias": torch.tensor(-1e9, dtype=torch.float16), "rotary_emb.inv_freq": freq.clone()})(w)


spec("gpt_neox", cls="GPTNeoXForCausalLM", seed=391, dtype=torch.float16, stacked=True,
     config={**NEOX, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}},
     ablations=({"use_parallel_residual": False}, {"rope_parameters.partial_rotary_factor": 1.0}),
     about="parallel residual, rotary on 4 of 16 dimensions, qkv interleaved per head; head named lm_head")
spec("gpt_neox-oldcfg", base="gpt_neox", rewrite_weights=neox_buffers,
     rewrite_config=lambda c: {k: v for k, v in old_style(theta="rotary_emb_base", extra={"rotary_pct": 0.25})(c).items()
                               if k not in ("rope_scaling", "attention_bias", "is_decoder", "pad_token_id")},
     about="as Pythia: rotary_pct, rotary_emb_base, head named embed_out, mask and rotary buffers in the file")
spec("gpt_neox-sequential", cls="GPTNeoXForCausalLM", seed=392, dtype=torch.bfloat16,
     config={**NEOX, "use_parallel_residual": False, "attention_bias": False, "hidden_act": "gelu_new",
             "rope_parameters": {"rope_type": "default", "rope_theta": 20000.0, "partial_rotary_factor": 1.0}},
     ablations=({"use_parallel_residual": True}, {"rope_parameters.rope_theta": 10000.0}),
     about="sequential residual, rotary on all dimensions, attention without biases")


# -- lfm2

LFM2 = dict(vocab_size=264, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=1, max_position_embeddings=256,
            norm_eps=1e-5, bos_token_id=1, eos_token_id=2, layer_types=["conv", "full_attention", "conv"])
spec("lfm2", cls="Lfm2ForCausalLM", seed=701,
     config={**LFM2, "intermediate_size": 70, "block_multiple_of": 8, "block_ffn_dim_multiplier": 1.1},
     ablations=({"rope_parameters.rope_theta": 100.0}, {"norm_eps": 0.1}),
     about="short convolutions of 3 positions, attention in layer 1, heads of 6; a feed-forward width of 56 that follows from 70; tied")
spec("lfm2-oldcfg", base="lfm2", rewrite_config=old_style(drop=("intermediate_size", "tie_word_embeddings"), extra={
         "block_ff_dim": 70, "full_attn_idxs": [1], "tie_embedding": True, "block_dim": 24, "conv_dim": 24, "conv_dim_out": 24,
         "block_norm_eps": 1e-5, "block_use_swiglu": True, "num_heads": 4, "use_pos_enc": True}),
     about="the same as the hub has it: block_ff_dim, full_attn_idxs, tie_embedding")
spec("lfm2-bias", cls="Lfm2ForCausalLM", seed=702,
     config={**LFM2, "intermediate_size": 56, "block_auto_adjust_ff_dim": False, "conv_bias": True, "conv_L_cache": 5,
             "num_key_value_heads": 2, "layer_types": ["full_attention", "conv", "conv"], "tie_word_embeddings": False},
     about="convolutions of 5 positions with biases, a head of its own, widths as they are written")
spec("lfm2_moe", cls="Lfm2MoeForCausalLM", seed=703,
     config={**LFM2, "intermediate_size": 40, "moe_intermediate_size": 12, "num_dense_layers": 1, "num_experts": 6, "num_experts_per_tok": 2,
             "num_key_value_heads": 2},
     ablations=({"norm_topk_prob": False}, {"use_expert_bias": False}),
     about="a first dense layer, then mixtures: a router by sigmoid with a bias for the choice, normalised; experts apart")
spec("lfm2_moe-stacked", cls="Lfm2MoeForCausalLM", seed=705, stacked=True,
     config={**LFM2, "intermediate_size": 48, "moe_intermediate_size": 16, "num_dense_layers": 0, "num_experts": 4, "num_experts_per_tok": 3,
             "use_expert_bias": False, "norm_topk_prob": False, "routed_scaling_factor": 1.5, "num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]},
     ablations=({"routed_scaling_factor": 1.0},),
     about="mixtures in all layers, stacked experts, no bias for the choice, weights as they are times 1.5")


# -- granitemoehybrid

GRANITE4 = dict(vocab_size=264, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
                rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, layer_types=["linear_attention", "full_attention", "linear_attention"],
                mamba_n_heads=6, mamba_n_groups=2, mamba_d_state=10, mamba_d_head=8, shared_intermediate_size=20, tie_word_embeddings=True,
                embedding_multiplier=1.5, residual_multiplier=0.6, attention_multiplier=0.25, logits_scaling=4.0)
spec("granitemoehybrid", cls="GraniteMoeHybridForCausalLM", seed=712,
     config={**GRANITE4, "intermediate_size": 12, "num_local_experts": 4, "num_experts_per_tok": 2},
     ablations=({"residual_multiplier": 1.0}, {"attention_multiplier": 1.0}, {"embedding_multiplier": 1.0}),
     about="state spaces of two groups beside attention without rotation, experts beside a shared layer, multipliers, tied")
spec("granitemoehybrid-oldcfg", base="granitemoehybrid", rewrite_config=old_style(drop=("mamba_d_head", "time_step_limit"), extra={
         "layer_types": ["mamba", "attention", "mamba"], "position_embedding_type": "nope", "mamba_d_head": "auto", "mamba_chunk_size": 256,
         "normalization_function": "rmsnorm", "init_method": "mup"}), about="the same as the hub has it: mamba, attention, nope")
spec("granitemoehybrid-dense", cls="GraniteMoeHybridForCausalLM", seed=731,
     config={**GRANITE4, "intermediate_size": 12, "num_local_experts": 0, "layer_types": ["full_attention"] * 3, "position_embedding_type": "rope",
             "tie_word_embeddings": False},
     ablations=({"rope_parameters.rope_theta": 100.0},),
     about="without experts and state spaces, attention with rotation")
spec("granitemoehybrid-limits", cls="GraniteMoeHybridForCausalLM", seed=751, stacked=True,
     config={**GRANITE4, "intermediate_size": 12, "num_local_experts": 3, "num_experts_per_tok": 1, "time_step_limit": (0.5, 1.0), "mamba_proj_bias": True,
             "mamba_conv_bias": False, "mamba_n_groups": 1, "mamba_d_conv": 3, "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"],
             "attention_bias": True},
     ablations=({"time_step_limit": [0.0, 100.0]},),
     about="steps between two limits, biases of projections and none of the convolution, stacked experts")


# -- nemotron_h

NEMOTRON = dict(vocab_size=264, hidden_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=256, bos_token_id=1,
                eos_token_id=2, mamba_num_heads=6, mamba_head_dim=5, n_groups=2, ssm_state_size=10, intermediate_size=36, n_routed_experts=4,
                num_experts_per_tok=2, moe_intermediate_size=12, moe_shared_expert_intermediate_size=20, routed_scaling_factor=2.5)
spec("nemotron_h", cls="NemotronHForCausalLM", seed=721,
     config={**NEMOTRON, "layers_block_type": ["linear_attention", "moe", "full_attention", "linear_attention", "moe"]},
     ablations=({"routed_scaling_factor": 1.0}, {"norm_topk_prob": False}),
     about="one mixer or one layer to a block: state spaces, attention without rotation, experts of squared relu beside a shared layer")
spec("nemotron_h-oldcfg", base="nemotron_h", rewrite_config=old_style(drop=("layers_block_type", "layer_types", "time_step_limit"), extra={
         "hybrid_override_pattern": "ME*ME", "num_hidden_layers": 5, "n_groups": 2, "rms_norm_eps": 1e-5}), about="the same as the hub has it: hybrid_override_pattern")
spec("nemotron_h-dense", cls="NemotronHForCausalLM", seed=722,
     config={**NEMOTRON, "layers_block_type": ["linear_attention", "mlp", "full_attention", "mlp"], "use_bias": True, "use_conv_bias": False,
             "mlp_bias": True, "attention_bias": True, "n_groups": 3, "conv_kernel": 3},
     about="layers of squared relu without experts, biases everywhere but in the convolution")
spec("nemotron_h-latent", cls="NemotronHForCausalLM", seed=775, stacked=True,
     config={**NEMOTRON, "layers_block_type": ["moe", "linear_attention", "full_attention", "moe"], "moe_latent_size": 12, "n_routed_experts": 8, "n_group": 2,
             "topk_group": 1, "num_experts_per_tok": 3},
     about="experts in a space of 12 numbers, one of two groups, stacked")


# ---------------------------------------------------------------- making

def is_norm_zero(config: dict) -> bool:
    return config.get("model_type", "").startswith(("gemma2", "gemma3", "qwen3_next", "qwen3_5"))


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
    write_tokenizer(path, config.get_text_config())


def make(name: str) -> None:
    s = SPECS[name]
    path = HERE / name
    if path.exists():
        shutil.rmtree(path)
    root = s
    while root.base:
        root = SPECS[root.base]
    save(path, dataclasses.replace(root, stacked=s.stacked))
    if s.rewrite_config:
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(s.rewrite_config(config), indent=2) + "\n")
    if s.rewrite_weights:
        file = path / "model.safetensors"
        save_file(s.rewrite_weights(load_file(file)), file, metadata={"format": "pt"})
    write_reference(path, root if root is s else dataclasses.replace(root, ablations=s.ablations))
    if s.base:
        share(path, HERE / s.base)


def share(path: Path, base: Path) -> None:
    """A rewritten checkpoint has the very logits of its base: checks that, and refers to them, and to its weights."""
    reference = json.loads((path / "reference.json").read_text())
    for entry in reference["logits"]:
        mine, theirs = path / entry["file"], base / entry["file"]
        assert mine.read_bytes() == theirs.read_bytes(), f"{path.name}: {mine.name} differs from {base.name}'s"
        mine.unlink()
        entry["file"] = f"../{base.name}/{theirs.name}"
    write_json(path / "reference.json", reference)
    weights, theirs = path / "model.safetensors", base / "model.safetensors"
    if weights.read_bytes() == theirs.read_bytes():  # only the configuration is another
        weights.unlink()
        weights.symlink_to(f"../{base.name}/{theirs.name}")


TOKENIZERS = ("llama-2", "kimi_linear", "gemma2", "gemma4-dense")  # whose tokenizer.json others have too


def share_tokenizers() -> None:
    for path in sorted(HERE.glob("*/tokenizer.json")):
        for name in TOKENIZERS:
            first = HERE / name / path.name
            if path.parent.name not in TOKENIZERS and not path.is_symlink() and first.exists() and path.read_bytes() == first.read_bytes():
                path.unlink()
                path.symlink_to(f"../{name}/{path.name}")


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
    share_tokenizers()
    if failed:
        sys.exit(f"error: {len(failed)} checkpoints are not usable: {' '.join(failed)}\nhint: change their seed")


if __name__ == "__main__":
    main()
