package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// A Writer is a safetensors file about to be written: everything is checked
// and laid out, no tensor read yet.
type Writer struct {
	header  []byte // with its length before it
	tensors []formats.Tensor
	size    int64
}

// NewWriter lays out a file as the reference implementation does: the widest
// element types first, then by name, so that the same tensors give the same
// bytes. metadata may be nil.
//
// Tensors must be of a plain scheme: others are an
// [formats.UnsupportedError]. Duplicate names and data of another size than
// dtype and shape say are a [formats.FormatError].
func NewWriter(metadata map[string]string, tensors []formats.Tensor) (*Writer, error) {
	w := &Writer{tensors: slices.Clone(tensors)}
	for i := range w.tensors {
		if err := checkTensor(&w.tensors[i]); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(w.tensors, func(a, b formats.Tensor) int {
		return cmp.Or(rank(b.Parts[0].DType)-rank(a.Parts[0].DType), cmp.Compare(a.Name, b.Name))
	})
	if err := w.layOut(metadata); err != nil {
		return nil, err
	}
	return w, nil
}

func checkTensor(t *formats.Tensor) error {
	d := tensor.ParseDType(t.Scheme)
	if rank(d) < 0 {
		return formats.Unsupportedf("", t.Name, "scheme %q in safetensors", t.Scheme)
	}
	size, err := tensor.Size(d, t.Shape)
	if err != nil {
		return formats.Errorf("", t.Name, "%v", err)
	}
	if t.Name == "__metadata__" || len(t.Parts) != 1 || t.Parts[0].DType != d || t.Parts[0].Data.Len() != size {
		return formats.Errorf("", t.Name, "%d parts of %d bytes together, but %s %v is one of %d (and no name is __metadata__)",
			len(t.Parts), t.Size(), t.Scheme, t.Shape, size)
	}
	if t.Elements()%8*int64(d.Bits())%8 != 0 {
		return formats.Unsupportedf("", t.Name, "%d elements of %v in safetensors: they do not fill whole bytes", t.Elements(), d)
	}
	return nil
}

// layOut makes the header.
func (w *Writer) layOut(metadata map[string]string) error {
	head := bytes.NewBufferString("{")
	if metadata != nil {
		head.WriteString(`"__metadata__":`)
		appendJSON(head, metadata)
	}
	seen := make(map[string]bool)
	var off int64
	for i := range w.tensors {
		t := &w.tensors[i]
		if seen[t.Name] {
			return formats.Errorf("", t.Name, "duplicate tensor name")
		}
		seen[t.Name] = true
		if head.Len() > 1 {
			head.WriteByte(',')
		}
		appendJSON(head, t.Name)
		head.WriteByte(':')
		shape := t.Shape
		if shape == nil {
			shape = []int64{}
		}
		appendJSON(head, struct {
			DType   string   `json:"dtype"`
			Shape   []int64  `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}{dtypes[rank(t.Parts[0].DType)].name, shape, [2]int64{off, off + t.Size()}})
		off += t.Size()
	}
	head.WriteByte('}')
	for head.Len()%lengthSize != 0 {
		head.WriteByte(' ')
	}
	if head.Len() > maxHeader {
		return formats.Unsupportedf("", "", "a header of %d bytes in safetensors", head.Len())
	}
	w.header = append(binary.LittleEndian.AppendUint64(nil, uint64(head.Len())), head.Bytes()...)
	w.size = int64(len(w.header)) + off
	return nil
}

// appendJSON writes compact JSON as the reference does: no HTML escapes.
func appendJSON(b *bytes.Buffer, v any) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // strings and integers only
	}
	b.Truncate(b.Len() - 1) // the encoder's newline
}

// Size returns the bytes that WriteTo will write.
func (w *Writer) Size() int64 { return w.size }

// WriteTo streams the file. It may be called again.
func (w *Writer) WriteTo(out io.Writer) (int64, error) {
	n, err := out.Write(w.header)
	done := int64(n)
	for i := range w.tensors {
		if err != nil {
			break
		}
		var m int64
		m, err = w.tensors[i].Parts[0].Data.WriteTo(out)
		done += m
	}
	return done, err
}

// A Shard is one file of a sharded model.
type Shard struct {
	Name    string
	Tensors []formats.Tensor
}

// Shards deals tensors, in order, into files of at most maxSize bytes of
// data; a larger tensor gets a file of its own. The names are those of
// transformers: model.safetensors where one file is enough, else
// model-00001-of-00002.safetensors and so on.
func Shards(tensors []formats.Tensor, maxSize int64) []Shard {
	shards := []Shard{{}}
	var size int64
	for _, t := range tensors {
		last := &shards[len(shards)-1]
		if len(last.Tensors) > 0 && size+t.Size() > maxSize {
			shards = append(shards, Shard{})
			last, size = &shards[len(shards)-1], 0
		}
		last.Tensors = append(last.Tensors, t)
		size += t.Size()
	}
	for i := range shards {
		shards[i].Name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
	}
	if len(shards) == 1 {
		shards[0].Name = "model.safetensors"
	}
	return shards
}

// Index returns the model.safetensors.index.json of several shards.
func Index(shards []Shard) []byte {
	var index struct {
		Metadata struct {
			Total int64 `json:"total_size"`
		} `json:"metadata"`
		Where map[string]string `json:"weight_map"`
	}
	index.Where = make(map[string]string)
	for _, s := range shards {
		for i := range s.Tensors {
			index.Metadata.Total += s.Tensors[i].Size()
			index.Where[s.Tensors[i].Name] = s.Name
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(index); err != nil {
		panic(err) // strings and integers only
	}
	return b.Bytes()
}
