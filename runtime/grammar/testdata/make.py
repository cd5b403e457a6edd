"""Writes gbnf.json, llama.json and suite.json: grammars and schemas with texts that are and are not legal.

    python3 make.py LLAMA_CPP JSONSCHEMA_SDIST

LLAMA_CPP is the source of llama.cpp (as in the sdist of llama-cpp-python 0.3.36): grammars, schemas and
texts of tests/test-grammar-integration.cpp, and the schemas of tests/test-json-schema-to-grammar.cpp, whose
texts are found here: instances made by mutation, judged by the Python package jsonschema.
JSONSCHEMA_SDIST is the source of that package (4.26.0), which holds JSON-Schema-Test-Suite. All three are under
the MIT licence.
"""
import copy, json, pathlib, re, sys
import jsonschema

llama, sdist = map(pathlib.Path, sys.argv[1:3])
here = pathlib.Path(__file__).parent


def tokens(src):
    """The tokens of C++ that matter here: strings and punctuation."""
    pos, out = 0, []
    pattern = re.compile(r'//[^\n]*|R"(?P<d>[^()\s]*)\((?P<raw>.*?)\)(?P=d)"|"(?P<str>(?:\\.|[^"\\])*)"|(?P<p>[{}(),;])|(?P<w>\w+)', re.S)
    for m in pattern.finditer(src):
        if m["raw"] is not None:
            out.append(("s", m["raw"]))
        elif m["str"] is not None:
            s = re.sub(r"\\x([0-9a-fA-F]{2})", r"\\u00\1", m["str"])
            out.append(("s", json.loads('"' + s.replace("\\'", "'") + '"')))
        elif m["p"]:
            out.append(("p", m["p"]))
        elif m["w"]:
            out.append(("w", m["w"]))
    return out


def call(toks, i):
    """The arguments of a call whose parenthesis is toks[i]: strings and lists of strings, None with anything else."""
    args, depth, cur, odd = [], 0, [], False
    while True:
        kind, text = toks[i]
        if (kind, text) in (("p", "("), ("p", "{")):
            depth += 1
            if text == "{":
                cur = [[]] if depth == 2 else cur
        elif (kind, text) in (("p", ")"), ("p", "}")):
            depth -= 1
            if depth == 0:
                args.append(cur)
                return args, odd, i
        elif (kind, text) == ("p", ","):
            if depth == 1:
                args.append(cur)
                cur = []
            elif depth == 2 and cur and isinstance(cur[0], list):
                cur.append([])
        elif kind == "s":
            if depth == 2 and cur and isinstance(cur[0], list):
                cur[-1].append(text)
            else:
                cur.append(text)
        elif kind == "w":
            odd = True
        i += 1


def strings(arg):
    return ["".join(x) for x in arg if isinstance(x, list) and x]


def integration():
    toks = tokens((llama / "tests/test-grammar-integration.cpp").read_text())
    grammars, schemas = [], []
    for i, (kind, text) in enumerate(toks):
        if kind == "w" and text in ("test_grammar", "test_schema") and toks[i + 1] == ("p", "(") and toks[i + 2][0] == "s":
            args, odd, _ = call(toks, i + 1)
            if odd:
                continue  # tokens by id, which are refused
            case = {"legal": strings(args[2]), "illegal": strings(args[3])}
            if text == "test_grammar":
                grammars.append({"grammar": args[1][0], **case})
            else:
                schema = json.loads(args[1][0])
                validator = jsonschema.Draft202012Validator(schema)
                # llama.cpp takes schemas that do not say so to be of arrays, and objects to be closed; the draft does not.
                case["illegal"] = [t for t in case["illegal"] if not instance(validator, t)]
                schemas.append({"schema": schema, **case})
    return grammars, schemas


def instance(validator, text):
    """Whether a text is an instance, if spelled otherwise."""
    try:
        return validator.is_valid(json.loads(text)) and not re.fullmatch(r"-?0.*|.*\d{17}.*", text)
    except (ValueError, AttributeError):
        return False


def mutations(v):
    """Values near v."""
    yield v
    for x in (None, True, False, 0, 1, -1, 3, 1.5, 1000, "", "a", "foo", "2020-01-01", [], [1], ["a"], {}, {"a": 1}):
        yield x
    if isinstance(v, dict):
        for k in list(v):
            yield {j: w for j, w in v.items() if j != k}
            for w in mutations(v[k]):
                yield {**v, k: w}
        yield {**v, "zz": 1}
        yield {**v, "zz": "s"}
    if isinstance(v, list):
        for i in range(len(v)):
            yield v[:i] + v[i + 1:]
            for w in mutations(v[i]):
                yield v[:i] + [w] + v[i + 1:]
        yield v + [1]
        yield v + ["a"]
        if v:
            yield v + [v[-1]]
            yield v + [v[-1]] * 3
    if isinstance(v, (int, float)) and not isinstance(v, bool):
        for d in (1, 10, 100, -1, -10, -100):
            yield v + d
    if isinstance(v, str):
        for w in (v + "a", v + "1", v[:-1], v[1:], v + v, v + '"', v + "é", v + "\n"):
            yield w


