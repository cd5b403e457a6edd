package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/quantize/fit"
)

// What people type who know llama.cpp is taken where it means the same here, and else
// answered with what does it. Its names are those of its tools' --help.

// aliases are names of flags by command that mean the same as ours.
var aliases = map[string]map[string]string{
	"run": {
		"n-predict": "max-tokens", "predict": "max-tokens", "ctx-size": "ctx", "context-shift": "ctx-shift", "temp": "temperature",
		"repeat-penalty": "repetition-penalty", "system-prompt": "system", "conversation": "chat", "interactive": "chat",
	},
	"eval":    {"file": "text", "ctx-size": "ctx"},
	"bench":   {"n-prompt": "prompt", "n-gen": "gen", "n-depth": "depth", "repetitions": "repeat"},
	"convert": {"outfile": "output", "outtype": "dtype"},
	"export":  {"outfile": "output", "outtype": "dtype"},
}

// acceptAliases makes a command take the names of [aliases].
func acceptAliases(c *cobra.Command) {
	if names := aliases[c.Name()]; names != nil {
		c.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
			if ours, ok := names[name]; ok {
				name = ours
			}
			return pflag.NormalizedName(name)
		})
	}
}

// otherTools are names of programs that people look for, and what does their work.
var otherTools = map[string]string{
	"cli": "nstf run MODEL --chat", "llama-cli": "nstf run MODEL --chat", "generate": "nstf run MODEL -p TEXT",
	"perplexity": "nstf eval MODEL --text FILE", "llama-perplexity": "nstf eval MODEL --text FILE", "imatrix": "nstf calibrate MODEL --calib FILE -o OUT.nstats",
	"llama-tokenize": "nstf tokenize MODEL -p TEXT", "llama-quantize": "nstf quantize MODEL -o OUT.nstf --scheme NAME", "llama-bench": "nstf bench MODEL", "show": "nstf inspect MODEL", "info": "nstf inspect MODEL",
	"download": "nstf pull ORG/NAME", "rm": "nstf remove ORG/NAME", "ls": "nstf list",
}

const wholeModels = "--device hip:0,hip:1,cpu has devices share a model (--split layers or tensor), --memory hip:0=20GiB bounds what one gives, and nstf place MODEL shows how that comes out"

// flagHints say what to do instead of a flag of llama.cpp or vLLM.
var flagHints = []struct {
	flags, hint string
}{
	{"-ngl --gpu-layers --n-gpu-layers -ot --override-tensor -sm --split-mode -ts --tensor-split -mg --main-gpu -cmoe --cpu-moe -ncmoe --n-cpu-moe", wholeModels},
	{"-hff --hf-file", "name the file behind the model: ORG/NAME:FILE.gguf"},
	{"-mu --model-url -dr --docker-repo", "name the model on the hub, ORG/NAME, or download the file first"},
	{"-ctk --cache-type-k -ctv --cache-type-v", "--kv f32, f16, q8, q5, q4 or q3 says how keys and values are kept, both alike"},
	{"-fa --flash-attn -b --batch-size -ub --ubatch-size -tb --threads-batch --mlock --no-mmap --mmap --no-warmup -nkvo --no-kv-offload", "leave it out: there is nothing to set, nstf does what is fastest"},
	{"-j --json", "--json-schema takes a schema or its file"},
	{"--grammar-file -jf --json-schema-file", "--grammar FILE is a grammar in GBNF, --json-schema FILE a schema"},
	{"-r --reverse-prompt", "--stop TEXT ends before a text"},
	{"--presence-penalty --frequency-penalty --mirostat --typical --xtc-probability --dry-multiplier --top-n-sigma --samplers", "not implemented: --temperature, --top-k, --top-p, --min-p, --repetition-penalty and --stop are"},
	{"--lora --lora-scaled --control-vector", "not implemented: merge adapters into the model before nstf convert"},
	{"-md --model-draft --draft-max --draft-min -hfd --hf-repo-draft -ngld -cd", "there are no draft models yet: every token is decoded by the model itself"},
	{"-e --escape", `leave it out: \n in a text is not expanded; write it as the shell does, -p $'one\ntwo', or give a file by -f FILE`},
	{"-st --single-turn", "--chat -p TEXT answers once"},
	{"-np --parallel", "leave it out: one text at a time is continued; nstf serve answers several at once"},
	{"--color -co --simple-io --verbose-prompt --log-disable -lv --verbosity", "leave it out: the text goes to standard output as it is, everything else to standard error; --stats prints speeds"},
	{"--kl-divergence --kl-divergence-base", "--save-ref FILE stores the reference, --ref FILE compares with it"},
	{"--chunks", "--max-tokens N bounds the text; --protocol llama.cpp counts windows as that project does"},
	{"--max-model-len", "--ctx N bounds the context"},
	{"--gpu-memory-utilization --tensor-parallel-size -tp --pipeline-parallel-size -pp", wholeModels},
	{"--dtype --load-format --trust-remote-code --enforce-eager --swap-space", "leave it out: a model is computed as it is stored, by what its file says"},
	{"--list-devices", "nstf doctor lists GPUs"},
	{"--imatrix", "--stats FILE takes an importance matrix"},
	{"--output-tensor-type", "--head-scheme NAME"}, {"--token-embedding-type", "--embed-scheme NAME"},
}

