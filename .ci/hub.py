"""Holds nstf to huggingface_hub: each reads the cache and the uploads of the other.

usage: hub.py NSTF HUBD    binaries of cmd/nstf and .ci/hubd; needs huggingface_hub
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

nstf, hubd = sys.argv[1:3]
ci = pathlib.Path(__file__).resolve().parent
micro = ci.parent / "testdata" / "micro"
folders = [micro / "llama-2", micro / "mixtral-stacked"]
server = subprocess.Popen([hubd, "-token", "hf_of_a_test", "-part", "50000", *map(str, folders), f"Qwen/Qwen3-0.6B={ci.parent}/testdata/demo/model"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
endpoint = server.stdout.readline().strip()
caches = pathlib.Path(tempfile.mkdtemp())
os.environ.update(HF_ENDPOINT=endpoint, HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_XET="1", HF_HOME=str(caches / "home"))
os.environ.pop("HF_TOKEN", None)

from huggingface_hub import HfApi, ModelCard, hf_hub_download, scan_cache_dir, snapshot_download  # noqa: E402


def tool(cache, *args, **env):
    r = subprocess.run([nstf, *args], env={**os.environ, "HF_HUB_CACHE": str(cache), **env}, capture_output=True, text=True)
    assert r.returncode == 0, (args, r.returncode, r.stderr)
    return r.stdout


def same(folder, snapshot):
    for f in folder.iterdir():
        assert (pathlib.Path(snapshot) / f.name).read_bytes() == f.read_bytes(), f


try:
    for folder in folders:
        name = "test/" + folder.name
        # What nstf wrote, huggingface_hub reads without a server.
        ours = caches / "ours"
        path = tool(ours, "pull", name).strip()
        weights = [f.name for f in folder.iterdir() if f.suffix in (".safetensors", ".json")]
        for f in weights:
            got = hf_hub_download(name, f, cache_dir=ours, local_files_only=True)
            assert os.path.dirname(got) == path and pathlib.Path(got).read_bytes() == (folder / f).read_bytes(), (got, path)
        assert snapshot_download(name, cache_dir=ours, local_files_only=True, allow_patterns=weights) == path
        # It goes on where files are missing, and finds nothing wrong.
        snapshot_download(name, cache_dir=ours)
        same(folder, path)
        # What huggingface_hub wrote, nstf reads without a server.
        theirs = caches / "theirs"
        path = snapshot_download(name, cache_dir=theirs)
        same(folder, path)
        assert tool(theirs, "pull", name, HF_HUB_OFFLINE="1").strip() == path
        assert HfApi().model_info(name).sha == os.path.basename(path)
    # README's line, as it stands there; the server gives out the built-in model under that name.
    line = subprocess.run([ci / "door", "1"], capture_output=True, text=True, check=True).stdout
    env = {**os.environ, "HF_HUB_CACHE": str(caches / "door"), "PATH": f"{pathlib.Path(nstf).resolve().parent}:{os.environ['PATH']}", "NSTF_MAX_TOKENS": "16"}
    r = subprocess.run(line, shell=True, env=env, input="Once upon a time\n", capture_output=True, text=True)
    assert r.returncode == 0 and r.stdout.strip(), (line, r.returncode, r.stdout, r.stderr)
    assert [m["repo"] for m in json.loads(tool(caches / "door", "list", "--json"))["models"]] == ["Qwen/Qwen3-0.6B"]
    for cache in (ours, theirs):
        info = scan_cache_dir(cache)
        assert not info.warnings and {r.repo_id for r in info.repos} == {"test/" + f.name for f in folders}, info
        listed = json.loads(tool(cache, "list", "--json"))["models"]
        assert {(m["repo"], m["commit"], m["bytes"]) for m in listed} == {
            (r.repo_id, v.commit_hash, v.size_on_disk) for r in info.repos for v in r.revisions
        }, (listed, info)
        # Each removes what the other left.
        name = "test/" + folders[0].name
        tool(cache, "remove", name)
        assert name not in {r.repo_id for r in scan_cache_dir(cache).repos}
        revisions = [v.commit_hash for r in scan_cache_dir(cache).repos for v in r.revisions]
        scan_cache_dir(cache).delete_revisions(*revisions).execute()
        left = json.loads(tool(cache, "list", "--json"))["models"]
    assert left == [], left
    # Uploads: the server takes those of huggingface_hub as it takes ours.
    os.environ["HF_TOKEN"] = "hf_of_a_test"
    package, folder = caches / "m.nstf", folders[0]
    tool(ours, "convert", str(folder), "-o", str(package))
    url = tool(ours, "push", str(package), "test/pushed", "--base-model", "test/base").strip()
    assert url == endpoint + "/test/pushed", url
    api = HfApi(token="hf_of_a_test")
    theirs = pathlib.Path(snapshot_download("test/pushed", cache_dir=caches / "pushed"))
    assert (theirs / "m.nstf").read_bytes() == package.read_bytes()
    card = ModelCard.load(theirs / "README.md")
    assert card.data.library_name == "nstf" and card.data.base_model == "test/base" and "nstf" in card.data.tags, card.data
    assert "Nothing was measured" in card.text
    api.create_repo("test/uploaded", private=True)
    api.upload_folder(repo_id="test/uploaded", folder_path=folder)
    name = "test/uploaded"
    same(folder, snapshot_download(name, cache_dir=caches / "uploaded"))
    again = json.loads(tool(ours, "push", str(package), "test/uploaded", "--revision", "packages", "--json"))
    assert again["sent_bytes"] == 0 and again["commit"], again  # the hub had it of the first push
    at = pathlib.Path(hf_hub_download(name, "m.nstf", revision="packages", cache_dir=caches / "uploaded"))
    assert at.read_bytes() == package.read_bytes()
    again = json.loads(tool(ours, "push", str(package), "test/uploaded", "--revision", "packages", "--json"))
    assert again["commit"] == "", again
    api.upload_file(repo_id="test/pushed", path_or_fileobj=str(package), path_in_repo="m.nstf")  # nothing new
    assert api.model_info("test/pushed").sha == theirs.name
    print("huggingface_hub and nstf read, list and remove what the other wrote, and take what the other uploaded")
finally:
    server.stdin.close()
    server.wait(10)
    shutil.rmtree(caches)
