#!/usr/bin/env python3
"""Trains a small model of gpt-oss's, Qwen 3.5's or Gemma 4's architecture with transformers' class of it.

    train_tiny.py KIND TEXT.xz TOKENIZER OUT SECONDS [STEPS]

KIND is gpt_oss, qwen3_5 or gemma4. TEXT is UTF-8 with NUL between documents (of shared/text/train.txt.xz the
first half serves), TOKENIZER a folder with tokenizer.json and its two companions (shared/models/tiny-llama's, of
4096 tokens). SECONDS of wall time are spent from the first step on, fewer if STEPS are done before. OUT/KIND
becomes a Hugging Face folder in bf16, with training.json beside: the losses of text that was kept out, before
and after, of the weights as they are saved. A GPU is used where there is one. Needs torch, transformers and tokenizers.

What the classes leave open: gpt-oss's experts are kept in balance by its own auxiliary loss; transformers has no
module of multi-token prediction for Qwen 3.5 (it ignores such tensors when it loads), so one is trained here of
its layers, on the states behind the last norm and the next token, with a third of the loss's weight.
"""
import json
import lzma
import math
import os
import shutil
import sys
import time

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers.models.gpt_oss import modeling_gpt_oss as oss
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen

VOCABULARY, BOS, EOS = 4096, 0, 1
WIDTH = 512 if torch.cuda.is_available() else 128
SIZES = dict(vocab_size=VOCABULARY, hidden_size=256, bos_token_id=BOS, eos_token_id=EOS)


def layers(s):
    return [{"s": "sliding_attention", "l": "linear_attention", "f": "full_attention"}[c] for c in s]


# class, configuration, sequences in a batch, learning rate
KINDS = {
    "gpt_oss": (transformers.GptOssForCausalLM, transformers.GptOssConfig, dict(
        intermediate_size=256, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=2, head_dim=64, num_local_experts=8,
        num_experts_per_tok=2, sliding_window=128, output_router_logits=True, router_aux_loss_coef=0.02, pad_token_id=EOS), 32, 2e-3),
    "qwen3_5": (transformers.Qwen3_5ForCausalLM, transformers.Qwen3_5TextConfig, dict(
        intermediate_size=768, num_hidden_layers=8, layer_types=layers("lllflllf"), num_attention_heads=4, num_key_value_heads=2, head_dim=64,
        linear_num_key_heads=4, linear_num_value_heads=8, linear_key_head_dim=64, linear_value_head_dim=64, tie_word_embeddings=True,
        mtp_num_hidden_layers=1, rope_parameters={"rope_type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.25,
                                                  "mrope_interleaved": True, "mrope_section": [3, 3, 2]}), 32, 2e-3),
    "gemma4": (transformers.Gemma4ForCausalLM, transformers.Gemma4TextConfig, dict(
        intermediate_size=768, num_hidden_layers=8, layer_types=layers("sssfsssf"), num_kv_shared_layers=4, use_double_wide_mlp=True,
        num_attention_heads=4, num_key_value_heads=1, head_dim=64, global_head_dim=128, sliding_window=128, hidden_size_per_layer_input=64,
        vocab_size_per_layer_input=VOCABULARY, final_logit_softcapping=30.0, max_position_embeddings=32768, pad_token_id=2), 32, 2e-3),
}


class Prediction(torch.nn.Module):
    """Qwen 3.5's module of multi-token prediction: state t and token t+1 give token t+2, by the model's own head."""

    def __init__(self, config):
        super().__init__()
        norm = lambda: qwen.Qwen3_5RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.fc = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.layers = torch.nn.ModuleList([qwen.Qwen3_5DecoderLayer(config, config.layer_types.index("full_attention"))])
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = norm(), norm(), norm()
        for p in self.parameters():
            if p.dim() == 2:
                torch.nn.init.normal_(p, std=config.initializer_range)

    def forward(self, model, state, tokens):
        x = self.fc(torch.cat([self.pre_fc_norm_embedding(model.model.embed_tokens(tokens[:, 1:])), self.pre_fc_norm_hidden(state[:, :-1])], -1))
        at = torch.arange(x.shape[1], device=x.device)[None].expand(x.shape[0], -1)
        x = self.layers[0](x, position_embeddings=model.model.rotary_emb(x, at[None].expand(3, -1, -1)), attention_mask=None)
        return model.lm_head(self.norm(x))


def all_experts(self, x, router_indices=None, routing_weights=None):
    """GptOssExperts.forward without waiting for the GPU to say which experts are hit: all see every token."""
    if (shares := routing_weights).shape[1] < self.num_experts:  # older classes give all experts' shares
        shares = torch.zeros(len(x), self.num_experts, dtype=shares.dtype, device=x.device).scatter(1, router_indices, shares)
    hidden = self._apply_gate(torch.matmul(x, self.gate_up_proj) + self.gate_up_proj_bias[:, None])
    return ((torch.matmul(hidden, self.down_proj) + self.down_proj_bias[:, None]) * shares.T[..., None]).sum(0).to(x.dtype)


def read(path, tokenizer):
    """Token ids of all documents, each behind a BOS."""
    with lzma.open(path, "rt", encoding="utf-8") as f:
        documents = [d for d in f.read().split("\0") if d.strip()]
    tok = Tokenizer.from_file(os.path.join(tokenizer, "tokenizer.json"))
    ids = [i for e in tok.encode_batch(documents, add_special_tokens=False) for i in [BOS, *e.ids]]
    return torch.tensor(ids, dtype=torch.int16)


