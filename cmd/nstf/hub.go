package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/hub"
)

// modelArgs are the commands whose arguments are models: the first of them, or all.
var modelArgs = map[string]int{
	"run": 1, "eval": 1, "bench": 1, "tokenize": 1, "inspect": 1, "export": 1, "convert": 1, "quantize": 1, "plan": 1, "calibrate": 1, "verify": 1, "place": 1,
	"serve": all, "report": all, "diff": all, "doctor": all,
}

const all = 1 << 30

// modelFlags are flags of commands that name a model.
var modelFlags = map[string][]string{"eval": {"ref"}, "quantize": {"source"}}

// fetchModels puts paths in the place of names on a hub, and downloads what is not there,
// or has it streamed.
func (a *app) fetchModels(c *cobra.Command, args []string) error {
	fetch := a.fetched
	stream, _ := c.Flags().GetBool("stream") // false where there is none
	named, first := false, ""
	if stream {
		memory, err := streamMemory(c)
		if err != nil {
			return err
		}
		fetch = func(ctx context.Context, arg string) (string, error) {
			r, ok, err := hubRef(arg, a.endpoint())
			if err != nil || !ok {
				first = cmp.Or(first, arg)
				return arg, err
			}
			named = true
			return a.streamed(ctx, r, memory)
		}
	}
	for i := range min(modelArgs[c.Name()], len(args)) {
		at, err := fetch(c.Context(), args[i])
		if err != nil {
			return err
		}
		args[i] = at
	}
	for _, name := range modelFlags[c.Name()] {
		f := c.Flags().Lookup(name)
		if f.Value.String() == "" {
			continue
		}
		at, err := fetch(c.Context(), f.Value.String())
		if err != nil {
			return err
		}
		if at != f.Value.String() {
			if err := f.Value.Set(at); err != nil {
				return err
			}
		}
	}
	if stream && !named {
		return &usageError{err: fmt.Errorf("--stream reads models from a hub, and %s is a path", quoted(first)), hint: "leave --stream away, or name the model as the hub does: ORG/NAME"}
	}
	return nil
}

// hubRef returns the reference that an argument is, if it can be no path: it names a hub,
// or reads like ORG/NAME where neither that nor a folder ORG is here.
func hubRef(arg, endpoint string) (r hub.Ref, ok bool, err error) {
	if hub.Explicit(arg, endpoint) {
		r, err = hub.Parse(arg, endpoint)
		return r, true, err
	}
	if !hub.LooksLike(arg) {
		return r, false, nil
	}
	for _, p := range []string{arg, path.Dir(strings.SplitN(arg, ":", 2)[0])} {
		if _, err := os.Lstat(p); !errors.Is(err, fs.ErrNotExist) {
			return r, false, nil
		}
	}
	r, err = hub.Parse(arg, endpoint)
	return r, true, err
}

// fetched returns where a model lies: the path itself, or what a hub was asked for.
func (a *app) fetched(ctx context.Context, arg string) (string, error) {
	r, ok, err := hubRef(arg, a.endpoint())
	if err != nil || !ok {
		return arg, err
	}
	s, err := a.pull(ctx, a.hub(), r)
	if err != nil {
		return "", err
	}
	return s.Path(), nil
}

// addStream adds --stream.
func addStream(s *pflag.FlagSet) {
	s.Bool("stream", false, "read the weights from the hub as they are needed, without room for them on the disk")
}

// streamMemory returns what weights may take that are read from a hub: a quarter of the
// memory that a command is given, 0 where it is given none.
func streamMemory(c *cobra.Command) (int64, error) {
	f := c.Flags().Lookup("memory")
	if f == nil || f.Value.String() == "" {
		return 0, nil
	}
	limit, err := parseSize(f.Value.String())
	if err != nil {
		return 0, usagef("--memory: %v", err)
	}
	return max(min(limit/4, hub.DefaultStreamMemory), 1), nil
}

// streamed returns where a model would lie that is read from a hub in parts.
func (a *app) streamed(ctx context.Context, r hub.Ref, memory int64) (string, error) {
	c := a.hub()
	s, err := c.Open(ctx, r)
	if err != nil {
		return "", err
	}
	step, end := a.progress("downloading", "bytes")
	c.Progress = step
	st, err := c.Stream(ctx, s, memory)
	end()
	if err != nil {
		return "", err
	}
	if a.remote == nil {
		a.remote = formats.Remote{}
	}
	maps.Copy(a.remote, st.Remote())
	a.streams += st.Memory()
	debug.SetGCPercent(20) // pieces stay: garbage would be let grow to as much as they are
	if bytes, _ := st.Bytes(); bytes > 0 {
		fmt.Fprintf(a.err, "reading %s at %s from the hub as it is needed: %s\n", formats.Printable(r.String()), s.Commit[:12], size(bytes))
	}
	return s.Path(), nil
}

