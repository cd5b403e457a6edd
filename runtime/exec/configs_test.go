package exec

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/safetensors"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/testdata/packed"
)

// configsFlag names another folder that testdata/configs/make.py wrote, for a
// wide run by hand.
var configsFlag = flag.String("configs", "../../testdata/configs", "folder with cases.json.gz and logits.npy of testdata/configs/make.py")

// configCases is testdata/configs/cases.json.gz; make.py says what it holds.
type configCases struct {
	IDs    []int32                   `json:"ids"`
	Rows   int                       `json:"rows"`
	Bases  map[string]map[string]any `json:"bases"`
	Shapes []map[string][]int64      `json:"shapes"`
	Cases  []configCase              `json:"cases"`
}

type configCase struct {
	Type   string         `json:"type"`
	Set    map[string]any `json:"set"`
	Drop   []string       `json:"drop"`
	Head   string         `json:"head"`
	Shapes int            `json:"shapes"`
	Logits *int           `json:"logits"`
	Error  string         `json:"error"`
}

func (c *configCase) String() string {
	set, _ := json.Marshal(c.Set)
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", c.Type, set, strings.Join(c.Drop, " "), c.Head))
}

// Every key of config.json, moved off its default: our logits are those that
// transformers computes, or the configuration is refused. Where transformers
// refuses, so do we, but for what is tolerated; and we refuse no more than
// configsWeRefuse says.
func TestConfigs(t *testing.T) {
	testConfigs(t, *configsFlag)
}

// So do those of types that came later, which have a folder each.
func TestLaterConfigs(t *testing.T) {
	folders, err := filepath.Glob("../../testdata/configs/*/cases.json.gz")
	if err != nil || len(folders) < 7 {
		t.Fatalf("%d folders, %v", len(folders), err)
	}
	for _, path := range folders {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) { testConfigs(t, filepath.Dir(path)) })
	}
}

func testConfigs(t *testing.T, folder string) {
	var cs configCases
	if err := json.Unmarshal(packed.Read(t, filepath.Join(folder, "cases.json")), &cs); err != nil {
		t.Fatal(err)
	}
	for i, shapes := range cs.Shapes {
		cs.Shapes[i] = spelledOut(shapes)
	}
	rows := readNPY(t, filepath.Join(folder, "logits.npy"))
	count := map[string]int{}
	w := configRun{dir: t.TempDir(), tensors: map[string]formats.Tensor{}, logits: map[[sha256.Size]byte][][]float32{}}
	ex := exporter{dir: *configsExports, Refused: map[int]string{}}
	for i := range cs.Cases {
		c := &cs.Cases[i]
		got, err := w.run(t, &cs, c)
		var f *formats.FormatError
		var u *formats.UnsupportedError
		if err != nil && !errors.As(err, &f) && !errors.As(err, &u) {
			t.Errorf("%v: %T: %v", c, err, err)
		}
		switch {
		case c.Logits == nil && err != nil:
			count["refused by both"]++
		case c.Logits == nil:
			if count["accepted by us alone"]++; !c.tolerated() {
				t.Errorf("%v: accepted, transformers has %s", c, c.Error)
			}
		case err != nil:
			if count["refused by us alone"]++; !listed(err) {
				t.Errorf("%v: refused: %v", c, err)
			}
		default:
			want := make([][]float32, cs.Rows)
			for r := range want {
				n := len(got[0])
				want[r] = rows[*c.Logits][r*n : (r+1)*n]
			}
			if d, at := difference(got[len(got)-cs.Rows:], want); !(d <= logitTolerance) {
				count["another model"]++
				t.Errorf("%v: differs by %.3g of the range: %s", c, d, at)
			} else {
				count["the same logits"]++
				ex.write(t, i, w.dir)
			}
		}
	}
	ex.finish(t)
	for _, k := range slices.Sorted(maps.Keys(count)) {
		t.Logf("%s: %d of %d", k, count[k], len(cs.Cases))
	}
	if count["the same logits"] < len(cs.Cases)/3 {
		t.Error("too few cases have logits")
	}
}

var several = regexp.MustCompile(`#(\d+)`)