// serveHints say what to do instead of a flag of llama-server or vllm serve.
var serveHints = map[string]string{
	"--host": listenHint, "--port": listenHint, "--api-key": keysHint, "--api-key-file": keysHint,
	"--served-model-name": "--alias NAME gives the first model a further name",
	"-np":                 "--parallel N is how many conversations of full length there is memory for",
	"--max-num-seqs":      "--parallel N is how many conversations of full length there is memory for",
	"--chat-template":     "a model's own chat template is used: nstf convert keeps chat_template.jinja as the directory has it",
	"--ssl-cert-file":     "--tls-cert FILE", "--ssl-certfile": "--tls-cert FILE", "--ssl-key-file": "--tls-key FILE", "--ssl-keyfile": "--tls-key FILE",
}

const (
	listenHint = "--listen ADDRESS:PORT, as --listen 127.0.0.1:8080"
	keysHint   = "--keys FILE holds keys, one a line"
)

func habitHint(command, flag string) string {
	if h := serveHints[flag]; h != "" && command == "serve" {
		return h
	}
	switch {
	case command == "run" && flag == "--repeat-last-n":
		return "--repetition-window N; 0 looks back at all"
	case command == "bench" && (flag == "-o" || flag == "--output" || flag == "-oe" || flag == "--output-err"):
		return "--json prints JSON, which jq turns into rows; without it a table is printed"
	case command == "tokenize" && (flag == "--no-bos" || flag == "--show-count"):
		return "--no-special adds neither BOS nor EOS; a token is a line, so that wc -l counts them"
	case command == "bench" && (flag == "-pg" || flag == "-gp"):
		return "--prompt N and --gen N are timed one after the other in one run, --depth N tokens stand in front"
	case command == "run" && flag == "--keep":
		return "leave it out: --ctx-shift keeps the first token, and with --chat the system message"
	}
	for _, h := range flagHints {
		if slices.Contains(strings.Fields(h.flags), flag) {
			return h.hint
		}
	}
	return ""
}

// idleFlags are flags of llama.cpp that change no result here, with what follows them.
var idleFlags = map[string]struct{ number, word bool }{
	"-b": {number: true}, "--batch-size": {number: true}, "-ub": {number: true}, "--ubatch-size": {number: true}, "-tb": {number: true}, "--threads-batch": {number: true},
	"-fa": {word: true}, "--flash-attn": {word: true}, "-co": {word: true}, "--color": {word: true},
	"--mlock": {}, "--no-mmap": {}, "--mmap": {}, "--no-warmup": {}, "--log-disable": {}, "--simple-io": {}, "--jinja": {},
	"-mmp": {word: true}, "-nopo": {word: true}, "--no-op-offload": {word: true}, "--prio": {number: true}, "--delay": {number: true}, "--progress": {},
}

