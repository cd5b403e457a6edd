#!/usr/bin/env python3
"""Quantizes a small model by shards that meet in an object store: by one, two and four, of which some are killed
(SIGKILL) at random moments, and compares the bytes with those of one process. A damaged and a missing object are
refused by the merge.

  PYTHON .ci/store.py NSTF [MODEL TEXT [flags]]     PYTHON: with moto[server], or with boto3 and AWS_ENDPOINT_URL set
"""
import os, random, signal, socket, subprocess, sys, tempfile, time

import boto3, botocore

nstf, model, text = (sys.argv[1:4] + ["testdata/micro/llama-31", "README.md"][len(sys.argv[1:4]) - 1:])[:3]
flags = sys.argv[4:] or ["--scheme", "tcq2", "--ctx", "64", "--samples", "72"]  # text of three groups
flags = [nstf, "quantize", model, *flags, "--calib", text, "--device", "cpu", "--threads", "1"]
for name, value in {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "a-secret", "AWS_REGION": "us-east-1"}.items():
    os.environ.setdefault(name, value)
tmp = tempfile.TemporaryDirectory()
os.environ["TMPDIR"] = scratch = tmp.name + "/scratch"
os.mkdir(scratch)
server = None
if "AWS_ENDPOINT_URL" not in os.environ:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{port}"
    server = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            if server.poll() is not None:
                sys.exit("moto's server does not start")
            time.sleep(0.05)
s3 = boto3.client("s3", region_name="us-east-1", config=botocore.config.Config(s3={"addressing_style": "path"}))
bucket = f"works-{os.getpid()}"
seed = int(os.environ.get("SEED", time.time_ns()))
rng = random.Random(seed)


def keys(prefix):
    return [o["Key"] for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            for o in page.get("Contents", [])]


def shard(prefix, i, n):
    return subprocess.Popen([*flags, "--shard", f"{i}/{n}", "--work", f"s3://{bucket}/{prefix}", "--lease", "2s"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def ended(p):
    said = p.communicate()[1].decode()
    assert p.returncode == 0, said


def merge(prefix, out):
    return subprocess.run([*flags, "--merge", "--work", f"s3://{bucket}/{prefix}", "--lease", "2s", "-o", out],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def whole(prefix):
    out = f"{tmp.name}/{prefix}.nstf"
    p = merge(prefix, out)
    assert p.returncode == 0, p.stderr
    with open(out, "rb") as f:
        assert f.read() == want, f"{prefix}: other bytes than one process makes"
    assert not keys(prefix), f"{prefix}: {keys(prefix)} are left"


try:
    s3.create_bucket(Bucket=bucket)
    began = time.time()
    subprocess.run([*flags, "-o", tmp.name + "/whole.nstf"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    alone = time.time() - began
    with open(tmp.name + "/whole.nstf", "rb") as f:
        want = f.read()
    for n in map(int, os.environ.get("SHARDS", "2 4").split()):
        began = time.time()
        for p in [shard(f"of{n}", i, n) for i in range(n)]:
            ended(p)
        print(f"{n} shards: {time.time() - began:.2f} s; one process: {alone:.2f} s")
        if n != 4:
            whole(f"of{n}")
    # What is damaged, and what is missing, is named, and no package is made; a shard fills both.
    tensors = sorted(k for k in keys("of4") if "attn" in k and k.endswith(".nstf") and "+" not in k)
    bad = bytearray(s3.get_object(Bucket=bucket, Key=tensors[0])["Body"].read())
    bad[5000] ^= 1
    bad[-1000] ^= 1
    s3.put_object(Bucket=bucket, Key=tensors[0], Body=bytes(bad))
    s3.delete_object(Bucket=bucket, Key=tensors[1])
    p = merge("of4", tmp.name + "/of4.nstf")
    assert p.returncode == 3 and "1 tensors are missing and 1 damaged" in p.stderr, p.stderr
    assert not os.path.exists(tmp.name + "/of4.nstf")
    ended(shard("of4", 2, 4))
    whole("of4")
    # Killed at random moments, one after the other and beside others.
    kills = int(os.environ.get("KILLS", 2))
    others = []
    for i in range(kills):
        p = shard("killed", i, 4)
        time.sleep(rng.uniform(0.05, 1.5 * alone))
        p.send_signal(signal.SIGKILL)
        p.communicate()
        if i == kills // 2:
            others.append(shard("killed", 0, 4))
    others.append(shard("killed", 1, 4))
    for p in others:
        ended(p)
    whole("killed")
    left = os.listdir(scratch)
    assert not left, f"{left} is left on this machine"
    print(f"{kills} shards killed: the bytes of one process (SEED={seed})")
except AssertionError as e:
    sys.exit(f"SEED={seed}: {e}")
finally:
    if server:
        server.kill()
        server.wait()
    tmp.cleanup()