def next_loss(logits, tokens, ahead):
    return F.cross_entropy(logits[:, :-1].float().reshape(-1, VOCABULARY), tokens[:, ahead:].reshape(-1))


def losses(model, extra, x):
    """The loss of the next token, what is added to it in training, and the loss of the one after by the module."""
    if extra is None:
        out = model(input_ids=x, use_cache=False)
        balance = getattr(out, "aux_loss", None)
        return next_loss(out.logits, x, 1), 0 if balance is None else model.config.router_aux_loss_coef * balance, None
    state = model.model(input_ids=x, use_cache=False).last_hidden_state
    second = next_loss(extra(model, state, x), x, 2)
    return next_loss(model.lm_head(state), x, 1), second / 3, second


@torch.no_grad()
def held(model, extra, windows, device):
    """Mean losses of windows that start with a BOS."""
    model.eval()
    sums, n = [0.0, 0.0], 0
    for x in windows.long().split(8):
        x[:, 0] = BOS
        first, _, second = losses(model, extra, x.to(device))
        sums, n = [sums[0] + len(x) * float(first), sums[1] + (len(x) * float(second) if second is not None else 0)], n + len(x)
    model.train()
    return {"next": round(sums[0] / n, 4), **({"second": round(sums[1] / n, 4)} if extra is not None else {})}


def main():
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    kind, path, tokenizer, out, seconds = *sys.argv[1:5], float(sys.argv[5])
    most = int(sys.argv[6]) if len(sys.argv) > 6 else 1 << 30
    begun, device = time.time(), "cuda" if torch.cuda.is_available() else "cpu"
    cls, config, sizes, batch, rate = KINDS[kind]
    torch.manual_seed(15)
    torch.backends.cuda.matmul.allow_tf32 = True
    config = config(**SIZES, **sizes)
    oss.GptOssExperts.forward = all_experts
    model = cls(config).to(device)
    extra = Prediction(config).to(device) if kind == "qwen3_5" else None
    if kind == "gemma4":  # factors of layers are no parameters: any but one, which bf16 holds
        for i, layer in enumerate(model.model.layers):
            layer.layer_scalar.fill_(1 - i / 32)
    parts = [model] + ([extra] if extra is not None else [])
    params = [p for m in parts for p in m.parameters()]
    windows = read(path, tokenizer).unfold(0, WIDTH, WIDTH)
    rest = torch.arange(len(windows)) % (len(windows) // 40) != 0  # some forty windows from all over are kept out
    text, kept = windows[rest].flatten().to(device), windows[~rest]
    before = held(model, extra, kept, device)
    print(f"{kind}: {sum(p.numel() for p in params)} parameters, {len(text)} tokens, {device}, ready after {time.time() - begun:.0f} s, loss {before}", flush=True)

    opt = torch.optim.AdamW([{"params": [p for p in params if p.dim() > 1], "weight_decay": 0.1}, {"params": [p for p in params if p.dim() < 2], "weight_decay": 0}],
                            lr=rate, betas=(0.9, 0.95), fused=device == "cuda")
    at, step, start, said = torch.arange(WIDTH, device=device), 0, time.time(), time.time()
    batch = batch if device == "cuda" else 2
    while step < most and time.time() - start < seconds:
        done = max((time.time() - start) / seconds, step / most)
        for g in opt.param_groups:
            g["lr"] = rate * min(1, 0.01 + done / 0.05) * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * done)))
        x = text[torch.randint(0, len(text) - WIDTH, (batch,), device=device)[:, None] + at].long()
        x[:, 0] = BOS
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            first, more, _ = losses(model, extra, x)
        (first + more).backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        step += 1
        if time.time() - said > 10 or step in (1, most):
            said = time.time()
            print(f"{kind}: step {step}, {said - start:.0f} s, loss {float(first.detach()):.3f}", flush=True)

    with torch.no_grad():
        for p in params:
            p.copy_(p.bfloat16())  # the numbers that are saved
    after = held(model, extra, kept, device)
    model.config.dtype, model.config.use_cache = torch.bfloat16, True
    if kind == "gpt_oss":
        model.config.output_router_logits, model.config.router_aux_loss_coef = False, 0.001
    folder = os.path.join(out, kind)
    model.to(torch.bfloat16).save_pretrained(folder)
    if extra is not None:
        weights = os.path.join(folder, "model.safetensors")
        state = {f"mtp.{k}": v.to(torch.bfloat16).contiguous().cpu() for k, v in extra.state_dict().items()}
        save_file({**load_file(weights), **state}, weights, metadata={"format": "pt"})
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(os.path.join(tokenizer, name), os.path.join(folder, name))
    with open(os.path.join(folder, "training.json"), "w") as f:
        json.dump({"parameters": sum(p.numel() for p in params), "tokens_seen": step * batch * WIDTH, "steps": step, "seconds": round(time.time() - start, 1),
                   "device": torch.cuda.get_device_name() if device == "cuda" else device, "torch": torch.__version__, "transformers": transformers.__version__,
                   "held_out_loss_before": before, "held_out_loss": after}, f, indent=1)
    print(f"{kind}: saved after {time.time() - begun:.0f} s, {step} steps, loss {after}", flush=True)


if __name__ == "__main__":
    main()
