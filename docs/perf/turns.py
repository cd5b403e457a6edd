"""Times the first token of a conversation's first and second turn, and of the second once more behind kill -9 and a new start.

    python3 docs/perf/turns.py NSTF MODEL FOLDER [PORT]

FOLDER is emptied: it is the server's --cache-disk. The first turn has 4,000 tokens; the second has those, 32 of an answer
and 30 more. Prints one line of JSON. It needs nothing but Python."""

import json, os, random, shutil, subprocess, sys, time, urllib.request

nstf, model, folder = sys.argv[1:4]
address = "127.0.0.1:" + (sys.argv[4] if len(sys.argv) > 4 else "18431")


def start():
    p = subprocess.Popen([nstf, "serve", model, "--listen", address, "--parallel", "2", "-c", "8192", "--cache-disk", folder], stderr=subprocess.PIPE, text=True)
    for line in p.stderr:
        if line.startswith("listening"):
            ask([11] * 50, 4)
            return p
    sys.exit("the server did not start")


def ask(ids, n):
    body = {"prompt": ids, "max_tokens": n, "stream": True, "temperature": 0, "ignore_eos": True, "stream_options": {"include_usage": True}}
    began, first, text, cached = time.time(), None, "", 0
    for line in urllib.request.urlopen(urllib.request.Request(f"http://{address}/v1/completions", json.dumps(body).encode())):
        if line.startswith(b"data: {"):
            v = json.loads(line[6:])
            if v["choices"]:
                first = first or time.time() - began
                text += v["choices"][0]["text"]
            if v.get("usage"):
                cached = v["usage"]["prompt_tokens_details"]["cached_tokens"]
    return first, text, cached


shutil.rmtree(folder, ignore_errors=True)
random.seed(1)
ids = [random.randrange(10, 260) for _ in range(4062)]
server = start()
one, two = ask(ids[:4000], 32), ask(ids, 32)
time.sleep(1.5)  # what is kept is written behind the answer
server.kill()
server.wait()
server = start()
again = ask(ids, 32)
server.terminate()
server.wait()
sizes = [os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder)]
print(json.dumps({"model": os.path.basename(model), "first_s": round(one[0], 4), "second_turn_s": round(two[0], 4), "ratio": round(two[0] / one[0], 4), "cached": two[2],
                  "after_kill_s": round(again[0], 4), "after_kill_ratio": round(again[0] / one[0], 4), "after_kill_cached": again[2], "same_text": two[1] == again[1],
                  "disk_bytes": sum(sizes), "files": len(sizes)}))
