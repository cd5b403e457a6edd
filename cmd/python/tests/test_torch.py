"""Tests of nstf.torch, which need torch and transformers: .ci/torch."""

import copy
import gzip
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers

import nstf
import nstf.torch
import packages
from nstf._coded import Coded
from nstf._coded import decoded as decoded_in_torch

ROOT = pathlib.Path(__file__).resolve().parents[3]
MICRO = ROOT / "testdata" / "micro"
VECTORS = ROOT / "testdata" / "vectors"
SIZES = {"u8": 1, "u16": 2, "f16": 2, "bf16": 2, "f32": 4, "i32": 4, "i16": 2, "f8_e4m3": 1}


def decoded(name):
    """The numbers that a vector's maker decodes."""
    return np.frombuffer(gzip.decompress((VECTORS / (name + ".f32.gz")).read_bytes()), "<f4")


def opened(entry, raw):
    """A coded tensor of the bytes of its parts, one after the other."""
    c = Coded(entry)
    for p in entry["parts"]:
        getattr(c.w, p["name"]).copy_(torch.from_numpy(np.frombuffer(raw[: p["size"]], np.uint8).copy()))
        raw = raw[p["size"] :]
    assert not raw
    c.open()
    return c


def same(got, want, what, part=3e-7):
    """Products that are rounded in another order differ in the last bits."""
    assert got.shape == want.shape, what
    ok = (got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(got - want) <= part * np.abs(want).max())
    assert ok.all(), f"{what}: {got[~ok][:4]} for {want[~ok][:4]}"


def decodes_in_float32(c):
    """What is decoded under autocast has the same bits as without it, rows alone too."""
    some = torch.tensor([1, 0]) if len(c.shape) == 2 else None
    want, rows = c.weight(), some if some is None else c.weight(some)
    with torch.autocast("cpu", torch.bfloat16):
        got, again = c.weight(), some if some is None else c.weight(some)
        assert torch.ones(2, 2).matmul(torch.ones(2, 2)).dtype == torch.bfloat16  # it is in force again
    assert got.dtype == want.dtype == torch.float32 and torch.equal(got, want)
    if some is not None:
        assert again.dtype == torch.float32 and torch.equal(again, rows)
        # Products of two rows may be added up otherwise than those of all, by processor.
        torch.testing.assert_close(rows, want[some], rtol=0 if c.form == "dense" else 1e-6, atol=0 if c.form == "dense" else 1e-6)


GGML = json.loads((VECTORS / "index.json").read_text())


@pytest.mark.parametrize("v", GGML, ids=lambda v: v["type"])
def test_blocks_decode_as_ggml_does(v):
    raw = (VECTORS / (v["type"] + ".blocks")).read_bytes()
    part = {"name": "data", "dtype": "u8", "shape": [v["rows"], v["row_bytes"]], "size": len(raw)}
    scheme = v["type"].lower().removesuffix("_edges")
    c = opened({"name": "x", "shape": [v["rows"], v["cols"]], "scheme": scheme, "parts": [part]}, raw)
    want = decoded(v["type"]).reshape(v["rows"], v["cols"])
    same(c.weight().numpy(), want, v["type"])
    rows = torch.tensor([v["rows"] - 1, 0])
    same(c.weight(rows).numpy(), want[rows.numpy()], v["type"])
    assert c.w.bytes()["data"].numpy().tobytes() == raw


OTHERS = json.loads((VECTORS / "schemes.json").read_text())["vectors"]
TYPES = {1: ("f32", 4), 2: ("f16", 2), 3: ("bf16", 2), 6: ("i16", 2), 9: ("u8", 1)}


