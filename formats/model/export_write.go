package model

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/safetensors"
)

// WriteGGUF writes the export as one GGUF file, which appears under its name
// when it is whole. progress, which may be nil, is called with the bytes
// written and their total.
func (x *Export) WriteGGUF(ctx context.Context, path string, progress func(done, total int64)) error {
	w, err := gguf.NewWriter(x.Keys, x.Tensors)
	if err != nil {
		return err
	}
	f, err := atomicfile.Create(path, w.Size())
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := w.WriteTo(&meter{ctx: ctx, w: f, total: w.Size(), progress: progress}); err != nil {
		return err
	}
	return f.Commit()
}

// WriteDir writes the export as a folder, which appears under its name when
// it is whole; a folder that is there already must be empty. Shards hold at
// most shard bytes of tensor data.
func (x *Export) WriteDir(ctx context.Context, dir string, shard int64, progress func(done, total int64)) error {
	dir = filepath.Clean(dir)
	if old, err := os.ReadDir(dir); err == nil && len(old) > 0 {
		return fmt.Errorf("%s: the folder is not empty", dir)
	} else if err != nil && !os.IsNotExist(err) {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".tmp-")
	if os.IsNotExist(err) {
		return fmt.Errorf("%s: there is no folder %s", dir, filepath.Dir(dir))
	}
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // nothing is left of it after the rename
	for _, f := range x.Files {
		if err := writeAttached(tmp, f); err != nil {
			return err
		}
	}
	if err := x.writeShards(ctx, tmp, shard, progress); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.Rename(tmp, dir)
}

func (x *Export) writeShards(ctx context.Context, dir string, shard int64, progress func(done, total int64)) error {
	shards := safetensors.Shards(x.Tensors, shard)
	m := &meter{ctx: ctx, progress: progress}
	writers := make([]*safetensors.Writer, len(shards))
	for i, s := range shards {
		var err error
		if writers[i], err = safetensors.NewWriter(map[string]string{"format": "pt"}, s.Tensors); err != nil {
			return err
		}
		m.total += writers[i].Size()
	}
	for i, w := range writers {
		f, err := atomicfile.Create(filepath.Join(dir, shards[i].Name), w.Size())
		if err != nil {
			return err
		}
		m.w = f
		if _, err = w.WriteTo(m); err == nil {
			err = f.Commit()
		}
		f.Abort()
		if err != nil {
			return err
		}
	}
	if len(shards) == 1 {
		return nil
	}
	return atomicfile.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), safetensors.Index(shards))
}

// writeAttached writes an attached file, whose name may hold folders.
func writeAttached(dir string, f File) error {
	name := filepath.FromSlash(f.Name)
	if !filepath.IsLocal(name) {
		return formats.Unsupportedf("", f.Name, "the name of an attached file leaves the folder")
	}
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.WriteFile(path, f.Data)
}

// A meter counts what passes, and stops at the context's end.
type meter struct {
	ctx         context.Context
	w           io.Writer
	done, total int64
	progress    func(done, total int64)
}

func (m *meter) Write(p []byte) (int, error) {
	if err := m.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := m.w.Write(p)
	m.done += int64(n)
	if m.progress != nil {
		m.progress(m.done, m.total)
	}
	return n, err
}
