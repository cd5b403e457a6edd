package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nstf/nstf/formats"
)

// A setting is a default of a flag that a user may change once and for all.
type setting struct {
	name     string   // of the flag, and in the file
	commands []string // that take it
	what     string
}

// settingTable lists what may be set. Flags that decide what a package holds or what a
// measurement means are not among them: a command line says those.
var settingTable = []setting{
	{"device", []string{"run", "serve", "eval", "bench", "calibrate", "plan", "quantize"}, "where models are executed: auto, cpu, hip[:N], cuda[:N], or several"},
	{"threads", []string{"run", "serve", "eval", "bench", "calibrate", "plan", "quantize"}, "threads; 0: one per core"},
	{"ctx", []string{"run", "serve"}, "positions of the context; 0: what the model was made for"},
	{"kv", []string{"run", "serve"}, "how keys and values are kept: f32, f16, q8, q5, q4 or q3"},
	{"max-tokens", []string{"run"}, "tokens of a continuation"},
	{"temperature", []string{"run"}, "divides the logits; 0 is greedy"},
	{"top-k", []string{"run"}, "keep the most likely tokens; 0: all"},
	{"top-p", []string{"run"}, "keep tokens until their probability reaches this; 1: all"},
	{"min-p", []string{"run"}, "keep tokens at least so many times as likely as the best; 0: all"},
}