def parts_of(v):
    """The parts of a vector, by the page of its scheme."""
    n, k, p = *v["shape"], v["params"]
    typed = lambda name, kind, *shape: (name, kind, shape, SIZES[kind] * int(np.prod(shape)))
    if v["scheme"] == "nf4":
        blocks = -(-n * k // p["block"])
        out = [typed("codes", "u8", -(-n * k // 2)), typed("levels", "f32", 16)]
        if not p.get("nested"):
            return [*out, typed("absmax", "f32", blocks)]
        return [*out, typed("absmax", "u8", blocks), typed("nested_absmax", "f32", -(-blocks // p["nested"])), typed("nested_levels", "f32", 256), typed("offset", "f32", 1)]
    if v["scheme"] == "affine":
        groups = -(-k // p["group"])
        out = [typed("codes", "u8", n, -(-k * p["bits"] // 8)), typed("scales", TYPES[p["scale"]][0], n, groups)]
        if p.get("zero"):
            out.append(typed("zeros", TYPES[p["zero"]][0], n, groups))
        return out + ([typed("index", "i32", -(-n // p["index"]), k)] if p.get("index") else [])
    if v["scheme"] == "fp8":
        return [typed("codes", "f8_e4m3", n, k), typed("scales", TYPES[p["scale"]][0], -(-n // p["rows"]), -(-k // p["cols"]))]
    if v["scheme"] == "nvfp4":
        return [typed("data", "u8", n, k // 64 * 36), typed("scale", "f32", -(-n // p["rows"]), 1)]
    out = [typed("codes", "u16", n // 16, k // 16, 16 * p["bits"]), typed("scales", "f16", n // 16)]
    out += [typed("out", "f16", n)] if p.get("out_scales") else []
    return out + ([typed("in", "f16", k)] if p.get("in_scales") else [])


@pytest.mark.parametrize("v", OTHERS, ids=lambda v: v["name"])
def test_other_schemes_decode_as_their_makers_do(v):
    raw = (VECTORS / (v["name"] + ".parts")).read_bytes()
    parts = [dict(zip(("name", "dtype", "shape", "size"), p)) for p in parts_of(v)]
    c = opened({"name": "x", "shape": v["shape"], "scheme": v["scheme"], "params": v["params"], "parts": parts}, raw)
    want = decoded(v["name"]).reshape(v["shape"])
    same(c.weight().numpy(), want, v["name"], 1e-6 if v["scheme"] == "tcq" else 3e-7)  # sums of 128, of both sides
    x = torch.randn(3, v["shape"][1])
    torch.testing.assert_close(c.linear(x), x @ torch.from_numpy(want).T, rtol=1e-4, atol=1e-4)
    decodes_in_float32(c)
    assert b"".join(c.w.bytes()[p["name"]].numpy().tobytes() for p in parts) == raw


@pytest.mark.parametrize("scheme", ["q4_k", "tcq"])
def test_compilers_see_one_operation(scheme):
    """torch.library's own checks of nstf::decode, and a graph without breaks."""
    if scheme == "tcq":
        v = next(v for v in OTHERS if v["name"] == "tcq_3")
        parts, raw, shape = [dict(zip(("name", "dtype", "shape", "size"), p)) for p in parts_of(v)], (VECTORS / "tcq_3.parts").read_bytes(), v["shape"]
        c = opened({"name": "x", "shape": shape, "scheme": "tcq", "params": v["params"], "parts": parts}, raw)
        params = [v["params"].get(p, 0) for p in ("bits", "codebook", "rotate_in", "rotate_out", "seed")]
    else:
        raw, params = (VECTORS / "Q4_K.blocks").read_bytes(), []
        shape = [len(raw) // 144, 256]
        c = opened({"name": "x", "shape": shape, "scheme": "q4_k", "parts": [{"name": "data", "dtype": "u8", "shape": [len(raw)], "size": len(raw)}]}, raw)
    m, rows = c.factor("w"), torch.tensor([2, 0])
    for some in (None, rows):
        for dtype in (torch.float32, torch.bfloat16):
            torch.library.opcheck(torch.ops.nstf.decode.default, (m.raw("codes" if params else "data"), m.factors(), some, scheme, params, shape[1], dtype))
    compiled = torch.compile(lambda rows: 2 * c.weight(rows), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(rows), 2 * c.weight(rows))


@pytest.mark.parametrize("form, names", [("lowrank", "ab"), ("corrected", "qab"), ("shared", "cu")])
def test_factors_are_multiplied_in_float32(form, names):
    shapes = {"a": [8, 4], "b": [4, 16], "c": [3, 4], "u": [4, 8, 16], "q": [8, 16]}
    factors = []
    for name in names:
        part = {"name": "data", "dtype": "f32", "shape": shapes[name], "size": 4 * int(np.prod(shapes[name]))}
        factors.append({"name": name, "shape": shapes[name], "scheme": "f32", "parts": [part]})
    c = Coded({"name": "x", "shape": [3, 8, 16] if form == "shared" else [8, 16], "form": form, "factors": factors})
    torch.manual_seed(1)
    made = {name: torch.randn(shapes[name]) for name in names}
    for name in names:
        c.factor(name).data.copy_(made[name].view(-1).view(torch.uint8))
    c.open()
    want = torch.tensordot(made["c"], made["u"], 1) if form == "shared" else made["a"] @ made["b"] + made.get("q", 0)
    torch.testing.assert_close(c.weight(), want)
    decodes_in_float32(c)


def test_unknown_schemes_are_refused():
    with pytest.raises(NotImplementedError, match="w: scheme q9_k"):
        Coded({"name": "x", "shape": [1, 32], "scheme": "q9_k", "parts": []})
    with pytest.raises(NotImplementedError, match="x: form spiral"):
        Coded({"name": "x", "shape": [1, 32], "scheme": "factors", "form": "spiral"})


def compare(package, ids, folder, model=None):
    """How far the logits of a package in torch are from the program's, of their range; and the model."""
    (folder / "ids.json").write_text(json.dumps(ids))
    said = ["eval", package, "--token-ids", folder / "ids.json", "--dump-logits", folder / "logits.npy", "--device", "cpu"]
    nstf._program.run(said)
    want = np.load(folder / "logits.npy")
    model = model or nstf.torch.load(package, dtype=torch.float32)
    with torch.no_grad():
        got = model(torch.tensor([ids])).logits[0].numpy()
    return np.abs(got - want).max() / (want.max() - want.min()), model


# One checkpoint of every architecture, and those that lie otherwise in files.
CHECKPOINTS = sorted(p.parent.name for p in MICRO.glob("*/reference.json") if "-" not in p.parent.name)
CHECKPOINTS += ["llama-2", "llama-tied", "gpt2-untied", "mixtral-stacked", "lfm2_moe-stacked", "gemma3-mm", "gemma4-mm", "gemma4-moe", "gemma4-e", "llama4-mm"]
CHECKPOINTS += ["qwen3_5-mm", "qwen3_5_moe-mm", "falcon-grouped", "gpt_oss-mxfp4", "quant-awq-int4", "quant-bnb-nf4-double", "quant-ct-fp8", "quant-gptq-int4-actorder", "quant-fp8-block"]
CLASSLESS = {"kimi_k2"}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_logits_of_every_architecture_coded_and_factored(name, tmp_path):
    nstf.convert(MICRO / name, tmp_path / "plain.nstf")
    package = tmp_path / "plain.nstf"
    if "mxfp4" not in name and not name.startswith("quant-"):  # which have codes of their own
        package = tmp_path / "coded.nstf"
        with nstf.open(tmp_path / "plain.nstf") as p:
            made = packages.recode(p, package)
        assert len(made) >= 5
    if name in CLASSLESS:
        with pytest.raises(NotImplementedError, match=f"transformers .* has no class for the architecture {name}"):
            nstf.torch.load(package)
        return
    ids = json.loads((MICRO / name / "reference.json").read_text())["logits"][0]["ids"]
    off, model = compare(package, ids, tmp_path)
    assert off < 1e-4, f"{off:.2g} of the logits' range"
    assert nstf.torch.coded(model)
    # What torch holds is what is stored, and nothing beside it.
    held = {n for n, _ in model.named_parameters() if not n.startswith("nstf.") and "vis" not in n}
    assert not any(n.endswith(("q_proj.weight", "down_proj.weight", "gate_up_proj")) for n in held) or name.startswith(("quant", "gpt_oss"))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A model of 2.6 bits a weight."""
    out = tmp_path_factory.mktemp("packages") / "small.nstf"
    nstf.quantize(ROOT / "testdata" / "demo" / "model", out, scheme="q2_k")
    return out


def words(tokenizer, count=256):
    return tokenizer((ROOT / "testdata" / "demo" / "text.txt").read_text()[: count * 6], return_tensors="pt").input_ids[0][:count]


def test_text_is_the_programs(small):
    model = nstf.torch.load(small, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(ROOT / "testdata" / "demo" / "model")
    ids = tokenizer("Once upon a time", return_tensors="pt").input_ids
    out = model.generate(ids, max_new_tokens=12, do_sample=False)[0]
    want = nstf.generate(small, "Once upon a time", greedy=True, max_tokens=12, exact=True, device="cpu")
    assert tokenizer.decode(out[ids.shape[1] :]).strip() == want.strip()


def test_tensors(tmp_path):
    """What nstf.open gives to torch."""
    nstf.convert(MICRO / "llama-2", tmp_path / "llama.nstf")
    with nstf.open(tmp_path / "llama.nstf") as p:
        t = next(iter(p.values()))
        assert t.torch().dtype == torch.bfloat16
        assert torch.equal(t.torch(dtype=torch.float32), torch.from_numpy(np.array(t.numpy())))


def test_tensors_decoded_where_torch_is(small, tmp_path):
    """What Tensor.torch does for a GPU, on the processor: the numbers are the program's, of every form; damage is found."""
    for name in ("llama-2", "mixtral"):
        nstf.convert(MICRO / name, tmp_path / name)
        with nstf.open(tmp_path / name) as p:
            packages.recode(p, tmp_path / (name + ".coded"))
    nstf.quantize(MICRO / "llama-2", tmp_path / "tcq.nstf", scheme="tcq3", calib=ROOT / "testdata/demo/text.txt", ctx=32, samples=4, device="cpu")
    seen = set()
    for path in (tmp_path / "llama-2.coded", tmp_path / "mixtral.coded", tmp_path / "tcq.nstf", small):
        with nstf.open(path) as p:
            for t in p.values():
                if t.form == "dense" and t.scheme in ("f32", "bf16"):
                    continue
                seen.add(t.scheme if t.form == "dense" else t.form)
                got = decoded_in_torch(t._entry, t.parts(), torch.device("cpu"), None)
                assert got.dtype == torch.float32 and not got.requires_grad
                same(got.numpy(), t.numpy(), f"{path.name} {t.name}", 1e-6)
                half = decoded_in_torch(t._entry, t.parts(), torch.device("cpu"), torch.bfloat16)
                assert torch.equal(half, got.to(torch.bfloat16))
    assert seen >= {"affine", "lowrank", "corrected", "shared", "train", "tcq", "q2_k"}, seen
    raw = bytearray(small.read_bytes())
    with nstf.open(small) as p:
        t = next(t for t in p.values() if t.scheme == "q2_k")
        raw[p._data + t._entry["parts"][0]["offset"]] ^= 1
    (tmp_path / "bad.nstf").write_bytes(raw)
    with nstf.open(tmp_path / "bad.nstf") as p:
        p.verify(next(name for name in p if name != t.name))
        with pytest.raises(nstf.Error) as e:
            p.verify(t.name)
        assert e.value.code == 3 and t.name in str(e.value)


def test_half_precision(small):
    model = nstf.torch.load(small, dtype=torch.bfloat16)
    assert model(torch.tensor([[5, 6, 7]])).logits.dtype == torch.bfloat16


def test_directories_load_by_the_plug_in(small, tmp_path):
    nstf._program.run(["export", small, "--coded", "-o", f"{tmp_path}/dir/"])
    code = "import sys, nstf.torch, torch, transformers as t; m = t.AutoModel.from_pretrained(sys.argv[1], dtype=torch.float32); print(type(m).__name__, m(torch.tensor([[5, 6]])).last_hidden_state.sum().item())"
    said = subprocess.run([sys.executable, "-c", code, tmp_path / "dir"], capture_output=True, text=True, check=True).stdout.split()
    whole = nstf.torch.load(small, dtype=torch.float32)
    assert said[0] == "LlamaModel" and abs(float(said[1]) - whole.model(torch.tensor([[5, 6]])).last_hidden_state.sum().item()) < 1e-3
    config = json.loads((tmp_path / "dir" / "config.json").read_text())
    config["quantization_config"]["version"] = 2
    (tmp_path / "dir" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="version 2"):
        transformers.AutoModel.from_pretrained(tmp_path / "dir")


@pytest.mark.parametrize("scheme", ["q2_k", "lowrank", "corrected", "tcq"])
def test_gradients_are_those_of_finite_differences(scheme):
    torch.manual_seed(1)
    if scheme == "tcq":
        v = next(v for v in OTHERS if v["name"] == "tcq_3")
        parts = [dict(zip(("name", "dtype", "shape", "size"), p)) for p in parts_of(v)]
        c = opened({"name": "x", "shape": v["shape"], "scheme": "tcq", "params": v["params"], "parts": parts}, (VECTORS / "tcq_3.parts").read_bytes())
    else:
        entry, raws = {"name": "x", "shape": [6, 256]}, []
        if scheme == "q2_k":
            raw = np.frombuffer((VECTORS / "Q2_K.blocks").read_bytes()[: 6 * 84], "u1")
            entry |= {"scheme": scheme, "parts": [{"name": "data", "dtype": "u8", "shape": [6, 84], "size": raw.nbytes}]}
            raws = {"w": {"data": raw}}
        else:
            rng = np.random.default_rng(1)
            made = getattr(packages, scheme)(rng.normal(0, 1, (6, 256)), rng)
            entry |= {"scheme": "factors", "form": scheme, "factors": [], }
            raws = {}
            for short, f in made["factors"].items():
                parts = [{"name": n, "dtype": d, "shape": s, "size": len(r)} for n, d, s, r in f["parts"]]
                entry["factors"].append({"name": short, "shape": f["parts"][0][2], "scheme": f["scheme"], "params": f.get("params"), "parts": parts})
                raws[short] = {n: np.frombuffer(r, "u1") for n, _, _, r in f["parts"]}
        c = Coded(entry)
        for short, parts in raws.items():
            for n, raw in parts.items():
                getattr(c.get_submodule(short), n).copy_(torch.from_numpy(raw.copy()))
        c.open()
    c = c.double() if scheme != "tcq" else c
    params = list(c.parameters())
    for p in params:
        p.requires_grad_(True)
    x = torch.randn(4, c.shape[1], dtype=params[0].dtype, requires_grad=True)
    y = nstf.torch.recomputed(c.linear, x, [c])
    assert type(y.grad_fn).__name__ == "RecomputedBackward"
    g = torch.randn_like(y)
    y.backward(g)
    got = [t.grad for t in [x, *params]]
    want = torch.autograd.grad((c.linear(x) * g).sum(), [x, *params])
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b)
    for t, d in zip([x, *params], got):  # along its own direction
        step = 1e-3 * t.detach().abs().mean() * d / d.abs().max()
        with torch.no_grad():
            t += step
            up = (c.linear(x) * g).sum()
            t -= 2 * step
            down = (c.linear(x) * g).sum()
            t += step
        assert abs((up - down) / 2 - (d * step).sum()) < 2e-2 * (d * step).sum().abs(), scheme


def test_gradients_of_experts_are_those_without_recomputing(tmp_path):
    """Experts that transformers joins come of one stack, whose scales get their gradients once."""
    nstf.convert(MICRO / "mixtral", tmp_path / "plain.nstf")
    with nstf.open(tmp_path / "plain.nstf") as p:
        packages.recode(p, tmp_path / "coded.nstf")
    model = nstf.torch.load(tmp_path / "coded.nstf", dtype=torch.float32)
    for p in nstf.torch.scales(model):
        p.requires_grad_(True)
    joined = [(m, name, t) for m in model.modules() for name, t in m.__dict__.get("_nstf", {}).items() if len(t.sources) > 1]
    assert joined
    for module, name, target in joined:
        made = getattr(module, name)
        assert type(made.grad_fn).__name__ == "RecomputedBackward"
        of = list({id(p): p for c in target.modules() for p in c.parameters()}.values())
        g = torch.randn_like(made)
        got = torch.autograd.grad((made * g).sum(), of)
        want = torch.autograd.grad((target.make() * g).sum(), of)
        for a, b in zip(got, want):
            torch.testing.assert_close(a, b)


def loss_of(model, ids):
    with torch.no_grad():
        return float(model(ids, labels=ids).loss)


def windows(ids, length=64):
    return ids[: len(ids) // length * length].view(-1, length)


def test_adapters_learn_and_codes_stay(small):
    torch.manual_seed(0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(ROOT / "testdata" / "demo" / "model")
    text = windows(words(tokenizer))
    train, held = text[::2], text[1::2]
    model = nstf.torch.load(small, dtype=torch.float32)
    codes = copy.deepcopy({n: c.w.bytes() for n, c in nstf.torch.coded(model).items()})
    before = loss_of(model, held)
    parameters = nstf.torch.adapt(model, 4, ("q_proj", "v_proj", "down_proj"))
    assert loss_of(model, held) == before
    optimizer = torch.optim.Adam(parameters, 3e-3)
    for _ in range(4):
        optimizer.zero_grad()
        model(train, labels=train).loss.backward()
        optimizer.step()
    assert loss_of(model, held) < before - 0.01
    assert all(p.grad is None for p in nstf.torch.scales(model))
    assert all(torch.equal(b, codes[n][k]) for n, c in nstf.torch.coded(model).items() for k, b in c.w.bytes().items())


def test_refined_scales_go_back_into_a_package(small, tmp_path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(ROOT / "testdata" / "demo" / "model")
    train = windows(words(tokenizer))
    model = nstf.torch.load(small, dtype=torch.float32)
    before = loss_of(model, train)
    parameters = nstf.torch.scales(model) + [p for n, p in model.named_parameters() if "norm" in n]
    optimizer = torch.optim.Adam([{"params": [p], "lr": 3e-3 * float(p.detach().abs().mean())} for p in parameters])
    for p in parameters:
        p.requires_grad_(True)
    for _ in range(2):
        optimizer.zero_grad()
        model(train, labels=train).loss.backward()
        optimizer.step()
    out = tmp_path / "refined.nstf"
    nstf.torch.save(model, out)
    with nstf.open(out) as p, nstf.open(small) as old:
        p.verify()
        assert list(p) == list(old) and not [f for f in p.header["files"] if f["name"].startswith("nstf/")]
        for name, t in p.items():
            if t.scheme == "q2_k":
                a, b = t.parts()["data"].reshape(-1, 84), old[name].parts()["data"].reshape(-1, 84)
                assert np.array_equal(a[:, :80], b[:, :80]) and not np.array_equal(a, b)
        assert any(not np.array_equal(p[n].numpy(), old[n].numpy()) for n in p if "norm" in n)
    off, again = compare(out, train[0].tolist(), tmp_path)
    assert off < 1e-4 and loss_of(again, train) < before
    nstf.torch.save(again, tmp_path / "same.nstf")
    assert (tmp_path / "same.nstf").stat().st_size == out.stat().st_size


def test_models_of_a_hub_go_back_into_a_package(small, tmp_path, monkeypatch):
    """Names are not made paths of: what lies in the cache is loaded, and written from another folder."""
    repo = tmp_path / "hub" / "models--org--small"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("0" * 40)
    (repo / "snapshots" / ("0" * 40)).mkdir(parents=True)
    shutil.copy(small, repo / "snapshots" / ("0" * 40) / "small.nstf")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = nstf.torch.load("org/small", dtype=torch.float32)
    with torch.no_grad():
        model.model.norm.weight += 1
    monkeypatch.chdir(tmp_path)
    nstf.torch.save(model, tmp_path / "out.nstf")
    with nstf.open(tmp_path / "out.nstf") as p, nstf.open(small) as old:
        assert [n for n in p if not np.array_equal(p[n].numpy(), old[n].numpy())] == ["norm.weight"]


def test_damage_in_what_is_written_back(small, tmp_path):
    from safetensors.torch import save_file

    for tensors, what in [({"nstf.0.w.data": torch.zeros(3, dtype=torch.uint8)}, "nstf.0.w.data"), ({"nosuch": torch.zeros(3)}, "nosuch"), ({"model.norm.weight": torch.zeros(3)}, "model.norm.weight")]:
        save_file(tensors, tmp_path / "bad.safetensors")
        with pytest.raises(nstf.Error) as e:
            nstf._program.run(["dev", "replace", small, tmp_path / "bad.safetensors", "-o", tmp_path / "out.nstf"])
        assert e.value.code == 3 and what in str(e.value) and not (tmp_path / "out.nstf").exists()


def test_experts_and_heads_that_are_not_asked_for(tmp_path):
    """A base model leaves the head's codes alone."""
    nstf.convert(MICRO / "llama-2", tmp_path / "plain.nstf")
    with nstf.open(tmp_path / "plain.nstf") as p:
        packages.recode(p, tmp_path / "coded.nstf")
    base = nstf.torch.load(tmp_path / "coded.nstf", transformers.AutoModel, dtype=torch.float32)
    assert type(base).__name__ == "LlamaModel" and base(torch.tensor([[1, 2]])).last_hidden_state.shape[:2] == (1, 2)


def test_kernels_are_tried_again(monkeypatch):
    """A kernel that could not be made is said once and tried again a while later; one that could is kept."""
    from nstf import _decode, _kernels

    class Device:
        tried, works = 0, False

        def kernel(self, scheme, params, kind):
            self.tried += 1
            if not self.works:
                raise OSError("the disk is full")
            return _kernels.Kernel(None, 32, b"table", 1, 256, 144)

    device, clock = Device(), [1000.0]
    for name in ("found", "failed"):
        monkeypatch.setattr(_decode, name, {})
    monkeypatch.setattr(_decode, "devices", {0: device})
    monkeypatch.setattr(_decode.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(_decode.torch, "device", lambda *_: "cpu")
    _decode.say.cache_clear()
    with pytest.warns(UserWarning, match="q4_k by torch's operations: the disk is full") as said:
        for _ in range(3):
            assert _decode.kernel_of(0, "q4_k", (), "f32") is None
        clock[0] += _decode.AGAIN
        assert _decode.kernel_of(0, "q4_k", (), "f32") is None
    assert len(said) == 1 and device.tried == 2
    device.works = True
    clock[0] += _decode.AGAIN
    for _ in range(2):
        kernel, table = _decode.kernel_of(0, "q4_k", (), "f32")
        assert bytes(table.numpy()) == kernel.table == b"table"
    assert device.tried == 3