// spelledOut writes out names that stand for several: "a.#2.b" for "a.0.b" and "a.1.b".
func spelledOut(shapes map[string][]int64) map[string][]int64 {
	out := map[string][]int64{}
	for name, shape := range shapes {
		m := several.FindStringSubmatchIndex(name)
		if m == nil {
			out[name] = shape
			continue
		}
		n, _ := strconv.Atoi(name[m[2]:m[3]])
		each := map[string][]int64{}
		for i := range n {
			each[name[:m[0]]+strconv.Itoa(i)+name[m[1]:]] = shape
		}
		maps.Copy(out, spelledOut(each))
	}
	return out
}

// configsWeRefuse are words of our refusals where transformers computes
// something: what we have not implemented, and what can only be a mistake.
var configsWeRefuse = []string{
	// Not implemented.
	`"hidden_act": unsupported`, `"hidden_activation": unsupported`, `"activation_function": unsupported`, // functions that no known model has
	`"rope_type": unsupported: value proportional`, `"rope_type": unsupported: value linear`, // the latter of gemma4 alone
	`"vocab_size_per_layer_input": unsupported`,
	`"mamba_hidden_act": unsupported`, `"time_step_min": unsupported`, `"time_step_limit": unsupported`, // what nobody has, and two programs read otherwise
	`"is_causal": unsupported`, `"use_bidirectional_attention": unsupported`, `"add_cross_attention": unsupported`,
	`"per_layer_config": unsupported`,
	`"short_mscale": unsupported`,                                        // another model's key, whose code applies it
	`"truncate": unsupported`, `"rope_parameters.truncate": unsupported`, // read at a place where nobody writes it
	`"rope_parameters": unsupported: value per layer type`, `unsupported: value for no type of layer`,
	`"rope_scaling.type": unsupported`, `"rope_scaling": unsupported: value beside`, // disregarded, or merged
	`"partial_rotary_factor": unsupported`,                     // of factors that broadcast over one pair
	`"head_dim": unsupported`,                                  // gpt_neox: half read
	`"mlp_bias": unsupported`, `"norm_topk_prob": unsupported`, // deepseek_v2: the latter disregarded, though the model's own code has it
	`"use_bias": unsupported`, `"moe_topk": unsupported`, // of mixtures
	`"topk_method": unsupported`, // of another version's router, disregarded
	// Mistakes: transformers goes on with them.
	`"mlp_layer_types": unsupported`,
	"required key is missing", // sizes, for which its class has the first model's
	"rotary scaling factor 0.", "dynamic over one pair", "does not fit a head",
	`"attention_factor": value 0 `, `"attn_logit_softcapping": value 0 `, `"final_logit_softcapping": value 0 `,
	`"alibi": unsupported`, `"residual_multiplier": value 0 `,
	`"swiglu_alpha": value 0 `, `"swiglu_limit": value 0 `, // which a graph would take for none
	`"sliding_window": value null `, `"sliding_window": value 0 `, `"sliding_window": value -1 `, `"sliding_window_pattern": value -2 `,
}

func listed(err error) bool {
	return slices.ContainsFunc(configsWeRefuse, func(words string) bool { return strings.Contains(err.Error(), words) })
}

// tolerated reports whether we read what transformers refuses for a reason
// that has nothing to do with logits.
func (c *configCase) tolerated() bool {
	for key, v := range c.Set {
		switch {
		case v == nil && c.Error == "StrictDataclassFieldValidationError": // null is absence to us, where its class asks for a type
			return true
		case key == "top_k_experts" && v == 2.0: // its class minds the fraction
			return true
		case key == "attention_dropout" && v == nil: // of training alone
			return true
		case key == "return_dict" || key == "pad_token_id": // how its own code hands back results; a row that it does not train
			return true
		case key == "head_dim" && v == nil: // absence, which some kinds of scaling do not expect there
			return true
		}
		p, _ := v.(map[string]any)
		_, original := p["original_max_position_embeddings"]
		_, lists := p["short_factor"]
		if c.Type == "phi3" && (p["rope_type"] == "su" && !original || p["rope_type"] == "default" && lists) { // older releases read the one; nothing reads the other
			return true
		}
	}
	return false
}

// A configRun makes checkpoints and computes their logits, of the same weights in the same graph once.
type configRun struct {
	dir     string
	tensors map[string]formats.Tensor // that were made, by name and shape
	weights string                    // of the file that lies in dir: shapes and what makes them other numbers
	logits  map[[sha256.Size]byte][][]float32
}

