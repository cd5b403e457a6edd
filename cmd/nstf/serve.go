package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/schedule"
	"github.com/nstf/nstf/runtime/serve"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	serve.Options
	listen, keys, cert, key string
	insecure, verify, pprof bool
	alias                   []string
	context                 int64
	parallel, threads       int
	exact                   bool
	kv                      string
	attention               attentionFlag
	policy                  *device.Policy
	drain                   time.Duration
	logJSON                 bool
	cacheDisk, cacheSize    string
	cacheMost               int64
	disk                    *schedule.Disk
	device                  deviceFlag
	idle                    time.Duration
	memory                  string
	limit                   int64 // of memory
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use: "serve {MODEL|FOLDER}...", Short: "Answer programs that speak to OpenAI, Anthropic or Ollama", Args: cobra.MinimumNArgs(1),
		Long: `Answer HTTP requests about one or several models, for many clients at once.

  OpenAI     /v1/chat/completions  /v1/completions  /v1/responses  /v1/embeddings  /v1/models
  Anthropic  /v1/messages  /v1/messages/count_tokens
  Ollama     /api/chat  /api/generate  /api/embed  /api/tags  /api/show  /api/ps  /api/version
  llama.cpp  /completion  /infill  /props  /slots  /tokenize  /detokenize  /apply-template  /health
  operation  /ready  /metrics (Prometheus)
  people     /  a page to talk to the models

A model's name is its file's without the ending. Programs that ask for another name get
the model where there is one alone. Answers do not depend on how many ask at once.

Of several models, or a folder of them, each is loaded when it is asked for first; who
asks waits for that. Where --memory is full those are unloaded that nobody uses, and after
--idle in any case.

Only this machine is answered unless --listen says otherwise, and then a file with API
keys, one a line, is needed (--keys), or --insecure. SIGTERM and Ctrl-C let the answers
that are under way come to their end, for as long as --drain says; a second one does not.`,
		Example: `  nstf serve model.nstf
  curl http://127.0.0.1:8080/v1/chat/completions -d '{"messages": [{"role": "user", "content": "Hello"}]}'
  nstf serve models/ --idle 10m --memory 24GiB --alias gpt-4o=big
  nstf serve model.nstf --listen 0.0.0.0:8080 --keys keys.txt --tls-cert cert.pem --tls-key key.pem`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return a.serve(c.Context(), args, &f)
		},
	}
	s := c.Flags()
	s.StringVar(&f.listen, "listen", "127.0.0.1:8080", "address and port; port 0: any that is free")
	s.StringVar(&f.keys, "keys", "", "file with API keys, one a line; lines that begin with # are none")
	s.BoolVar(&f.insecure, "insecure", false, "answer other machines without keys")
	s.StringVar(&f.cert, "tls-cert", "", "certificate, in PEM, for HTTPS")
	s.StringVar(&f.key, "tls-key", "", "its key")
	s.StringSliceVar(&f.Origins, "cors", nil, "web pages that may ask, as https://example.org; *: all")
	s.StringSliceVar(&f.alias, "alias", nil, "further names: NAME, of the first model, or NAME=MODEL, a model's name or path")
	s.DurationVar(&f.idle, "idle", 0, "unload a model that nobody asked for so long, such as 10m; 0: when its memory is needed")
	s.StringVar(&f.memory, "memory", "", "weights that may be loaded at once, such as 24GiB; default: half of the machine's\nmemory, or what a GPU takes; and most bytes that devices give: hip:0=20GiB,cpu=8GiB")
	s.StringVar(&f.cacheDisk, "cache-disk", "", "folder that keeps what was computed of prompts, beyond memory and restarts (processor)")
	s.StringVar(&f.cacheSize, "cache-size", "10GiB", "bytes that it takes at most")
	s.Int64VarP(&f.context, "ctx", "c", 0, "positions of a conversation; 0: what the model was made for")
	s.IntVar(&f.parallel, "parallel", 8, "conversations of full length that there is memory for; shorter ones share it")
	s.IntVarP(&f.threads, "threads", "t", 0, "threads; 0: one per core")
	s.IntVarP(&f.MaxTokens, "max-tokens", "n", 0, "most tokens of an answer; 0: the context's")
	s.Int64Var(&f.MaxBody, "max-body", 16<<20, "most bytes of a request")
	s.Float64Var(&f.Rate, "rate", 0, "requests a second that each key, or address, may send; 0: any number")
	s.IntVar(&f.Burst, "burst", 10, "how many of them at once")
	s.DurationVar(&f.drain, "drain", 30*time.Second, "how long answers may take to end after a signal")
	s.BoolVar(&f.LogPrompts, "log-prompts", false, "put prompts into the log")
	s.BoolVar(&f.logJSON, "log-json", false, "log in JSON")
	s.BoolVar(&f.pprof, "pprof", false, "offer profiles at /debug/pprof, to those with a key")
	s.BoolVar(&f.verify, "verify", false, "check every hash of the packages first")
	addPrecision(s, &f.exact, &f.kv)
	f.attention.add(s)
	f.device.addSeveral(s)
	return c
}

