package gguf

import (
	"encoding/binary"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// A File is an open GGUF: one file, or all parts of a split one.
type File struct {
	remote  formats.Remote
	shards  []*shard
	open    tensor.Files
	tensors []formats.Tensor
}

// Open reads the header of the GGUF at path. If the file is one part of a
// split model (its key split.count says so), the other parts are found beside
// it by their names, whichever part path names.
//
// Errors are those of the operating system, [formats.FormatError] and
// [formats.UnsupportedError].
func Open(path string) (*File, error) { return OpenFrom(nil, path) }

// OpenFrom is [Open] where some parts may not be on the disk.
func OpenFrom(remote formats.Remote, path string) (*File, error) {
	f := &File{remote: remote}
	err := f.addFile(path)
	if err == nil {
		err = f.openSplits(path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	for _, s := range f.shards {
		f.tensors = append(f.tensors, s.tensors...)
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

// Parse reads a GGUF that lies in memory; name is for messages. The bytes
// must not change while the File or its tensors are in use. A part of a split
// model is read alone.
func Parse(name string, data []byte) (*File, error) {
	s, err := parse(name, tensor.BytesBlob(data))
	if err != nil {
		return nil, err
	}
	return &File{shards: []*shard{s}, tensors: s.tensors}, nil
}

// Close closes the files. Tensors cannot be read afterwards.
func (f *File) Close() error { return f.open.Close() }

// Name returns the path of the first part, or the name given to Parse.
func (f *File) Name() string { return f.shards[0].name }

// Version returns the format's version, 2 or 3.
func (f *File) Version() uint32 { return f.shards[0].version }

// Alignment returns the alignment of tensor data, in bytes.
func (f *File) Alignment() int64 { return f.shards[0].alignment }

// Parts returns the paths of all parts, one for a file that is not split.
func (f *File) Parts() []string {
	out := make([]string, len(f.shards))
	for i, s := range f.shards {
		out[i] = s.name
	}
	return out
}

// Tensors returns all tensors in file order. The slice is the caller's; what
// it points to is shared.
func (f *File) Tensors() []formats.Tensor { return append([]formats.Tensor(nil), f.tensors...) }

// Keys returns the metadata keys in file order, those of the first part for a
// split model: the other parts repeat only the split keys.
func (f *File) Keys() []string {
	out := make([]string, len(f.shards[0].keys))
	for i, k := range f.shards[0].keys {
		out[i] = k.name
	}
	return out
}

// Metadata returns a GGUF of the same version that has all key/value pairs,
// byte for byte, and no tensors: what llama.cpp calls a vocabulary-only file.
// For a split model it is that of the first part.
func (f *File) Metadata() ([]byte, error) {
	s := f.shards[0]
	out := make([]byte, headerLength, headerLength+len(s.raw))
	copy(out, magic)
	binary.LittleEndian.PutUint32(out[4:], s.version)
	binary.LittleEndian.PutUint64(out[16:], uint64(len(s.keys)))
	return append(out, s.raw...), nil
}