// isIdle reports whether a flag of a command is one of [idleFlags], and whether value
// belongs to it.
func isIdle(command, flag, value string) (with, ok bool) {
	if command == "tokenize" {
		return false, slices.Contains([]string{"--stdin", "--no-escape", "--log-disable"}, flag)
	}
	h, ok := idleFlags[flag]
	if !ok || command != "run" && command != "eval" && command != "bench" {
		return false, false
	}
	return h.number && value != "" || h.word && slices.Contains([]string{"on", "off", "auto", "0", "1"}, value), true
}

// wholeOnGPU reports whether -ngl asks for what --device does anyway: auto and a GPU that
// is named take a whole model.
func wholeOnGPU(flag, value string, args []string) bool {
	if !slices.Contains(layers, flag) {
		return false
	}
	at := slices.Index(args, "--device")
	if slices.Contains(args, "--device=cpu") || at >= 0 && at+1 < len(args) && args[at+1] == "cpu" {
		return false
	}
	n, err := strconv.Atoi(value)
	return err == nil && n != 0 || value == "all" || value == "auto"
}

// layers are llama.cpp's names for how many layers lie on a GPU.
var layers = []string{"-ngl", "--gpu-layers", "--n-gpu-layers"}

// translate rewrites what pflag could not read as it was meant: flags of one dash and
// several letters, -m in front of the model, and numbers that mean something else. idle
// are the flags that it left out because they change nothing.
func translate(root *cobra.Command, args []string) (out, idle []string, err error) {
	c, left, err := root.Find(args)
	if err == nil && c == root && len(left) > 0 && !strings.HasPrefix(left[0], "-") && left[0] != cobra.ShellCompRequestCmd && left[0] != cobra.ShellCompNoDescRequestCmd && left[0] != "help" && left[0] != "completion" {
		return nil, nil, unknownCommand(root, left)
	}
	if err != nil || c == root || modelArgs[c.Name()] == 0 {
		return args, nil, nil
	}
	name := slices.Index(args, c.Name())
	out = slices.Clone(args[:name+1])
	var model []string
	for rest := args[name+1:]; len(rest) > 0; {
		flag, n := rest[0], 1
		if flag == "--" {
			out = append(out, rest...)
			break
		}
		key, value, joined := strings.Cut(flag, "=")
		if !joined && len(rest) > 1 {
			value = rest[1]
		}
		taken := func() { // the value is part of what is rewritten
			if n = 2; joined {
				n = 1
			}
		}
		idles := func(with bool) {
			if with {
				taken()
			}
			idle = append(idle, strings.Join(rest[:min(n, len(rest))], " "))
		}
		with, nothing := isIdle(c.Name(), key, value)
		switch {
		case key == "-m" || key == "--model" || key == "-hf" || key == "--hf-repo":
			if value == "" {
				return nil, nil, usagef("%s needs a model", key)
			}
			model = append(model, value)
			taken()
		case nothing:
			idles(with)
		case key == "-t" && value != "" && c.Flags().ShorthandLookup("t") == nil:
			idles(true)
		case c.Flags().Lookup("device") != nil && c.Name() != "plan" && wholeOnGPU(key, value, args):
			idles(true)
		case slices.Contains(layers, key) && value == "0":
			out = append(out, "--device", "cpu")
			taken()
		case c.Name() == "run" && (key == "-cnv"):
			out = append(out, "--chat")
		case c.Name() == "run" && slices.Contains([]string{"-no-cnv", "--no-conversation", "--no-display-prompt"}, key):
		case c.Name() == "run" && key == "-sys":
			out = append(out, "--system="+value)
			taken()
		case c.Name() == "run" && (key == "-s" || key == "--seed") && value == "-1": // another every time
			taken()
		case c.Name() == "run" && key == "--repeat-last-n":
			v, err := strconv.Atoi(value)
			if err != nil || v == 0 {
				return nil, nil, &usageError{fmt.Errorf("--repeat-last-n %s has no like here", quoted(value)), "--repetition-window N looks back at N tokens, 0 at all of them; --repetition-penalty 1 looks at none"}
			}
			out = append(out, fmt.Sprint("--repetition-window=", max(v, 0)))
			taken()
		case multiLetter(key) && habitHint(c.Name(), key) != "":
			return nil, nil, &usageError{fmt.Errorf("unknown flag: %s", key), habitHint(c.Name(), key)}
		default:
			out = append(out, flag)
			if takesValue(c, flag) && len(rest) > 1 {
				out = append(out, rest[1])
				n = 2
			}
		}
		rest = rest[min(n, len(rest)):]
	}
	return slices.Insert(out, name+1, model...), idle, nil
}