func (f *serveFlags) check() error {
	host, _, err := net.SplitHostPort(f.listen)
	if err != nil {
		return usagef("--listen %q is no address with a port, as 127.0.0.1:8080", f.listen)
	}
	switch {
	case (f.cert == "") != (f.key == ""):
		return usagef("--tls-cert and --tls-key go together")
	case f.keys == "" && !f.insecure && !loopback(host):
		return usagef("--listen %s answers other machines: give --keys FILE, or --insecure if that is meant", f.listen)
	case f.parallel < 1 || f.context < 0 || f.threads < 0 || f.MaxTokens < 0 || f.MaxBody < 1 || f.Rate < 0 || f.idle < 0:
		return usagef("--parallel is at least 1, and no number is negative")
	}
	if err := checkKV(f.kv); err != nil {
		return err
	}
	if f.policy, err = f.attention.policy(); err != nil {
		return err
	}
	var total string
	total, f.device.memory = splitMemory(f.memory)
	if err := f.device.check(); err != nil {
		return err
	}
	if f.cacheMost, err = parseSize(f.cacheSize); err != nil || f.cacheMost < 1 {
		return usagef("--cache-size %s is no size such as 10GiB", f.cacheSize)
	}
	if total == "" {
		f.limit = f.usualMemory()
	} else if f.limit, err = parseSize(total); err != nil {
		return usagef("--memory: %v", err)
	}
	return nil
}

// splitMemory tells the bytes of all weights in --memory from those of devices, which have
// names.
func splitMemory(s string) (total, devices string) {
	var named []string
	for entry := range strings.SplitSeq(s, ",") {
		if strings.Contains(entry, "=") {
			named = append(named, entry)
		} else {
			total = entry
		}
	}
	return total, strings.Join(named, ",")
}

// loopback reports whether only this machine reaches a host.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// mostKeys bounds the file of keys.
const mostKeys = 1 << 20

// readKeys reads --keys.
func readKeys(path string) ([]string, error) {
	p, err := formats.ReadFile(path, mostKeys, "a file of keys")
	if err != nil {
		return nil, err
	}
	var keys []string
	for line := range strings.Lines(string(p)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			keys = append(keys, line)
		}
	}
	if len(keys) == 0 {
		return nil, formats.Errorf(path, "", "it holds no key")
	}
	return keys, nil
}

func (a *app) serve(ctx context.Context, paths []string, f *serveFlags) (err error) {
	if f.keys != "" {
		if f.Keys, err = readKeys(f.keys); err != nil {
			return err
		}
	}
	var handler slog.Handler = slog.NewTextHandler(a.err, nil)
	if f.logJSON {
		handler = slog.NewJSONHandler(a.err, nil)
	}
	f.Log, f.Version = slog.New(handler), newVersionReport().Version
	var certificates []tls.Certificate
	if f.cert != "" {
		c, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return formats.Errorf(f.cert, "", "%v", err)
		}
		certificates = append(certificates, c)
	}
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	if f.cacheDisk != "" {
		if f.disk, err = schedule.OpenDisk(f.cacheDisk, f.cacheMost); err != nil {
			return fmt.Errorf("--cache-disk: %w", err)
		}
		defer f.disk.Close()
	}
	sources, err := a.sources(ctx, paths, f)
	if err != nil {
		return err
	}
	models := serve.NewPool(sources, serve.PoolOptions{Memory: f.limit, Idle: f.idle, Log: f.Log})
	defer models.Close()
	if len(sources) == 1 { // it is wanted at once
		_, release, err := models.Get(ctx, "")
		if err != nil {
			return err
		}
		release()
	}
	s := serve.New(models, f.Options)
	mux := http.NewServeMux()
	mux.Handle("/", s)
	if f.pprof {
		for name, h := range map[string]http.HandlerFunc{"": pprof.Index, "profile": pprof.Profile, "trace": pprof.Trace, "symbol": pprof.Symbol, "cmdline": pprof.Cmdline} {
			mux.Handle("/debug/pprof/"+name, s.Guard(h))
		}
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(handler, slog.LevelWarn), BaseContext: func(net.Listener) context.Context { return ctx }}
	scheme := "http"
	if certificates != nil {
		scheme = "https"
		listener = tls.NewListener(listener, &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12})
	}
	drained := make(chan error, 1)
	a.interrupts.drain(func() {
		f.Log.Info("ending", "within", f.drain.String())
		go func() {
			c, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.drain)
			defer cancel()
			err := s.Drain(c) // who comes now is told when to come again
			server.Shutdown(c)
			drained <- err
		}()
	})
	fmt.Fprintf(a.err, "listening on %s://%s\n", scheme, listener.Addr())
	if !f.logJSON {
		fmt.Fprint(a.err, hints(scheme, listener.Addr().String(), len(f.Keys) > 0))
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err = <-served:
		if errors.Is(err, http.ErrServerClosed) {
			err = <-drained
		}
	case err = <-drained:
	case <-ctx.Done():
		err = ctx.Err()
	}
	server.Close()
	if errors.Is(err, context.DeadlineExceeded) {
		f.Log.Warn("answers were cut off", "after", f.drain.String())
		err = nil
	}
	return err
}

// hints tell newcomers where to go on.
func hints(scheme, addr string, keys bool) string {
	host, port, _ := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	base, key := scheme+"://"+net.JoinHostPort(host, port), ""
	if keys {
		key = ` -H "Authorization: Bearer KEY"`
	}
	return fmt.Sprintf(`  to talk to it, open %[1]s/
  for programs        %[1]s/v1 (OpenAI's), %[1]s (Anthropic's, Ollama's)
  to try it           curl %[1]s/v1/chat/completions%[2]s -d '{"messages": [{"role": "user", "content": "Hello"}]}'
`, base, key)
}
