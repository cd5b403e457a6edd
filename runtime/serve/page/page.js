"use strict";
const $ = id => document.getElementById(id);
let models = [], messages = [], running = null;

const headers = () => {
  const h = { "Content-Type": "application/json" };
  if ($("key").value) h.Authorization = "Bearer " + $("key").value;
  return h;
};

const number = n => n.toLocaleString("en", { maximumFractionDigits: 2 });

function facts() {
  const list = $("facts"), m = models.find(x => x.id === $("model").value);
  list.replaceChildren();
  if (!m) return;
  const rows = [["architecture", m.meta.arch], ["weights", number(m.meta.n_params / 1e6) + " million"],
    ["size", number(m.meta.size / 2 ** 20) + " MiB, " + number(m.meta.bits_per_weight) + " bits a weight"], ["context", number(m.meta.n_ctx) + " positions"]];
  for (const f of m.meta.ledger || []) rows.push([f.name, f.value]);
  for (const [name, value] of rows) {
    const dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.textContent = name;
    dd.textContent = value;
    list.append(dt, dd);
  }
}

async function load() {
  try {
    const r = await fetch("v1/models", { headers: headers() });
    const v = await r.json();
    if (!r.ok) throw new Error(v.error.message);
    models = v.data;
    $("model").replaceChildren(...models.map(m => new Option(m.id, m.id)));
    $("status").textContent = "";
    facts();
  } catch (e) {
    $("status").textContent = "No models: " + e.message;
  }
}

function show(role, text) {
  const a = document.createElement("article"), h = document.createElement("h2"), p = document.createElement("div");
  a.className = role;
  h.textContent = { user: "You", assistant: "Model", error: "Error" }[role];
  p.textContent = text;
  a.append(h, p);
  $("log").append(a);
  a.scrollIntoView({ block: "end" });
  return { article: a, body: p };
}

function thoughts(article, body) {
  let d = article.querySelector("details");
  if (!d) {
    d = document.createElement("details");
    const s = document.createElement("summary");
    s.textContent = "Reasoning";
    d.append(s, document.createElement("div"));
    article.insertBefore(d, body);
  }
  return d.lastChild;
}

// events gives the data of server-sent events as it comes.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const p of parts) for (const line of p.split("\n")) {
      if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
    }
  }
}

async function send(text) {
  messages.push({ role: "user", content: text });
  show("user", text);
  const { article, body } = show("assistant", "");
  const began = performance.now();
  let first = 0, answer = "", usage = null;
  running = new AbortController();
  $("send").textContent = "Stop";
  $("status").textContent = "Reading …";
  try {
    const q = { model: $("model").value, messages: [...messages], stream: true, stream_options: { include_usage: true } };
    if ($("system").value) q.messages.unshift({ role: "system", content: $("system").value });
    if ($("temperature").value) q.temperature = +$("temperature").value;
    if ($("max").value) q.max_completion_tokens = +$("max").value;
    const r = await fetch("v1/chat/completions", { method: "POST", headers: headers(), body: JSON.stringify(q), signal: running.signal });
    if (!r.ok) throw new Error((await r.json()).error.message);
    for await (const e of events(r.body)) {
      if (e.error) throw new Error(e.error.message);
      usage = e.usage || usage;
      const d = e.choices.length ? e.choices[0].delta : {};
      if (!first && (d.content || d.reasoning_content)) first = performance.now();
      if (d.reasoning_content) thoughts(article, body).textContent += d.reasoning_content;
      if (d.content) body.textContent = answer += d.content;
      const log = $("log");
      if (log.scrollHeight - log.scrollTop - log.clientHeight < 120) log.scrollTop = log.scrollHeight;
    }
  } catch (e) {
    if (e.name !== "AbortError") show("error", e.message);
  }
  running = null;
  $("send").textContent = "Send";
  $("status").textContent = "";
  if (answer) messages.push({ role: "assistant", content: answer });
  else messages.pop();
  if (usage) {
    const m = models.find(x => x.id === $("model").value), rate = (usage.completion_tokens - 1) / (performance.now() - first) * 1000;
    const cached = usage.prompt_tokens_details.cached_tokens;
    $("status").textContent = `first token after ${number((first - began) / 1000)} s, then ${rate > 0 && isFinite(rate) ? number(rate) : "–"} tokens a second; ` +
      `context ${number(usage.total_tokens - 1)} of ${number(m.meta.n_ctx)}` + (cached ? `, ${number(cached)} of the prompt's ${number(usage.prompt_tokens)} known before` : "");
  }
  $("text").focus();
}

$("form").addEventListener("submit", e => {
  e.preventDefault();
  if (running) return running.abort();
  const text = $("text").value.trim();
  if (!text) return;
  $("text").value = "";
  send(text);
});
$("text").addEventListener("keydown", e => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
    e.preventDefault();
    if (!running) $("form").requestSubmit();
  }
});
$("new").addEventListener("click", () => {
  if (running) running.abort();
  messages = [];
  $("log").replaceChildren();
  $("status").textContent = "";
  $("text").focus();
});
$("model").addEventListener("change", facts);
$("key").addEventListener("change", load);
load();
