"""The load of .ci/endure: python3 .ci/endure.py NSTF MODEL FOLDER MINUTES PAUSE. It needs nothing but Python."""

import collections
import http.client
import json
import random
import re
import signal
import subprocess
import sys
import threading
import time

USERS = 16
counts = collections.Counter()
wrong = []
lock = threading.Lock()


class Server:
    """The program that is tried, and what it writes."""

    def __init__(self, nstf, model, folder):
        self.args = [nstf, "serve", model, "--listen", "127.0.0.1:0", "--device", "cpu", "--parallel", "4", "--ctx", "512", "--pprof",
                     "--cache-disk", folder + "/cache", "--cache-size", "64MiB", "--max-body", "4000000"]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.args, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if line.startswith("listening on "):
                self.address = line.split("//")[1].strip()
                break
        self.log = []
        threading.Thread(target=self.read, args=(self.process, self.log), daemon=True).start()

    @staticmethod
    def read(process, log):
        for line in process.stderr:
            if '"status":2' not in line and "status=2" not in line:
                log.append(line)
                del log[:-200]

    def get(self, path):
        c = http.client.HTTPConnection(self.address, timeout=60)
        c.request("GET", path)
        try:
            return c.getresponse().read().decode()
        finally:
            c.close()

    def memory(self):
        with open(f"/proc/{self.process.pid}/smaps_rollup") as f:
            return sum(int(line.split()[1]) for line in f if line.startswith(("Private_", "Anonymous:")) and "Anonymous" in line) // 1024

    def goroutines(self):
        return int(re.search(r"total (\d+)", self.get("/debug/pprof/goroutine?debug=1")).group(1))

    def gauge(self, name):
        return sum(float(v) for v in re.findall(rf"^nstf_{name}{{.*?}} (\S+)$", self.get("/metrics"), re.M))


def words(r, n):
    return " ".join(r.choice(["the", "old", "house", "door", "and", "rain", "she", "said", "never", "light"]) for _ in range(n))


def body(r):
    """Returns a path, a body, what status it may have, and how it is read."""
    kind = r.choice(["plain"] * 4 + ["turns", "stream", "stream", "slow", "vanish", "vanish", "stop", "format", "broken", "wrong", "huge", "choices"])
    ask = {"messages": [{"role": "user", "content": words(r, r.randrange(1, 150))}], "max_tokens": r.randrange(1, 80), "seed": r.randrange(100), "temperature": r.choice([0, 1])}
    ok = (200, 503, 429)
    if kind == "turns":
        s = random.Random(r.randrange(6))
        ask["messages"] = [{"role": ["user", "assistant"][i % 2], "content": words(s, 20)} for i in range(2 * s.randrange(1, 4) + 1)]
    if kind in ("stream", "slow", "vanish"):
        ask["stream"] = True
    if kind == "vanish":
        ask["max_tokens"] = 300
    if kind == "stop":
        ask["stop"] = [" the", "a"]
    if kind == "format":
        ask["response_format"] = {"type": "json_schema", "json_schema": {"schema": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["n"]}}}
    if kind == "choices":
        ask["n"], ask["logprobs"], ask["top_logprobs"] = 3, True, 2
    text = json.dumps(ask)
    if kind == "broken":
        return kind, text[: r.randrange(len(text))] if r.random() < 0.5 else "".join(chr(r.randrange(1, 200)) for _ in range(200)), (400,)
    if kind == "wrong":
        return kind, json.dumps(ask | {r.choice(["temperature", "messages", "max_tokens", "stop", "n"]): r.choice([{}, "x", -7, [[[]]]])}), (200, 400)
    if kind == "huge":
        ask["messages"][0]["content"] = words(r, 170000)
        return kind, json.dumps(ask), (400, 413)
    return kind, text, ok


def user(server, seed, end):
    r = random.Random(seed)
    while time.time() < end:
        time.sleep(min(r.expovariate(1 / PAUSE), max(end - time.time(), 0)) if PAUSE else 0)
        kind, text, may = body(r)
        try:
            c = http.client.HTTPConnection(server.address, timeout=120)
            c.request("POST", "/v1/chat/completions", text.encode("utf-8", "replace"), {"Content-Type": "application/json"})
            if kind == "vanish" and r.random() < 0.3:
                c.close()
                continue
            a = c.getresponse()
            if a.status not in may:
                with lock:
                    wrong.append(f"{kind}: {a.status} {a.read(300)!r} to {text[:200]}")
            n = 0
            while chunk := a.read1(512):
                n += len(chunk)
                if kind == "slow":
                    time.sleep(0.02)
                if kind == "vanish" and n > r.randrange(3000):
                    break
            c.close()
            with lock:
                counts[kind] += 1
        except (OSError, http.client.HTTPException) as e:
            with lock:
                counts["cut off"] += 1
            if server.process.poll() is None and not server.ending:
                with lock:
                    wrong.append(f"{kind}: {e!r}")
            time.sleep(0.2)


def run(server, seed, minutes):
    end = time.time() + 60 * minutes
    users = [threading.Thread(target=user, args=(server, 1000 * seed + i, end)) for i in range(USERS)]
    for u in users:
        u.start()
    return users


def quiet(server):
    """Waits until nothing runs, and returns memory in MiB and goroutines."""
    for _ in range(600):
        if server.gauge("running") + server.gauge("waiting") == 0:
            break
        time.sleep(0.1)
    time.sleep(3)
    return server.memory(), server.goroutines()


def main(nstf, model, folder, minutes):
    server = Server(nstf, model, folder)
    server.ending = False
    users = run(server, 1, minutes / 6)
    time.sleep(10 * minutes * 0.9)  # within the sixth
    server.ending = True
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    for u in users:
        u.join()
    server.start()
    server.ending = False
    server.get("/metrics")
    time.sleep(1)
    idle = server.goroutines()
    figures = []
    for part in range(3):
        for u in run(server, 2 + part, minutes * 5 / 18):
            u.join()
        figures.append(quiet(server))
    found = server.gauge("cached_tokens_total") / max(server.gauge("prompt_tokens_total"), 1)
    server.ending = True
    server.process.send_signal(signal.SIGTERM)
    code = server.process.wait(timeout=60)
    time.sleep(0.5)
    left = [int(n) for line in server.log for n in re.findall(r"(?:pages|places)_left\D+(-?\d+)", line)]
    memory, goroutines = [m for m, _ in figures], [g for _, g in figures]
    if code != 0 or not left or any(left):
        wrong.append(f"exit {code}, left {left}: {server.log[-3:]}")
    if memory[2] > memory[0] * 1.1 + 8:
        wrong.append(f"memory grew: {memory} MiB")
    if goroutines[2] > idle + 2:
        wrong.append(f"{goroutines} goroutines, {idle} before")
    print(json.dumps({"minutes": minutes, "requests": sum(counts.values()), "by kind": dict(counts), "memory_mib": memory, "goroutines": [idle] + goroutines,
                      "left": left, "found": round(found, 3), "wrong": len(wrong)}))
    for w in wrong[:10]:
        print(w, file=sys.stderr)
    sys.exit(bool(wrong))


PAUSE = float(sys.argv[5])
main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
