#!/usr/bin/env python3
"""Starts `nstf serve` by the flags of llama.cpp's server, as far as it has their like, for that server's own tests:
see server_suite.sh. Which model they ask for is not looked at: MODEL serves for all, MODEL_HF, a folder, where a chat
template is given. A flag without a like ends with 3."""

import os
import shutil
import sys
import tempfile

SILENT = {"--offline", "--cont-batching", "--embedding", "--reranking", "--metrics", "--slots", "--no-slots", "--jinja", "--no-jinja", "--kv-unified",
          "--no-ui", "--swa-full", "--no-mmproj", "--verbose"}  # nothing of ours is to be turned on or off
PASSED = {"--threads": "--threads", "--cors-origins": "--cors"}
DROPPED = {"--hf-repo", "--hf-file", "--temp", "--seed", "--batch-size", "--ubatch-size", "--n-gpu-layers", "-ctk", "-ctv", "-fa", "--pooling",
           "--n-predict"}  # defaults of requests, and how theirs computes
NAMED = {"llama3": "meta-llama-Llama-3.1-8B-Instruct.jinja"}


def main(args):
    env, vendor = os.environ, os.environ["VENDOR"]
    flags, unknown = {}, []
    while args:
        k = args.pop(0)
        if k in SILENT:
            flags[k] = True
        elif args and not args[0].startswith("--"):
            flags[k] = args.pop(0)
        else:
            flags[k] = True
        if k not in SILENT | DROPPED | set(PASSED) | {"--port", "--host", "--ctx-size", "--parallel", "--alias", "--api-key", "--chat-template-file", "--chat-template"}:
            unknown.append(k)
    template = None
    if "--chat-template-file" in flags:
        template = vendor + "/tools/server/tests/" + flags["--chat-template-file"]
    elif "--chat-template" in flags:
        if flags["--chat-template"] in NAMED:
            template = vendor + "/models/templates/" + NAMED[flags["--chat-template"]]
        else:
            unknown.append("--chat-template " + flags["--chat-template"])
    if unknown:
        print("nothing of ours for", *unknown)
        sys.exit(3)
    model, folder = env["MODEL"], tempfile.mkdtemp()
    if template:
        model = folder + "/model"
        shutil.copytree(env["MODEL_HF"], model)
        shutil.copyfile(template, model + "/chat_template.jinja")
    slots = int(flags.get("--parallel", 1))
    out = [env["NSTF"], "serve", model, "--device", "cpu", "--parallel", str(slots),
           "--listen", flags["--host"].split(",")[0] + ":" + flags["--port"]]
    if "--ctx-size" in flags:  # theirs is that of all slots together
        out += ["--ctx", str(int(flags["--ctx-size"]) // (1 if "--kv-unified" in flags else slots))]
    for k in PASSED:
        if k in flags:
            out += [PASSED[k], flags[k]]
    if "--cors-origins" not in flags:
        out += ["--cors", "*"]
    for name in flags.get("--alias", "").split(","):
        if name:
            out += ["--alias", name]
    if "--api-key" in flags:
        with open(folder + "/keys", "w") as f:
            f.write(flags["--api-key"].replace(",", "\n") + "\n")
        out += ["--keys", folder + "/keys"]
    os.execv(out[0], out)


main(sys.argv[1:])
