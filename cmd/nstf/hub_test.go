package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/hub/hubtest"
	"github.com/nstf/nstf/formats/nstf"
)

// onHub starts a hub with the micro checkpoint llama-2, as a private model too and as a
// package, and returns what runs a command against it.
func onHub(t *testing.T) (server *hubtest.Server, cache string, do func(env map[string]string, args ...string) result) {
	t.Helper()
	llama, err := hubtest.Folder(os.DirFS(filepath.Join(micro, "llama-2")))
	if err != nil {
		t.Fatal(err)
	}
	private := *llama
	private.Private = true
	pkg, err := os.ReadFile(packaged(t, filepath.Join(micro, "llama-2")))
	if err != nil {
		t.Fatal(err)
	}
	server = hubtest.New(map[string]*hubtest.Repo{"org/llama": llama, "org/private": &private, "org/package": hubtest.One(map[string][]byte{"m.nstf": pkg, "README.md": []byte("x")})})
	t.Cleanup(server.Close)
	server.Token = "hf_of_a_test"
	cache = t.TempDir()
	return server, cache, func(env map[string]string, args ...string) result {
		all := map[string]string{"HF_ENDPOINT": server.Hub.URL, "HF_HOME": cache}
		for k, v := range env {
			all[k] = v
		}
		return invokeIn(all, "", args...)
	}
}

