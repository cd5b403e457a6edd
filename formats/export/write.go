package export

import (
	"context"
	"io"
	"path/filepath"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/safetensors"
)

// WriteGGUF writes the export as one GGUF file, which appears under its name
// when it is whole. progress, which may be nil, is called with the bytes
// written and their total.
func (x *Model) WriteGGUF(ctx context.Context, out *atomicfile.Output, progress func(done, total int64)) error {
	w, err := gguf.NewWriter(x.Keys, x.Tensors)
	if err != nil {
		return err
	}
	f, err := out.Create(w.Size())
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
func (x *Model) WriteDir(ctx context.Context, out *atomicfile.Output, shard int64, progress func(done, total int64)) error {
	dir, err := out.CreateDir()
	if err != nil {
		return err
	}
	defer dir.Abort()
	for _, f := range x.Files {
		if !filepath.IsLocal(filepath.FromSlash(f.Name)) {
			return formats.Unsupportedf("", f.Name, "the name of an attached file leaves the folder")
		}
		if err := dir.WriteFile(filepath.FromSlash(f.Name), f.Data); err != nil {
			return err
		}
	}
	if err := x.writeShards(ctx, dir, shard, progress); err != nil {
		return err
	}
	return dir.Commit()
}

func (x *Model) writeShards(ctx context.Context, dir *atomicfile.Dir, shard int64, progress func(done, total int64)) error {
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
		f, err := dir.Create(shards[i].Name, w.Size())
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
	return dir.WriteFile("model.safetensors.index.json", safetensors.Index(shards))
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
