package hf

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/safetensors"
)

// small lists the files that are read whole, with the most bytes they may
// have: the largest tokenizer.json in circulation is 33 MB.
var small = map[string]int64{
	"config.json":             4 << 20,
	"generation_config.json":  4 << 20,
	"tokenizer.json":          256 << 20,
	"tokenizer_config.json":   32 << 20,
	"special_tokens_map.json": 16 << 20,
	"added_tokens.json":       16 << 20,
	"vocab.json":              64 << 20,
	"merges.txt":              64 << 20,
	"tokenizer.model":         64 << 20,
	"chat_template.jinja":     16 << 20,
	"chat_template.json":      16 << 20,
	"quantize_config.json":    16 << 20,
	"quant_config.json":       16 << 20,
}

// TemplateDir is the folder in which a model directory keeps chat templates
// besides the default one, each as NAME.jinja.
const TemplateDir = "additional_chat_templates"

// MaxSmall returns the most bytes that one of the small files may have, by its path
// from the directory.
func MaxSmall(name string) int64 {
	if path.Dir(name) == TemplateDir {
		name = "chat_template.jinja"
	}
	if n, ok := small[name]; ok {
		return n
	}
	return 16 << 20
}

// maxTemplates bounds the files taken from TemplateDir; two or three are usual.
const maxTemplates = 64

// A Dir is an open model directory.
type Dir struct {
	remote     formats.Remote
	path       string
	config     *Config
	generation *Config
	files      map[string][]byte
	others     []string
	weights    *safetensors.File
	opened     string // the name that weights were opened by: a file, or an index
	tensors    []formats.Tensor
	method     string
}

// Open opens a model directory. It needs a config.json, and weights in
// model.safetensors, in the shards of a model.safetensors.index.json, or in a
// single .safetensors file of another name. A directory whose weights are
// stored otherwise is an [formats.UnsupportedError]; other errors are those of
// the operating system and [formats.FormatError].
func Open(dir string) (*Dir, error) { return OpenFrom(nil, dir) }

// OpenFrom is [Open] where some of the directory's files may not be on the disk; the
// directory is.
func OpenFrom(remote formats.Remote, dir string) (*Dir, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	d := &Dir{remote: remote, path: dir, files: make(map[string][]byte)}
	names := remote.Names(dir)
	for _, e := range entries {
		if e.IsDir() {
			if _, file := small[e.Name()]; file {
				return nil, formats.Errorf(filepath.Join(dir, e.Name()), "", "a directory, not a regular file")
			}
			continue
		}
		if !slices.Contains(names, e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	for _, step := range []func([]string) error{d.readFiles, d.readTemplates, d.readPooling, d.readConfigs, d.openWeights} {
		if err := step(names); err != nil {
			d.Close()
			return nil, err
		}
	}
	return d, nil
}

func (d *Dir) readFiles(names []string) error {
	for _, name := range names {
		limit, ok := small[name]
		if !ok {
			if !isWeights(name) {
				d.others = append(d.others, name)
			}
			continue
		}
		p, err := d.remote.ReadFile(filepath.Join(d.path, name), limit, "such a file")
		if err != nil {
			return err
		}
		d.files[name] = p
	}
	return nil
}

// readTemplates reads the chat templates that lie in a folder of their own.
func (d *Dir) readTemplates([]string) error {
	names, err := TemplateFiles(d.path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if d.files[name], err = formats.ReadFile(filepath.Join(d.path, filepath.FromSlash(name)), small["chat_template.jinja"], "a chat template"); err != nil {
			return err
		}
	}
	return nil
}

// PoolingFile is where sentence-transformers says how hidden states become one vector.
const PoolingFile = "1_Pooling/config.json"

// readPooling reads it, where it is there.
func (d *Dir) readPooling([]string) error {
	p, err := formats.ReadFile(filepath.Join(d.path, filepath.FromSlash(PoolingFile)), small["config.json"], "a configuration")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		d.files[PoolingFile] = p
	}
	return err
}

// TemplateFiles lists the chat templates in a directory's TemplateDir, as
// paths from the directory with slashes. It is empty where there is none.
func TemplateFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, TemplateDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if !e.IsDir() && filepath.Ext(e.Name()) == ".jinja" {
			out = append(out, path.Join(TemplateDir, e.Name()))
		}
	}
	if len(out) > maxTemplates {
		return nil, formats.Errorf(filepath.Join(dir, TemplateDir), "", "%d chat templates: more than %d", len(out), maxTemplates)
	}
	return out, nil
}

func (d *Dir) readConfigs([]string) error {
	p, ok := d.files["config.json"]
	if !ok {
		return &formats.FormatError{File: filepath.Join(d.path, "config.json"), Offset: -1,
			Reason: "missing: no Hugging Face model directory", Err: fs.ErrNotExist}
	}
	var err error
	if d.config, err = ParseConfig(filepath.Join(d.path, "config.json"), p); err != nil {
		return err
	}
	if p, ok := d.files["generation_config.json"]; ok {
		d.generation, err = ParseConfig(filepath.Join(d.path, "generation_config.json"), p)
	}
	return err
}