// endpoint returns the address of the hub that the environment names.
func (a *app) endpoint() string {
	if a.env.get == nil {
		return hub.DefaultEndpoint
	}
	return strings.TrimRight(cmp.Or(a.env.get("HF_ENDPOINT"), hub.DefaultEndpoint), "/")
}

// hub returns the hub that the environment names, with its cache. Where no environment
// is, nobody is asked.
func (a *app) hub() *hub.Client {
	get := a.env.get
	if get == nil {
		return &hub.Client{Endpoint: a.endpoint(), Offline: true}
	}
	c := &hub.Client{
		Endpoint: a.endpoint(),
		Agent:    "nstf/" + newVersionReport().Version,
		Cache:    hub.Cache{Root: cacheFolder(get)},
		Offline:  isOn(get("HF_HUB_OFFLINE")) || isOn(get("TRANSFORMERS_OFFLINE")),
		Note:     func(line string) { fmt.Fprintln(a.err, formats.Printable(line)) },
	}
	if !isOn(get("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		c.Token = hubToken(get)
	}
	return c
}

// Folders and variables are those of huggingface_hub 1.33 (constants.py, utils/_auth.py).

func hubHome(get func(string) string) string {
	if h := get("HF_HOME"); h != "" {
		return expanded(h)
	}
	caches := get("XDG_CACHE_HOME")
	if caches == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			home = "."
		}
		caches = filepath.Join(home, ".cache")
	}
	return filepath.Join(expanded(caches), "huggingface")
}

func cacheFolder(get func(string) string) string {
	if c := cmp.Or(get("HF_HUB_CACHE"), get("HUGGINGFACE_HUB_CACHE")); c != "" {
		return expanded(c)
	}
	return filepath.Join(hubHome(get), "hub")
}

func expanded(p string) string {
	home, err := os.UserHomeDir()
	if rest, ok := strings.CutPrefix(p, "~/"); ok && err == nil {
		return filepath.Join(home, rest)
	}
	return p
}

// hubToken returns the user's token, "" for none.
func hubToken(get func(string) string) string {
	clean := func(s string) string { return strings.TrimSpace(strings.NewReplacer("\r", "", "\n", "").Replace(s)) }
	if t := clean(cmp.Or(get("HF_TOKEN"), get("HUGGING_FACE_HUB_TOKEN"))); t != "" {
		return t
	}
	file := get("HF_TOKEN_PATH")
	if file == "" {
		file = filepath.Join(hubHome(get), "token")
	}
	p, err := formats.ReadFile(expanded(file), 4096, "a token")
	if err != nil {
		return ""
	}
	return clean(string(p))
}

func isOn(s string) bool {
	return slices.Contains([]string{"1", "ON", "YES", "TRUE"}, strings.ToUpper(s))
}

