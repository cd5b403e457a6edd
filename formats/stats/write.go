package stats

import (
	"bufio"
	"bytes"
	"encoding/json"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/safetensors"
	"github.com/nstf/nstf/formats/tensor"
)

// document is what stands in the metadata.
type document struct {
	Version     int                `json:"version"`
	Source      Source             `json:"source"`
	Inputs      map[string]size    `json:"inputs"`
	Experts     map[string][]int64 `json:"experts,omitempty"`
	Sensitivity map[string]float64 `json:"sensitivity,omitempty"`
}

type size struct {
	K      int   `json:"k"`
	Tokens int64 `json:"tokens"`
}

// Write writes the statistics to a file that appears under its name when it is
// whole. Equal statistics give equal bytes. Errors are those of reading moments
// and of the operating system.
func (f *File) Write(to *atomicfile.Output) error {
	w, err := f.layOut()
	if err != nil {
		return err
	}
	out, err := to.Create(w.Size())
	if err != nil {
		return err
	}
	defer out.Abort()
	b := bufio.NewWriterSize(out, 1<<20)
	if _, err := w.WriteTo(b); err != nil {
		return err
	}
	if err := b.Flush(); err != nil {
		return err
	}
	return out.Commit()
}

// Bytes returns the file as it would be written.
func (f *File) Bytes() ([]byte, error) {
	w, err := f.layOut()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err = w.WriteTo(&b)
	return b.Bytes(), err
}

func (f *File) layOut() (*safetensors.Writer, error) {
	d := document{Version: version, Source: f.Source, Inputs: map[string]size{}, Experts: map[string][]int64{}, Sensitivity: f.Sensitivity}
	var tensors []formats.Tensor
	for _, name := range sortedKeys(f.Inputs) {
		in := f.Inputs[name]
		d.Inputs[name] = size{in.K, in.Tokens}
		tensors = in.appendTensors(tensors, name)
	}
	for _, name := range sortedKeys(f.Experts) {
		for i, in := range f.Experts[name] {
			d.Experts[name] = append(d.Experts[name], in.Tokens)
			tensors = in.appendTensors(tensors, expertName(name, i))
		}
	}
	head, err := json.Marshal(d)
	if err != nil {
		return nil, formats.Errorf(f.Path, "", "statistics that JSON cannot hold: %v", err)
	}
	hash, err := sum(string(head), tensors)
	if err != nil {
		return nil, err
	}
	return safetensors.NewWriter(map[string]string{key: string(head), checksum: hash}, tensors)
}

func (in *Input) appendTensors(to []formats.Tensor, name string) []formats.Tensor {
	if in.Tokens == 0 {
		return to
	}
	if in.AbsMax != nil {
		to = append(to, vector(absMaxOf+name, tensor.BytesBlob(bytesOf(in.AbsMax))))
	}
	if in.Full() {
		return append(to, vector(momentsOf+name, in.moments))
	}
	return append(to, vector(diagonalOf+name, tensor.BytesBlob(bytesOf(in.diagonal))))
}

func vector(name string, data tensor.Blob) formats.Tensor {
	shape := []int64{data.Len() / 4}
	return formats.Tensor{Name: name, Shape: shape, Scheme: tensor.F32.String(), Parts: []formats.Part{{Name: "data", DType: tensor.F32, Shape: shape, Data: data}}}
}