// env is the variable of the environment that sets it.
func (s *setting) env() string {
	return "NSTF_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

// An environment is what the process was started with: the only place where it is read.
type environment struct {
	get    func(name string) string // of the environment; nil: nothing is set
	config string                   // file of settings, "" for none
}

// processEnvironment returns that of this process.
func processEnvironment() environment {
	e := environment{get: os.Getenv, config: os.Getenv("NSTF_CONFIG")}
	if dir, err := os.UserConfigDir(); e.config == "" && err == nil {
		e.config = filepath.Join(dir, "nstf", "config")
	}
	return e
}

// A value is what a setting was given, and where.
type settingValue struct{ text, from string }

// maxConfig bounds a file of settings, in bytes.
const maxConfig = 64 << 10

// settings reads the file of settings, then the environment, which comes first.
func (e *environment) settings() (map[string]settingValue, error) {
	all, err := readConfig(e.config)
	if err != nil || e.get == nil {
		return all, err
	}
	for _, s := range settingTable {
		if v := e.get(s.env()); v != "" {
			all[s.name] = settingValue{v, s.env()}
		}
	}
	return all, nil
}

// readConfig reads lines of "name = value"; what follows # is a remark. A file that is
// not there sets nothing.
func readConfig(path string) (map[string]settingValue, error) {
	all := map[string]settingValue{}
	if path == "" {
		return all, nil
	}
	raw, err := formats.ReadFile(path, maxConfig, "a file of settings")
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	for i, line := range bytes.Split(raw, []byte("\n")) {
		text, _, _ := strings.Cut(string(line), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		name, value, ok := strings.Cut(text, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		where := fmt.Sprintf("line %d", i+1)
		if !ok || value == "" {
			return nil, formats.Errorf(path, where, "%q is not NAME = VALUE", formats.Brief(text, 80))
		}
		if !slices.Contains(settingNames(), name) {
			return nil, formats.Errorf(path, where, "%q is not one of %s", formats.Brief(name, 80), strings.Join(settingNames(), ", "))
		}
		all[name] = settingValue{value, path}
	}
	return all, nil
}

func settingNames() (names []string) {
	for _, s := range settingTable {
		names = append(names, s.name)
	}
	return names
}

// settingFrom marks a flag that was set by no command line, with the place that did.
const settingFrom = "nstf-setting"

// useSettings gives a command's flags that were left out what is set elsewhere.
func (a *app) useSettings(c *cobra.Command) error {
	var mine []*setting
	for i, s := range settingTable {
		if slices.Contains(s.commands, c.Name()) {
			mine = append(mine, &settingTable[i])
		}
	}
	if len(mine) == 0 {
		return nil
	}
	all, err := a.env.settings()
	if err != nil {
		return err
	}
	for _, s := range mine {
		v, ok := all[s.name]
		f := c.Flags().Lookup(s.name)
		if !ok || f.Changed {
			continue
		}
		if err := f.Value.Set(v.text); err != nil {
			return usagef("%s sets --%s to %s, which %s", v.from, s.name, quoted(v.text), cmp.Or(notThat(err), "is refused: "+err.Error()))
		}
		c.Flags().SetAnnotation(s.name, settingFrom, []string{v.from})
	}
	return nil
}

// given reports whether a flag has a value from the command line or from a setting.
func given(s *pflag.FlagSet, name string) bool {
	f := s.Lookup(name)
	return f.Changed || f.Annotations[settingFrom] != nil
}

// A configReport is what `nstf config --json` prints.
type configReport struct {
	File     string        `json:"file"`
	Exists   bool          `json:"exists"`
	Settings []configEntry `json:"settings"`
	Folders  configFolders `json:"folders"`
}

type configEntry struct {
	Name     string `json:"name"`
	Variable string `json:"variable"`
	Value    string `json:"value"` // "" for the program's own default
	From     string `json:"from"`
	What     string `json:"what"`
}

type configFolders struct {
	Cache     string   `json:"cache"`
	Libraries []string `json:"gpu_libraries"`
}

func (a *app) configCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "config", Short: "Print defaults of flags, and where they come from", Args: a.configArgs,
		Long: `Print the defaults that a file of settings and the environment give to flags. A flag
on the command line comes first, then a variable of the environment, then the file, which
holds lines such as

  device = cuda:0      # a remark
  threads = 8

NSTF_CONFIG names another file. What decides the bytes of a package or the meaning of a
measurement cannot be set there.`,
		Example: "  nstf config\n  NSTF_DEVICE=cpu nstf config --json",
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := a.env.settings()
			if err != nil {
				return err
			}
			r := configReport{File: a.env.config, Settings: []configEntry{}}
			if _, err := os.Stat(a.env.config); err == nil {
				r.Exists = true
			}
			for _, s := range settingTable {
				v := all[s.name]
				r.Settings = append(r.Settings, configEntry{s.name, s.env(), v.text, v.from, s.what})
			}
			if dir, err := os.UserCacheDir(); err == nil {
				r.Folders.Cache = filepath.Join(dir, "nstf")
			}
			r.Folders.Libraries = append([]string{}, gpuLibraries()...)
			if asJSON {
				return printJSON(a.out, r)
			}
			a.printConfig(&r)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// configArgs wants none, and tells those who would set a default by this command how
// one is set.
func (a *app) configArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 && slices.Contains([]string{"set", "get", "unset", "list"}, args[0]) {
		args = args[1:]
	}
	if len(args) == 0 {
		return cobra.NoArgs(c, args)
	}
	name, value, _ := strings.Cut(strings.Join(args, "="), "=")
	name = strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(strings.TrimLeft(name, "-"), "NSTF_"), "_", "-"))
	i := slices.IndexFunc(settingTable, func(s setting) bool { return s.name == name })
	if i < 0 {
		return &usageError{fmt.Errorf("%s is not one of %s", quoted(args[0]), strings.Join(settingNames(), ", ")), didYouMean("", name, settingNames())}
	}
	s := &settingTable[i]
	value = cmp.Or(value, "VALUE")
	return &usageError{errors.New("nstf config prints defaults, and sets none"),
		fmt.Sprintf("write the line %s = %s into %s, or set %s=%s in the environment", s.name, value, cmp.Or(a.env.config, "the file that NSTF_CONFIG names"), s.env(), value)}
}

func (a *app) printConfig(r *configReport) {
	t := newTable(3, "setting", "value", "from")
	for _, s := range r.Settings {
		from := s.From
		if from == r.File {
			from = "the file"
		}
		value := s.Value
		if value == "" {
			value, from = "-", s.Variable+" is not set"
		}
		t.AppendRow([]any{s.Name, clip(value, 30), from})
	}
	printTable(a.out, t)
	exists := ""
	if !r.Exists {
		exists = " (not there)"
	}
	fmt.Fprintf(a.out, "\nfile     %s%s\ncache    %s\n", formats.Printable(r.File), exists, formats.Printable(r.Folders.Cache))
	for _, dir := range r.Folders.Libraries {
		fmt.Fprintf(a.out, "library  %s\n", formats.Printable(dir))
	}
}