// pull downloads what a model has that the cache has not.
func (a *app) pull(ctx context.Context, c *hub.Client, r hub.Ref) (*hub.Snapshot, error) {
	s, err := c.Open(ctx, r)
	if err != nil {
		return nil, err
	}
	missing := s.Missing()
	if len(missing) == 0 {
		return s, nil
	}
	var bytes int64
	for _, f := range missing {
		bytes += f.Size
	}
	fmt.Fprintf(a.err, "downloading %s at %s: %d %s, %s, into %s\n", formats.Printable(r.String()), s.Commit[:12], len(missing), plural(len(missing), "file", "files"), size(bytes), formats.Printable(c.Cache.Root))
	step, end := a.progress("downloading", "bytes")
	c.Progress = step
	err = c.Pull(ctx, s)
	end()
	if err == nil {
		return s, nil
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, errInterrupted) {
		fmt.Fprintln(a.err, "what was downloaded is kept: the same command goes on there")
	}
	return nil, err
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func (a *app) pullCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "pull NAME...", Short: "Download models from Hugging Face's hub", Args: cobra.MinimumNArgs(1),
		Long: `Download models into the cache that huggingface_hub, transformers and vLLM use, and
print where each lies. All commands take such names and download by themselves:

  ORG/NAME            the model: safetensors with tokenizer, one GGUF file, or a package
  ORG/NAME@REVISION   at a branch, tag or commit
  ORG/NAME:Q4_K_M     of several GGUF files the one of this quantization
  ORG/NAME:FILE.gguf  one file; hf://ORG/NAME@REVISION/FILE too

Every file is held to the hash that the hub says. A download that was interrupted goes on
where it was. HF_TOKEN or the token of "hf auth login" opens private and gated models,
HF_ENDPOINT names a mirror, HF_HUB_CACHE or HF_HOME another folder, and HF_HUB_OFFLINE=1
asks nobody.`,
		Example: "  nstf pull Qwen/Qwen3-0.6B\n  nstf pull unsloth/gemma-4-12b-it-GGUF:Q4_K_M\n  nstf run Qwen/Qwen3-0.6B --chat",
		RunE: func(c *cobra.Command, args []string) error {
			type pulled struct {
				Name   string `json:"name"`
				Commit string `json:"commit"`
				Bytes  int64  `json:"bytes"`
				Path   string `json:"path"`
			}
			var done []pulled
			h := a.hub()
			for _, arg := range args {
				r, err := hub.Parse(arg, h.Endpoint)
				if err != nil {
					return &usageError{err: err, hint: "nstf pull ORG/NAME, as the hub's page says: nstf pull Qwen/Qwen3-0.6B"}
				}
				s, err := a.pull(c.Context(), h, r)
				if err != nil {
					return err
				}
				done = append(done, pulled{r.String(), s.Commit, s.Bytes(), s.Path()})
				if !asJSON {
					fmt.Fprintln(a.out, formats.Printable(s.Path()))
				}
			}
			if asJSON {
				return printJSON(a.out, done)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *app) listCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "list", Short: "List the models that were downloaded", Args: cobra.NoArgs,
		Long: `List the models in the cache, whoever downloaded them. Sizes are of all files of a
revision; contents that revisions share lie on the disk once.`,
		Example: "  nstf list\n  nstf list --json",
		RunE: func(*cobra.Command, []string) error {
			h := a.hub()
			models, err := h.Cache.Models()
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.out, struct {
					Cache  string       `json:"cache"`
					Models []hub.Cached `json:"models"`
				}{h.Cache.Root, append([]hub.Cached{}, models...)})
			}
			if len(models) == 0 {
				fmt.Fprintf(a.err, "no models in %s; nstf pull ORG/NAME downloads one\n", formats.Printable(h.Cache.Root))
				return nil
			}
			t := newTable(2, "model", "revision", "files", "size", "changed")
			for _, m := range models {
				at := strings.Join(m.Revisions, ", ")
				if at == "" {
					at = m.Commit[:12]
				}
				files := fmt.Sprint(m.Files)
				if m.Broken > 0 {
					files += fmt.Sprintf(", %d gone", m.Broken)
				}
				t.AppendRow([]any{formats.Printable(m.Repo), formats.Printable(at), files, size(m.Bytes), m.Changed.Format("2006-01-02")})
			}
			printTable(a.out, t)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *app) removeCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "remove NAME...", Short: "Remove downloaded models from the cache", Args: cobra.MinimumNArgs(1),
		Long: `Remove models from the cache, which other programs share: ORG/NAME with all its
revisions and what was begun of a download, ORG/NAME@REVISION with what no other revision
holds.`,
		Example: "  nstf remove Qwen/Qwen3-0.6B\n  nstf remove Qwen/Qwen3-0.6B@v1.0",
		RunE: func(_ *cobra.Command, args []string) error {
			h := a.hub()
			for _, arg := range args {
				r, err := hub.Parse(arg, h.Endpoint)
				if err != nil {
					return &usageError{err: err, hint: "nstf list shows names"}
				}
				if r.File != "" || r.Variant != "" {
					return &usageError{err: fmt.Errorf("%s is one file of a model", quoted(arg)), hint: "nstf remove " + r.Repo + " removes all that is there of it"}
				}
				freed, err := h.Cache.Remove(r, !strings.Contains(arg, "@"))
				if err != nil {
					return err
				}
				fmt.Fprintf(a.out, "%s: removed, %s\n", formats.Printable(r.String()), size(freed))
			}
			return nil
		},
	}
	return c
}
