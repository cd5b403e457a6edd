"""Has the clients that people use talk to `nstf serve`: python .ci/clients.py NSTF MODEL, by
pip install openai anthropic ollama litellm langchain-openai. MODEL has a chat template."""

import json
import subprocess
import sys
import urllib.error
import urllib.request

KEY = "a key of this test"


def main(nstf, model, folder):
    keys = folder + "/keys"
    with open(keys, "w") as f:
        f.write("# comment\n" + KEY + "\n")
    server = subprocess.Popen([nstf, "serve", model, "--listen", "127.0.0.1:0", "--keys", keys, "--device", "cpu", "--alias", "gpt-x", "--ctx", "512"],
                              stderr=subprocess.PIPE, text=True)
    try:
        for line in server.stderr:
            if line.startswith("listening on "):
                base = line.split()[-1]
                break
        for check in [with_openai, with_anthropic, with_ollama, with_litellm, with_langchain, by_hand]:
            check(base)
            print("ok", check.__name__)
    finally:
        server.terminate()
        rest = server.stderr.read()
        code = server.wait(timeout=40)
    assert code == 0, (code, rest[-2000:])
    assert "the quick" not in rest, "the log holds a prompt"


def with_openai(base):
    import openai
    c = openai.OpenAI(base_url=base + "/v1", api_key=KEY)
    name = c.models.list().data[0].id
    assert c.models.retrieve(name).id == name
    ask = dict(model=name, messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "the quick"}]}])
    whole = c.chat.completions.create(**ask, max_tokens=12, temperature=0, logprobs=True, top_logprobs=3)
    choice = whole.choices[0]
    assert choice.finish_reason in ("length", "stop") and whole.usage.completion_tokens <= 12, whole
    assert len(choice.logprobs.content) == whole.usage.completion_tokens and len(choice.logprobs.content[0].top_logprobs) == 3
    assert choice.logprobs.content[0].logprob == max(t.logprob for t in choice.logprobs.content[0].top_logprobs)
    text, usage = "", None
    for chunk in c.chat.completions.create(**ask, max_completion_tokens=12, temperature=0, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for d in chunk.choices:
            text += d.delta.content or ""
    assert text == choice.message.content, (text, choice.message.content)
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens > 0 or usage.prompt_tokens < 64, usage
    seeded = [c.chat.completions.create(**ask, max_tokens=8, seed=7, temperature=1.5).choices[0].message.content for _ in range(2)]
    assert seeded[0] == seeded[1], seeded
    several = c.chat.completions.create(**ask, max_tokens=8, n=3, temperature=2, seed=3)
    assert sorted(x.index for x in several.choices) == [0, 1, 2]
    full = c.completions.create(model="gpt-x", prompt="the old man", max_tokens=20, temperature=0).choices[0].text
    word = full.split()[3]
    cut = c.completions.create(model="gpt-x", prompt="the old man", max_tokens=20, temperature=0, stop=word).choices[0]
    assert cut.text == full[:full.index(word)] and cut.finish_reason == "stop", (full, cut)
    batch = c.completions.create(model="gpt-x", prompt=["the old man", "the old man"], max_tokens=20, temperature=0)
    assert [x.text for x in batch.choices] == [full, full]
    item = dict(model=name, instructions="Be brief.", input="the quick", max_output_tokens=12, temperature=0)
    response = c.responses.create(**item)
    assert response.output_text.strip() == whole.choices[0].message.content.strip(), (response.output_text, whole)
    kinds, text = [], ""
    for event in c.responses.create(**item, stream=True):
        kinds.append(event.type)
        if event.type == "response.output_text.delta":
            text += event.delta
    assert text == response.output_text and kinds[0] == "response.created" and kinds[-1] in ("response.completed", "response.incomplete"), kinds
    schema = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 6}, "b": {"enum": ["x", "y"]}}, "required": ["a", "b"], "additionalProperties": False}
    held = c.chat.completions.create(**ask, max_tokens=200, temperature=1, seed=5, response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": True}})
    value = json.loads(held.choices[0].message.content)
    assert set(value) == {"a", "b"} and value["b"] in ("x", "y"), value
    for wrong, error in [(dict(model=name, messages=[]), openai.BadRequestError), (dict(ask, n=99), openai.BadRequestError),
                         (dict(ask, messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]), openai.BadRequestError),
                         (dict(ask, messages=[{"role": "user", "content": "word " * 2000}]), openai.BadRequestError)]:
        try:
            c.chat.completions.create(**wrong)
        except error:
            continue
        raise AssertionError(wrong)
    try:
        openai.OpenAI(base_url=base + "/v1", api_key="wrong").models.list()
    except openai.AuthenticationError:
        return
    raise AssertionError("a wrong key was let in")


