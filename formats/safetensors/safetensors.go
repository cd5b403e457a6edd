package safetensors

import (
	"maps"
	"path/filepath"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// A File is an open safetensors file, or all shards of an index.
type File struct {
	remote   formats.Remote
	shards   []*shard
	open     tensor.Files
	tensors  []formats.Tensor
	metadata map[string]string
	unlisted []string
	extra    map[string]bool // unlisted tensors that were taken
}

// Open opens path: an index where its name ends in .json, else a single file.
// Errors are those of the operating system, [formats.FormatError] and
// [formats.UnsupportedError].
func Open(path string) (*File, error) { return OpenFrom(nil, path) }

// OpenFrom is [Open] where some files may not be on the disk.
func OpenFrom(remote formats.Remote, path string) (*File, error) {
	f := &File{remote: remote, metadata: make(map[string]string)}
	var err error
	if filepath.Ext(path) == ".json" {
		err = f.openIndex(path)
	} else if err = f.addFile(path); err == nil {
		f.tensors = f.shards[0].tensors
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	for _, s := range f.shards {
		for k, v := range s.metadata {
			if _, ok := f.metadata[k]; !ok {
				f.metadata[k] = v
			}
		}
	}
	return f, nil
}

func (f *File) addFile(path string) error {
	file, err := f.remote.Open(path)
	if err != nil {
		return err
	}
	s, err := parse(path, f.open.Add(file))
	if err != nil {
		return err
	}
	f.shards = append(f.shards, s)
	return nil
}

// Parse reads a single file that lies in memory; name is for messages. The
// bytes must not change while tensors are in use.
func Parse(name string, data []byte) (*File, error) {
	s, err := parse(name, tensor.BytesBlob(data))
	if err != nil {
		return nil, err
	}
	return &File{shards: []*shard{s}, tensors: s.tensors, metadata: s.metadata}, nil
}

// Close closes the files. Tensors cannot be read afterwards.
func (f *File) Close() error { return f.open.Close() }

// Tensors returns all tensors in the order of their data, shard after shard.
// The slice is the caller's; what it points to is shared.
func (f *File) Tensors() []formats.Tensor { return append([]formats.Tensor(nil), f.tensors...) }

// Metadata returns a copy of the string metadata; where shards disagree about
// a key, the first shard's value.
func (f *File) Metadata() map[string]string {
	if f.metadata == nil {
		return map[string]string{}
	}
	return maps.Clone(f.metadata)
}

// Parts returns the paths of all files.
func (f *File) Parts() []string {
	out := make([]string, len(f.shards))
	for i, s := range f.shards {
		out[i] = s.name
	}
	return out
}

// Unlisted names the tensors that lie in a shard without the index saying so,
// as "SHARD: TENSOR". They are among Tensors, except where the index takes a
// tensor of that name from another shard.
func (f *File) Unlisted() []string { return append([]string(nil), f.unlisted...) }
