"""Has a server write instances of schemas made by chance, and the Python package jsonschema judge each:
python schemas.py URL [COUNT [SEED]], by pip install jsonschema[format] of the day. See grammar.md."""

import json
import random
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import jsonschema

url, count, seed = sys.argv[1], int((sys.argv + ["1000"])[2]), int((sys.argv + ["1", "1"])[3])
NAMES = ["name", "id", "created at", "größe", "a\"b", "x/y", "count", "tags"]


def schema(r, depth=0):
    """A schema: what models of data have, deeper ones less often."""
    kinds = [text, number, choice, form] + [record, record, array, union, union, optional] * (depth < 3)
    return r.choice(kinds)(r, depth)


def some(r, **keys):
    return {k: v for k, v in keys.items() if r.random() < 0.5}


def text(r, depth):
    low = r.randrange(4)
    return {"type": "string", "maxLength": low + r.randrange(1, 12), **some(r, minLength=low)}


def form(r, depth):
    return r.choice([{"type": "string", "pattern": p} for p in [r"^[A-Z]{2}-\d{3}$", r"^(red|green|blue)$", r"^\w{1,6}@\w{1,6}\.(com|org)$", r"^[^\s\"]{1,5}$", r"^v\d+(\.\d{1,2}){0,2}$"]] +
                    [{"type": "string", "format": f} for f in ["date", "time", "date-time", "uuid", "ipv4", "ipv6", "email"]])


def number(r, depth):
    kind, low = r.choice(["integer", "number"]), r.randrange(-500, 500)
    high = low + r.randrange(5, 400)
    if r.random() < 0.2:
        return {"type": kind, "multipleOf": r.choice([2, 5, 12] if kind == "integer" else [0.5, 0.25, 3])}
    return {"type": kind, **some(r, minimum=low), **some(r, exclusiveMaximum=high)}


def choice(r, depth):
    values = ["a", "two words", 3, -1.5, True, None, [1, "x"], {"k": []}]
    return r.choice([{"enum": r.sample(values, r.randrange(1, 5))}, {"const": r.choice(values)}, {"type": "boolean"}])


def record(r, depth):
    names = r.sample(NAMES, r.randrange(1, 5))
    return {"type": "object", "properties": {n: schema(r, depth + 1) for n in names}, "required": [n for n in names if r.random() < 0.6], "additionalProperties": False}


def array(r, depth):
    low = r.randrange(3)
    head = {"prefixItems": [schema(r, depth + 1)]} if r.random() < 0.2 else {}
    return {"type": "array", "items": schema(r, depth + 1), "minItems": low, "maxItems": low + r.randrange(3), **head}


def union(r, depth):
    return {"anyOf": [schema(r, depth + 1) for _ in range(r.randrange(2, 4))]}


def optional(r, depth):
    return {"oneOf": [{"type": "null"}, {"type": "object", "properties": {"v": schema(r, depth + 1)}, "required": ["v"], "additionalProperties": False}]}


def ask(i):
    """What became of schema i: a word, and what to show."""
    s = schema(random.Random(seed * 1_000_003 + i))
    jsonschema.Draft202012Validator.check_schema(s)
    q = {"prompt": "An answer:", "max_tokens": 450, "temperature": 1, "seed": i, "json_schema": s}
    try:
        with urllib.request.urlopen(urllib.request.Request(url + "/v1/completions", json.dumps(q).encode())) as f:
            c = json.load(f)["choices"][0]
    except urllib.error.HTTPError as e:
        return "refused", (json.dumps(s), e.read().decode())
    if c["finish_reason"] != "stop":
        return "cut off", None
    try:
        jsonschema.validate(json.loads(c["text"]), s, jsonschema.Draft202012Validator, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    except (ValueError, jsonschema.ValidationError) as e:
        return "WRONG", (json.dumps(s), c["text"], str(e)[:300])
    return "valid", None


counts = {}
with ThreadPoolExecutor(8) as pool:
    for word, shown in pool.map(ask, range(count)):
        counts[word] = counts.get(word, 0) + 1
        if shown and counts[word] <= 5:
            print(word, *shown)
print("seed", seed, counts)
sys.exit("WRONG" in counts)