// multiLetter reports whether pflag would read a word as several flags of one letter.
func multiLetter(s string) bool { return len(s) > 2 && s[0] == '-' && s[1] != '-' }

// takesValue reports whether the word behind a flag is its value.
func takesValue(c *cobra.Command, word string) bool {
	var f *pflag.Flag
	switch {
	case strings.Contains(word, "="):
	case strings.HasPrefix(word, "--"):
		f = c.Flags().Lookup(word[2:])
	case len(word) == 2 && word[0] == '-':
		f = c.Flags().ShorthandLookup(word[1:])
	}
	return f != nil && f.NoOptDefVal == ""
}

// mixtures are llama.cpp's names for files that mix several types, with the scheme that
// most of their weights have. Source: the list of llama-quantize's --help.
var mixtures = map[string]string{
	"q2_k_s": "q2_k", "q3_k_s": "q3_k", "q3_k_m": "q3_k", "q3_k_l": "q3_k", "q4_k_s": "q4_k", "q4_k_m": "q4_k", "q5_k_s": "q5_k", "q5_k_m": "q5_k",
	"iq2_m": "iq2_s", "iq3_xs": "iq3_s", "iq3_m": "iq3_s",
}

// schemeNames are the schemes that a flag may name.
func schemeNames() (names []string) {
	for _, c := range fit.Codes() {
		names = append(names, c.String())
	}
	return names
}

// readScheme returns the scheme that is meant by a flag, in any case of letters.
func readScheme(flag, name string) (string, error) {
	lower := strings.ToLower(name)
	if name == "" || slices.Contains(schemeNames(), lower) {
		return lower, nil
	}
	e := &usageError{err: fmt.Errorf("%s %s is none of the schemes: %s", flag, quoted(name), strings.Join(schemeNames(), ", "))}
	if s := mixtures[lower]; s != "" {
		e.err = fmt.Errorf("%s %s is llama.cpp's name for a mixture of schemes", flag, quoted(name))
		e.hint = fmt.Sprintf("--scheme %s gives all linear layers what most of it has; --size N --schemes ggml with --calib mixes what loses least in a file of N bytes", s)
	} else {
		e.hint = didYouMean("", name, schemeNames())
	}
	return "", e
}

// readSchemes is readScheme for a list, or one of the words for several.
func readSchemes(flag, list string) (string, error) {
	if list == "all" || list == "ggml" {
		return list, nil
	}
	var out []string
	for _, name := range strings.Split(list, ",") {
		s, err := readScheme(flag, strings.TrimSpace(name))
		if err != nil {
			return "", err
		}
		out = append(out, s)
	}
	return strings.Join(out, ","), nil
}

// quoted shows a word of the command line.
func quoted(s string) string { return strconv.Quote(formats.Brief(s, 80)) }