// Every command that takes a model takes its name on a hub.
func TestHubNames(t *testing.T) {
	server, cache, do := onHub(t)
	out := t.TempDir()
	local := filepath.Join(micro, "llama-2")
	want := must(t, "run", local, "-p", "x", "--greedy", "--max-tokens", "4")
	for line, code := range map[string]int{
		"run org/llama -p x --greedy --max-tokens 4":                        exitFine,
		"run -hf org/llama -p x --greedy --max-tokens 4":                    exitFine,
		"run hf://org/llama -p x --greedy --max-tokens 4":                   exitFine,
		"run " + server.Hub.URL + "/org/llama -p x --greedy --max-tokens 4": exitFine,
		"run org/package -p x --greedy --max-tokens 4":                      exitFine,
		"inspect org/llama":                                      exitFine,
		"place org/llama --device cpu":                           exitFine,
		"verify org/package":                                     exitFine,
		"convert org/llama -o " + out + "/a.nstf":                exitFine,
		"quantize org/llama -o " + out + "/b.nstf --scheme q8_0": exitFine,
		"export org/llama -o " + out + "/c.gguf":                 exitFine,
		"eval org/llama --text " + demoText + " --max-tokens 64 --ctx 32 --ref org/package": exitFine,
		"diff org/llama org/package": exitFine,
		"dev replace org/package " + local + "/model.safetensors -o " + out + "/d.nstf": exitFine,
		"run org/private -p x":      exitInput,
		"run org/none -p x":         exitInput,
		"run org/llama@v9 -p x":     exitInput,
		"run org/llama:Q4_K_M -p x": exitInput,
		"pull nothing":              exitUsage,
	} {
		r := do(nil, strings.Fields(line)...)
		if r.code != code {
			t.Errorf("%s: exit %d: %s", line, r.code, r.err)
		}
		if strings.HasPrefix(line, "run") && code == exitFine && r.out != want {
			t.Errorf("%s: %q, not %q", line, r.out, want)
		}
	}
	if r := do(map[string]string{"HF_TOKEN": server.Token}, "run", "org/private", "-p", "x", "--max-tokens", "1"); r.code != exitFine || strings.Contains(r.out+r.err, server.Token) {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	if err := os.WriteFile(filepath.Join(cache, "token"), []byte(server.Token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := do(nil, "remove", "org/private"); r.code != exitFine {
		t.Error(r.err)
	}
	if r := do(nil, "inspect", "org/private"); r.code != exitFine {
		t.Errorf("with the token in its file: exit %d: %s", r.code, r.err)
	}
	for _, q := range server.Requests() {
		if q.Storage && q.Token != "" {
			t.Fatalf("the token went to another host: %+v", q)
		}
	}
}

func TestPullListRemove(t *testing.T) {
	server, cache, do := onHub(t)
	if r := do(nil, "list"); r.code != exitFine || !strings.Contains(r.err, "no models in") {
		t.Errorf("exit %d, %s%s", r.code, r.out, r.err)
	}
	r := do(nil, "pull", "org/llama", "org/package", "--json")
	var pulled []struct{ Name, Commit, Path string }
	if err := json.Unmarshal([]byte(r.out), &pulled); err != nil || r.code != exitFine || len(pulled) != 2 {
		t.Fatalf("exit %d, %v: %s", r.code, err, r.err)
	}
	if got, err := os.ReadFile(filepath.Join(pulled[0].Path, "config.json")); err != nil || len(got) == 0 {
		t.Error(err)
	}
	if !strings.HasSuffix(pulled[1].Path, "m.nstf") || !strings.HasPrefix(pulled[1].Path, cache) {
		t.Error(pulled[1].Path)
	}
	if r := do(nil, "list"); r.code != exitFine || !strings.Contains(r.out, "org/llama") || !strings.Contains(r.out, "main") {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}
	// Offline, what is there is found, and what is not is told without asking.
	asked := len(server.Requests())
	offline := map[string]string{"HF_HUB_OFFLINE": "1"}
	if r := do(offline, "inspect", "org/llama"); r.code != exitFine {
		t.Error(r.err)
	}
	do(offline, "run", "org/none", "-p", "x").fails(t, exitInput, "not in the cache")
	if len(server.Requests()) != asked {
		t.Error("the hub was asked")
	}
	if r := do(nil, "remove", "org/llama"); r.code != exitFine || !strings.Contains(r.out, "removed") {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}
	do(nil, "remove", "org/llama").fails(t, exitInput, "not in the cache")
	do(nil, "remove", "org/package:m.nstf").fails(t, exitUsage, "one file")
	if _, err := os.Stat(pulled[0].Path); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if r := do(map[string]string{"HF_ENDPOINT": "ftp://x"}, "pull", "org/llama"); r.code != exitFailure || !strings.Contains(r.err, "HF_ENDPOINT") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
}

// A path is a path: nothing that exists, and nothing in a folder that exists, is a name.
func TestPathsAreNoNames(t *testing.T) {
	server, _, do := onHub(t)
	t.Chdir(t.TempDir())
	if err := os.Mkdir("here", 0o777); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"here/llama", "./org/llama", "org/llama.gguf", "org/m.nstf", "a/b/c", "here"} {
		do(nil, "inspect", p).fails(t, exitInput, "")
	}
	if n := len(server.Requests()); n > 0 {
		t.Errorf("the hub was asked %d times", n)
	}
	do(nil, "inspect", "org/llamb").fails(t, exitInput, "no such model")
	// Without an environment nobody is asked: so do all other tests.
	invokeWith(context.Background(), strings.NewReader(""), "inspect", "Qwen/Qwen3-8B").fails(t, exitInput, "not in the cache")
}

// A model that is read from a hub as it is needed becomes the same package as one that was
// downloaded, and leaves its weights on no disk.
func TestStreamedModels(t *testing.T) {
	llama, err := hubtest.Folder(os.DirFS(filepath.Join(micro, "llama-31")))
	if err != nil {
		t.Fatal(err)
	}
	exported := filepath.Join(t.TempDir(), "llama.gguf")
	must(t, "export", filepath.Join(micro, "llama-31"), "-o", exported)
	gguf, err := os.ReadFile(exported)
	if err != nil {
		t.Fatal(err)
	}
	server := hubtest.New(map[string]*hubtest.Repo{"org/llama": llama, "org/llama-GGUF": hubtest.One(map[string][]byte{"llama-Q8_0.gguf": gguf})})
	t.Cleanup(server.Close)
	text := withText(t, "llama-31")[1:]
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for i, flags := range [][]string{
		{"convert", "org/llama"},
		{"convert", "org/llama-GGUF:Q8_0"},
		{"quantize", "org/llama", "--scheme", "q4_0"},
		append([]string{"quantize", "org/llama", "--scheme", "tcq2"}, text...),
		append([]string{"quantize", "org/llama-GGUF", "--bpw", "7", "--memory", "2GiB"}, text...),
	} {
		var packages [2][]byte
		for j, stream := range []bool{true, false} {
			env := map[string]string{"HF_ENDPOINT": server.Hub.URL, "HF_HOME": at(fmt.Sprintf("cache-%d-%v", i, stream))}
			out := at(fmt.Sprintf("%d-%v.nstf", i, stream))
			line := append(slices.Clone(flags), "-o", out)
			if stream {
				line = append(line, "--stream")
			}
			if r := invokeIn(env, "", line...); r.code != exitFine {
				t.Fatalf("%q: exit %d: %s", line, r.code, r.err)
			}
			if packages[j], err = os.ReadFile(out); err != nil {
				t.Fatal(err)
			}
			weights := 0
			filepath.WalkDir(env["HF_HOME"], func(p string, d fs.DirEntry, err error) error {
				if err == nil && (strings.HasSuffix(p, ".safetensors") || strings.HasSuffix(p, ".gguf")) {
					weights++
				}
				return err
			})
			if (weights > 0) == stream {
				t.Errorf("%q: %d files of weights on the disk", line, weights)
			}
		}
		if !bytes.Equal(packages[0], packages[1]) {
			t.Errorf("%q: streamed to another package than downloaded", flags)
		}
	}
	// Beside a name, what is a path is a path.
	small, plan := at("3-true.nstf"), at("plan.json")
	pkg, err := nstf.Open(small)
	if err != nil {
		t.Fatal(err)
	}
	defer pkg.Close()
	if err := carriedPlan(t, pkg).Write(atomicfile.Scratch(plan)); err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{"HF_ENDPOINT": server.Hub.URL, "HF_HOME": at("cache-paths")}
	for _, source := range []string{"org/llama", filepath.Join(micro, "llama-31")} {
		out := at(strings.ReplaceAll(source, "/", "-") + ".nstf")
		line := append([]string{"quantize", small, "--source", source, "--plan", plan, "-o", out, "--stream"}, text...)
		if source != "org/llama" {
			invokeIn(paths, "", line...).fails(t, exitUsage, "--stream reads models from a hub")
		} else if r := invokeIn(paths, "", line...); r.code != exitFine {
			t.Errorf("%q: exit %d: %s", line, r.code, r.err)
		}
	}
	// A hub that lies about the contents leaves no package.
	server.Fault = func(r hubtest.Request, _ int) hubtest.Fault {
		if r.Storage && strings.HasPrefix(r.Range, "bytes=0-") {
			return hubtest.Fault{Flip: 60_000}
		}
		return hubtest.Fault{}
	}
	env := map[string]string{"HF_ENDPOINT": server.Hub.URL, "HF_HOME": at("cache")}
	invokeIn(env, "", "convert", "org/llama-GGUF", "-o", at("x.nstf"), "--stream").fails(t, exitFailure, "sent bytes whose hash is")
	if lies(at("x.nstf")) {
		t.Error("a package of damaged weights was written")
	}
	invokeIn(env, "", "convert", dir, "-o", at("x.nstf"), "--stream").fails(t, exitUsage, "is a path")
}

// A package that is pushed can be run by its name, with a card that its ledger filled.
func TestPushed(t *testing.T) {
	server, _, do := onHub(t)
	dir := t.TempDir()
	small := filepath.Join(dir, "small.nstf")
	must(t, append(append([]string{"quantize"}, withText(t, "llama-31")...), "--scheme", "q4_0", "-o", small)...)
	token := map[string]string{"HF_TOKEN": server.Token}
	do(nil, "push", small, "org/small").fails(t, exitInput, "needs a token")
	do(map[string]string{"HF_TOKEN": "hf_another"}, "push", small, "org/small").fails(t, exitInput, "may not write")
	if r := do(token, "push", small, "org/small", "--private", "--base-model", "org/llama"); r.code != exitFine || strings.TrimSpace(r.out) != server.Hub.URL+"/org/small" || strings.Contains(r.err, server.Token) {
		t.Fatalf("exit %d: %s%s", r.code, r.out, r.err)
	}
	repo := server.Repos["org/small"]
	files := repo.Files[repo.Commits["main"]]
	card := string(files["README.md"])
	for _, want := range []string{`base_model: "org/llama"`, "| KL divergence, nats | ", "nstf run org/small --chat", "| file | small.nstf, "} {
		if !strings.Contains(card, want) {
			t.Errorf("no %q in\n%s", want, card)
		}
	}
	if !repo.Private || strings.Contains(card, "not measured") {
		t.Error(card)
	}
	if r := do(token, "push", small, "org/small", "--base-model", "org/llama"); r.code != exitFine || !strings.Contains(r.err, "everything was there already") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	if r := do(token, "run", "org/small", "-p", "x", "--max-tokens", "1"); r.code != exitFine {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	if r := do(nil, "push", small, "org/small", "--dry-run"); r.code != exitFine || !strings.HasPrefix(r.out, "---\nlibrary_name: nstf") {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}
	// A damaged package is not uploaded, and neither is anything else.
	p, err := os.ReadFile(small)
	if err != nil {
		t.Fatal(err)
	}
	p[len(p)/2] ^= 1
	bad := filepath.Join(dir, "bad.nstf")
	if err := os.WriteFile(bad, p, 0o666); err != nil {
		t.Fatal(err)
	}
	do(token, "push", bad, "org/bad").fails(t, exitInput, "bad.nstf")
	do(token, "push", filepath.Join(micro, "llama-31"), "org/bad").fails(t, exitUnsupported, "uploading a safetensors")
	do(token, "push", small, "org/bad:Q4").fails(t, exitUsage, "not the name of a repository")
	do(token, "push", small, "org/bad@"+strings.Repeat("a", 40)).fails(t, exitUsage, "no branch")
	do(token, "push", small, "org/bad@x", "--revision", "y").fails(t, exitUsage, "another revision")
	do(token, "push", small, "org/bad", "--base-model", "x").fails(t, exitUsage, "ORG/NAME")
	if server.Repos["org/bad"] != nil {
		t.Error("a repository was made")
	}
}
