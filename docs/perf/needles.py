"""Needles of long-llama under a kind of keys and values: nstf, SHARED, kind, length, cases."""
import json, subprocess, sys, tempfile, os
import numpy as np
nstf, shared, kind, length, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
folder = shared + "/models/long-llama"
needles = json.load(open(folder + "/reference/needles.json"))
prompts = np.load(folder + "/reference/needles.npy")
right = done = 0
with tempfile.TemporaryDirectory() as tmp:
    for i, case in enumerate(needles["cases"]):
        if case["length"] != length or done == count:
            continue
        answer = case["answer_ids"]
        ids = [int(x) for x in prompts[needles["offsets"][i]:needles["offsets"][i + 1]]] + answer
        json.dump(ids, open(tmp + "/ids.json", "w"))
        subprocess.run([nstf, "eval", folder, "--token-ids", tmp + "/ids.json", "--dump-logits", tmp + "/l.npy", "--force", "--exact", "--kv", kind, "--device", "cpu"], check=True, capture_output=True)
        logits = np.load(tmp + "/l.npy", mmap_mode="r")
        first = len(ids) - len(answer)
        right += all(int(np.argmax(logits[first + j - 1])) == a for j, a in enumerate(answer))
        done += 1
print(json.dumps({"needles": length, "kv": kind, "cases": done, "right": right}))
