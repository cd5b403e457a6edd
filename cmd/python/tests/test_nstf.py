"""Tests of the installed module, against checkpoints of testdata/ and the program that came with it."""

import json
import pathlib
import subprocess
import sys
import urllib.request

import numpy as np
import pytest

import nstf

ROOT = pathlib.Path(__file__).resolve().parents[3]
MICRO = ROOT / "testdata" / "micro"
DEMO = ROOT / "testdata" / "demo" / "model"
TEXT = ROOT / "testdata" / "demo" / "text.txt"


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    out = tmp_path_factory.mktemp("packages") / "llama.nstf"
    nstf.convert(MICRO / "llama-2", out)
    return out


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("packages") / "demo.nstf"
    nstf.quantize(DEMO, out, scheme="q4_k")
    return out


def stored(folder):
    """The tensors of a safetensors file, by this test's own reader."""
    raw = (folder / "model.safetensors").read_bytes()
    n = int.from_bytes(raw[:8], "little")
    out = {}
    for name, t in json.loads(raw[8 : 8 + n]).items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            assert t["dtype"] == "BF16"
            out[name] = (np.frombuffer(raw[8 + n + a : 8 + n + b], "<u2").astype("<u4") << 16).view("<f4").reshape(t["shape"])
    return out


def test_tensors_are_those_of_the_checkpoint(llama):
    want = stored(MICRO / "llama-2")
    with nstf.open(llama) as p:
        assert len(p) == len(want) and p.graph["blocks"]
        sums = sorted(float(np.abs(t.numpy()).sum()) for t in p.values())
        assert np.allclose(sums, sorted(float(np.abs(w).sum()) for w in want.values()), rtol=1e-6)
        name = next(n for n in p if "embed" in n)
        assert np.array_equal(p[name].numpy(), want["model.embed_tokens.weight"])
        assert np.array_equal(p.decode(name)[0], want["model.embed_tokens.weight"])


def test_floats_are_views(tmp_path):
    out = tmp_path / "f.nstf"
    nstf.convert(MICRO / "llama-f32", out)
    with nstf.open(out) as p:
        a = next(iter(p.values())).numpy()
        assert a.dtype == np.float32 and not a.flags.writeable and not a.flags.owndata
        with pytest.raises(BufferError):
            p.close()


def test_codes_are_decoded_as_the_runner_reads_them(demo):
    with nstf.open(demo) as p:
        coded = [t for t in p.values() if t.scheme == "q4_k"]
        assert coded
        arrays = p.decode(*[t.name for t in coded])
        for t, a in zip(coded, arrays):
            assert a.shape == t.shape and a.dtype == np.float32 and np.isfinite(a).all()
            raw = t.parts()
            assert sum(r.nbytes for r in raw.values()) == t.nbytes
            # A super-block of q4_k has 256 weights in 144 bytes: two float16 scales, 12 bytes of sub-scales, codes.
            (blocks,) = raw.values()
            block = blocks[:144]
            d, dmin = (float(block[i : i + 2].view("<f2")[0]) for i in (0, 2))
            s = block[4:16]
            scale, least = d * (int(s[0]) & 63), dmin * (int(s[4]) & 63)
            first = [scale * (int(b) & 15) - least for b in block[16:48]]
            assert np.allclose(a.reshape(-1)[:32], first, rtol=1e-5, atol=1e-7)


def test_a_disk_takes_what_shared_memory_has_no_room_for(demo, monkeypatch):
    from nstf import _package

    assert _package.memory(1 << 62) is None
    with nstf.open(demo) as p:
        names = [name for name, t in p.items() if t.scheme == "q4_k"][:2]
        want = p.decode(*names)
        monkeypatch.setattr(_package, "memory", lambda size: None)
        for a, b in zip(want, p.decode(*names), strict=True):
            np.testing.assert_array_equal(a, b)
        assert want[0].flags.writeable  # torch takes it as it is


def test_damage_is_named(demo, tmp_path):
    raw = bytearray(demo.read_bytes())
    with nstf.open(demo) as p:
        t = next(t for t in p.values() if t.scheme == "q4_k")
        at = p._data + t._entry["parts"][0]["offset"]
    raw[at] ^= 1
    bad = tmp_path / "bad.nstf"
    bad.write_bytes(raw)
    with nstf.open(bad) as p, pytest.raises(nstf.Error) as e:
        p[t.name].numpy()
    assert e.value.code == 3 and t.name in str(e.value)
    with nstf.open(bad) as p, pytest.raises(nstf.Error):
        p.verify()
    for cut in (b"", raw[:40], raw[:200], b"GGUF" + bytes(100), bytes(raw[:16]) + b"\xff" * 8 + bytes(raw[24:])):
        bad.write_bytes(cut)
        with pytest.raises(ValueError):
            nstf.open(bad)


def test_missing_names():
    with pytest.raises(nstf.Error) as e:
        nstf.convert("/nosuch", "/tmp/never.nstf")
    assert e.value.code == 3 and "/nosuch" in str(e.value)
    with pytest.raises(nstf.Error) as e:
        nstf.quantize(DEMO, "/tmp/never.nstf", scheme="q9_k")
    assert e.value.code == 2


def test_text_and_measures(demo):
    a = nstf.generate(demo, "Once upon a time", greedy=True, max_tokens=8, device="cpu")
    assert a.strip() and a == nstf.generate(demo, "Once upon a time", greedy=True, max_tokens=8, device="cpu")
    said = []
    r = nstf.evaluate(demo, TEXT, ref=DEMO, max_tokens=256, ctx=128, device="cpu", progress=said.append)
    assert 1 < r["perplexity"]["value"] < 200 if isinstance(r["perplexity"], dict) else 1 < r["perplexity"] < 200
    assert nstf.version()["version"] and nstf.inspect(demo)["kind"] == "nstf"


def test_server(demo):
    with nstf.serve(demo, device="cpu") as s:
        body = json.dumps({"prompt": "Once", "max_tokens": 3, "temperature": 0}).encode()
        r = urllib.request.Request(s.url + "/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(r) as answer:
            assert json.load(answer)["choices"][0]["text"]
    assert s.process.poll() is not None
    with pytest.raises(nstf.Error):
        nstf.serve("/nosuch")


def test_import_is_quick():
    code = "import time; t = time.process_time(); import nstf, sys; print(time.process_time() - t, 'torch' in sys.modules)"
    best = min(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() for _ in range(5))
    assert best[1] == "False" and float(best[0]) < 0.3


def test_program_by_both_names():
    for command in ([nstf.program(), "--version"], [sys.executable, "-m", "nstf", "--version"]):
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.startswith("nstf")


def test_tensors_that_pass_through(tmp_path):
    nstf.convert(MICRO / "gpt_neox-oldcfg", tmp_path / "p.nstf")
    with nstf.open(tmp_path / "p.nstf") as p:
        name = next(n for n in p if n.endswith("attention.bias"))
        assert set(np.unique(p.decode(name)[0])) <= {0.0, 1.0}