def seeds(schema, root, depth=0):
    """Some values that a schema may allow."""
    if schema is True or depth > 6:
        yield from (1, "x", {})
        return
    if schema is False:
        return
    if "$ref" in schema:
        at = root
        for part in schema["$ref"].lstrip("#/").split("/"):
            if part:
                at = at[int(part) if isinstance(at, list) else part.replace("~1", "/").replace("~0", "~")]
        yield from seeds(at, root, depth + 1)
        return
    if "const" in schema:
        yield schema["const"]
    yield from schema.get("enum", [])
    for k in ("anyOf", "oneOf"):
        for s in schema.get(k, []):
            yield from seeds(s, root, depth + 1)
    parts = [schema] + schema.get("allOf", [])
    merged = {}
    for s in parts:
        while isinstance(s, dict) and "$ref" in s:
            at = root
            for part in s["$ref"].lstrip("#/").split("/"):
                at = at[part] if part else at
            s = at
        for k in ("anyOf",):
            for b in s.get(k, [])[:1]:
                merged = {**merged, **b, "properties": {**merged.get("properties", {}), **b.get("properties", {})}}
        merged = {**merged, **s, "properties": {**merged.get("properties", {}), **s.get("properties", {})}}
    t = merged.get("type")
    types = t if isinstance(t, list) else [t] if t else []
    if merged["properties"] or "object" in types or "additionalProperties" in merged:
        full = {}
        for k, s in merged["properties"].items():
            for v in seeds(s, root, depth + 1):
                full[k] = v
                break
        yield full
        extra = merged.get("additionalProperties")
        if isinstance(extra, dict) or extra is True:
            for v in seeds(extra, root, depth + 1):
                yield {**full, "extra": v}
                break
    if "items" in merged or "prefixItems" in merged or "array" in types:
        items = merged.get("prefixItems") or (merged["items"] if isinstance(merged.get("items"), list) else None)
        if items is not None:
            yield [next(iter(seeds(s, root, depth + 1)), 1) for s in items]
        else:
            one = next(iter(seeds(merged.get("items", True), root, depth + 1)), 1)
            for n in (0, 1, 2, 3, 5):
                yield [copy.deepcopy(one) for _ in range(n)]
    if "string" in types or "pattern" in merged or "format" in merged:
        yield from ("", "a", "ab", "abc", "abcd", "abcde", "ab12", "(123)456-7890 and there more", "2011-10-05", "14:48:00Z",
                    "2011-10-05T14:48:00.000Z", "12345678-1234-1234-1234-1234567890ab", "foo", "aé", "[]{}()|+*?", "()[]{}|+*?", "(a|b)", "abcefgkl", "abcdddefggghijkl", "A", "BCD", "foobaz", "barbaz", "123a", "a-b",
                    "123-4567 aaaand!!!", "(1)123-4567 aaaaandé..", "abcd", "ababcd", "d")
    if "integer" in types or "number" in types:
        for k in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if k in merged:
                yield merged[k]
        yield 7
    for name, v in (("null", None), ("boolean", True)):
        if name in types:
            yield v


def judged(schema):
    """Texts that are and are not instances, 40 of each at most."""
    # In ECMA-262 $ is the end of a string; in Python it is in front of a last line feed, too.
    newline = "\\n" if "pattern" in json.dumps(schema) else None
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    legal, illegal = {}, {}
    for s in list(seeds(schema, schema))[:12]:
        for v in mutations(s):
            text = json.dumps(v, ensure_ascii=False, separators=(",", ":"))
            if newline and newline in text:
                continue
            (legal if validator.is_valid(v) else illegal)[text] = None
    pick = lambda d: list(d)[:: max(1, len(d) // 40)][:40]
    return {"legal": pick(legal), "illegal": pick(illegal)}


def schema_cases():
    src = (llama / "tests/test-json-schema-to-grammar.cpp").read_text()
    toks = tokens(src)
    out = []
    for i, (kind, text) in enumerate(toks):
        if kind == "w" and text in ("SUCCESS", "FAILURE") and [t[0] for t in toks[i + 2:i + 5]] == ["s", "p", "s"]:
            schema = toks[i + 4][1]
            try:
                schema = json.loads(schema)
                jsonschema.Draft202012Validator.check_schema(schema)
                out.append({"schema": schema, **judged(schema)})
            except (ValueError, KeyError, TypeError, jsonschema.exceptions.SchemaError) as e:
                out.append({"schema": schema, "broken": type(e).__name__})
    return out


def suite():
    out = []
    for path in sorted((sdist / "json/tests/draft2020-12").glob("*.json")) + sorted((sdist / "json/tests/draft2020-12/optional/format").glob("*.json")):
        for group in json.loads(path.read_text()):
            tests = [[t["data"], t["valid"]] for t in group["tests"]]
            out.append({"file": path.stem, "schema": group["schema"], "tests": tests})
    return out


def write(name, cases):
    (here / name).write_text("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases) + "\n]\n")
    print(name, len(cases))


grammars, schemas = integration()
write("gbnf.json", grammars)
write("llama.json", schemas + schema_cases())
write("suite.json", suite())