def with_anthropic(base):
    import anthropic
    c = anthropic.Anthropic(base_url=base, api_key=KEY)
    ask = dict(model="claude", max_tokens=10, extra_body={"temperature": 0}, system="Be brief.", messages=[{"role": "user", "content": "the quick"}])
    whole = c.messages.create(**ask)
    assert whole.stop_reason in ("max_tokens", "end_turn") and whole.content[0].type == "text", whole
    with c.messages.stream(**ask) as s:
        text = "".join(s.text_stream)
        last = s.get_final_message()
    assert text == whole.content[0].text and last.usage.output_tokens == whole.usage.output_tokens, (text, whole)
    n = c.messages.count_tokens(model="claude", system="Be brief.", messages=ask["messages"]).input_tokens
    u = whole.usage
    assert n == u.input_tokens + u.cache_read_input_tokens, (n, u)
    # Newer programs send the system's words among the messages.
    c.messages.create(model="claude", max_tokens=2, messages=[{"role": "user", "content": "a"}, {"role": "system", "content": "Be brief."}, {"role": "user", "content": "b"}])
    word = text.split()[-2]
    cut = c.messages.create(**ask, stop_sequences=[word])
    assert cut.stop_reason == "stop_sequence" and cut.stop_sequence == word, cut


def with_ollama(base):
    import ollama
    c = ollama.Client(host=base, headers={"Authorization": "Bearer " + KEY})
    name = c.list().models[0].model
    assert "completion" in c.show(name).capabilities
    ask = dict(model=name, messages=[{"role": "user", "content": "the quick"}], options={"temperature": 0, "num_predict": 10})
    whole = c.chat(**ask)
    assert whole.done and whole.eval_count <= 10 and whole.prompt_eval_count > 0
    assert "".join(p.message.content for p in c.chat(**ask, stream=True)) == whole.message.content
    out = c.generate(model=name, prompt="the quick", raw=True, options={"temperature": 0, "num_predict": 5})
    assert out.response and out.done_reason == "length", out


def with_litellm(base):
    import litellm
    litellm.telemetry = False
    out = litellm.completion(model="openai/gpt-x", api_base=base + "/v1", api_key=KEY, messages=[{"role": "user", "content": "the quick"}], max_tokens=5, temperature=0)
    assert out.usage.completion_tokens <= 5


def with_langchain(base):
    from langchain_openai import ChatOpenAI
    c = ChatOpenAI(base_url=base + "/v1", api_key=KEY, model="gpt-x", temperature=0, max_tokens=6)
    whole = c.invoke("the quick").content
    assert "".join(p.content for p in c.stream("the quick")) == whole


def by_hand(base):
    def post(path, body, key=KEY):
        r = urllib.request.Request(base + path, body, {"Authorization": "Bearer " + key})
        try:
            with urllib.request.urlopen(r) as f:
                return f.status, json.load(f)
        except urllib.error.HTTPError as e:
            return e.code, json.load(e)
    tokens = post("/tokenize", b'{"content": "the quick"}')[1]["tokens"]
    assert post("/detokenize", json.dumps({"tokens": tokens}).encode())[1]["content"].strip() == "the quick"
    for path, body in [("/v1/chat/completions", b"{"), ("/v1/chat/completions", b"[" * 100000), ("/v1/messages", b"nothing"), ("/api/chat", b'{"messages": 3}'),
                       ("/v1/completions", b'{"prompt": {}}'), ("/v1/completions", b'{"prompt": "a", "logit_bias": {"x": 1}}'), ("/tokenize", b'{"content": 1}'),
                       ("/v1/completions", b'{"prompt": "a", "temperature": -1}'), ("/detokenize", b'{"tokens": [123456789]}')]:
        code, answer = post(path, body)
        assert code == 400 and "error" in answer, (path, code, answer)
    assert post("/v1/none", b"{}")[0] == 404
    assert post("/v1/completions", b" " * (17 << 20))[0] == 413
    assert post("/v1/completions", b"{}", "no key")[0] == 401
    assert urllib.request.urlopen(base + "/health").status == 200


main(*sys.argv[1:])