// run writes a case's checkpoint and returns the logits of every position.
func (w *configRun) run(t *testing.T, cs *configCases, c *configCase) ([][]float32, error) {
	t.Helper()
	config := maps.Clone(cs.Bases[c.Type])
	maps.Copy(config, c.Set)
	for _, key := range c.Drop {
		delete(config, key)
	}
	p, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.dir, "config.json"), p, 0o600); err != nil {
		t.Fatal(err)
	}
	if weights := fmt.Sprint(c.Shapes, c.Head == "copied", aroundZero(c.Type)); weights != w.weights {
		w.write(t, filepath.Join(w.dir, "model.safetensors"), cs.Shapes[c.Shapes], c)
		w.weights = weights
	}
	m, err := checkpoint.Open(w.dir)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	key := identity(t, m)
	if w.logits[key] == nil {
		e, err := New(m, onFlag(t, Options{Exact: true, Threads: 1, Context: int64(len(cs.IDs))}))
		if err != nil {
			return nil, err
		}
		defer e.Close()
		w.logits[key] = allLogits(t, sequence(t, e), cs.IDs)
	}
	return w.logits[key], nil
}

// identity returns a hash of all that a model computes by: its graph, and the bytes of the graph's tensors.
func identity(t *testing.T, m *model.Model) (sum [sha256.Size]byte) {
	t.Helper()
	h := sha256.New()
	if err := json.NewEncoder(h).Encode(m.Graph); err != nil {
		t.Fatal(err)
	}
	for _, w := range m.Graph.Weights() {
		x := m.Tensor(w.Name)
		fmt.Fprintln(h, x.Name, x.Scheme, x.Form, x.Shape, x.Params)
		for _, part := range x.Parts {
			p, err := part.Data.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			h.Write(p)
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// write makes the file of weights that the case has.
func (w *configRun) write(t *testing.T, path string, shapes map[string][]int64, c *configCase) {
	t.Helper()
	var tensors []formats.Tensor
	for name, shape := range shapes {
		from := name
		if head := name == "lm_head.weight" || name == "embed_out.weight"; head && c.Head == "copied" {
			from = embedding(shapes)
		}
		key := fmt.Sprintf("%s=%s%v %v", name, from, shape, aroundZero(c.Type))
		if _, ok := w.tensors[key]; !ok {
			w.tensors[key] = configTensor(t, name, from, shape, aroundZero(c.Type))
		}
		tensors = append(tensors, w.tensors[key])
	}
	out, err := safetensors.NewWriter(nil, tensors)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := out.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func embedding(shapes map[string][]int64) string {
	for name := range shapes {
		if strings.HasSuffix(name, "embed_tokens.weight") || strings.HasSuffix(name, "wte.weight") || strings.HasSuffix(name, "embed_in.weight") || strings.HasSuffix(name, "word_embeddings.weight") || strings.HasSuffix(name, ".embeddings.weight") {
			return name
		}
	}
	return ""
}

// aroundZero reports whether a type's norms add 1 to their weights.
func aroundZero(typ string) bool { return typ == "gemma2" || typ == "gemma3_text" }

// configTensor makes a tensor's numbers from a name, as weight() of make.py
// does, to the last bit.
func configTensor(t *testing.T, name, from string, shape []int64, gemma bool) formats.Tensor {
	t.Helper()
	h := fnv.New64a()
	h.Write([]byte(from))
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	p := make([]byte, 4*n)
	for i := range n {
		z := h.Sum64() + uint64(i+1)*0x9E3779B97F4A7C15
		z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		z ^= z >> 31
		v := float32(int64(z>>40)-1<<23) / (1 << 23)
		switch {
		case len(shape) != 1 || !strings.HasSuffix(from, ".weight"):
			v /= 2
		case gemma:
			v /= 4
		default:
			v = 1 + v/4
		}
		binary.LittleEndian.PutUint32(p[4*i:], math.Float32bits(v))
	}
	f32, _ := scheme.ByName("f32")
	x, err := scheme.New(name, f32, shape, nil, tensor.BytesBlob(p))
	if err != nil {
		t.Fatal(err)
	}
	return x
}