func (d *Dir) openWeights(names []string) error {
	name, err := weightsFile(d.path, names)
	if err != nil {
		return err
	}
	if d.weights, err = safetensors.OpenFrom(d.remote, filepath.Join(d.path, name)); err != nil {
		return err
	}
	d.opened = name
	d.tensors = d.weights.Tensors()
	return d.joinQuantized()
}

// foreign are the endings of weights that are not read, with their names.
var foreign = []struct{ ending, name string }{
	{".bin", "PyTorch"}, {".pt", "PyTorch"}, {".pth", "PyTorch"}, {".h5", "TensorFlow"},
	{".msgpack", "Flax"}, {".onnx", "ONNX"}, {".npz", "NumPy"}, {".gguf", "GGUF"},
}

func isWeights(name string) bool {
	for _, f := range foreign {
		if strings.HasSuffix(name, f.ending) {
			return true
		}
	}
	return strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".safetensors.index.json")
}

// weightsFile picks what to give to safetensors.Open, in the order in which
// transformers looks.
func weightsFile(dir string, names []string) (string, error) {
	for _, name := range []string{"model.safetensors", "model.safetensors.index.json"} {
		if slices.Contains(names, name) {
			return name, nil
		}
	}
	var files, indices []string
	for _, name := range names {
		switch {
		case strings.HasSuffix(name, ".safetensors.index.json"):
			indices = append(indices, name)
		case strings.HasSuffix(name, ".safetensors") && !strings.HasPrefix(name, "adapter_"):
			files = append(files, name)
		}
	}
	switch {
	case len(indices) == 1:
		return indices[0], nil
	case len(indices) == 0 && len(files) == 1:
		return files[0], nil
	case len(indices)+len(files) > 0:
		return "", formats.Errorf(dir, "", "several weights and no model.safetensors.index.json that says which: %q", append(indices, files...))
	}
	return "", noWeights(dir, names)
}

func noWeights(dir string, names []string) error {
	for _, name := range names {
		for _, f := range foreign {
			if !strings.HasSuffix(name, f.ending) || name == "training_args.bin" {
				continue
			}
			e := formats.Unsupportedf(dir, "", "weights in %s (%s), without safetensors", name, f.name)
			e.Hint = "load the model with transformers and call save_pretrained(dir): it writes safetensors"
			if f.name == "GGUF" {
				e.Hint = "name the GGUF file itself: " + filepath.Join(dir, name)
			}
			return e
		}
		if strings.HasPrefix(name, "adapter_") {
			e := formats.Unsupportedf(dir, "", "an adapter (%s) without its base model", name)
			e.Hint = "merge it into the base model with peft's merge_and_unload, then save_pretrained"
			return e
		}
	}
	return formats.Errorf(dir, "", "no weights: neither model.safetensors nor model.safetensors.index.json")
}

// Close closes the weights. Tensors cannot be read afterwards.
func (d *Dir) Close() error {
	if d.weights == nil {
		return nil
	}
	return d.weights.Close()
}

// Path returns the directory.
func (d *Dir) Path() string { return d.path }

// Config returns config.json.
func (d *Dir) Config() *Config { return d.config }

// Generation returns generation_config.json, false where there is none.
func (d *Dir) Generation() (*Config, bool) { return d.generation, d.generation != nil }

// File returns the bytes of one of the small files (config.json,
// tokenizer.json, additional_chat_templates/rag.jinja, ...). They must not be
// changed.
func (d *Dir) File(name string) ([]byte, bool) {
	p, ok := d.files[name]
	return p, ok
}

// Files returns the names of the small files that were read, sorted.
func (d *Dir) Files() []string {
	var out []string
	for name := range d.files {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Paths returns the paths of all files that were read: the small ones, the index and
// the weights.
func (d *Dir) Paths() []string {
	out := append(d.weights.Parts(), filepath.Join(d.path, d.opened))
	for _, name := range d.Files() {
		out = append(out, filepath.Join(d.path, filepath.FromSlash(name)))
	}
	return out
}

// Others returns the names of the files that were not read: README.md,
// licences, images, code.
func (d *Dir) Others() []string { return slices.Clone(d.others) }

// Tensors returns all tensors, quantized ones put together; see [Dir.Method].
// The slice is the caller's; what it points to is shared.
func (d *Dir) Tensors() []formats.Tensor { return slices.Clone(d.tensors) }

// Weights returns the safetensors file or files as they are stored.
func (d *Dir) Weights() *safetensors.File { return d.weights }

// Method names the tool that quantized the checkpoint ("gptq", "awq", "fp8",
// "compressed-tensors", "mxfp4", "bitsandbytes"), "" for a plain one.
func (d *Dir) Method() string { return d.method }
