package safetensors

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/pyjson"
	"github.com/nstf/nstf/formats/tensor"
)

// maxIndex is far above the index of the largest model (a few MB).
const maxIndex = 64 << 20

// openIndex opens all shards of an index and checks one against the other.
func (f *File) openIndex(path string) error {
	file, err := tensor.OpenFile(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if file.Size() > maxIndex {
		return formats.Errorf(path, "", "an index of %d bytes: more than %d", file.Size(), maxIndex)
	}
	p := make([]byte, file.Size())
	if _, err := file.ReadAt(p, 0); len(p) > 0 && err != nil {
		return err
	}
	where, err := parseIndex(path, p)
	if err != nil {
		return err
	}
	for _, name := range shardNames(where) {
		full := filepath.Join(filepath.Dir(path), name)
		if err := f.addFile(full); errors.Is(err, fs.ErrNotExist) {
			return &formats.FormatError{File: path, Offset: -1, Reason: fmt.Sprintf("shard %q is missing", name), Err: err}
		} else if err != nil {
			return err
		}
		f.addShard(name, where)
	}
	for _, name := range sortedKeys(where) {
		if shard := where[name]; shard != found {
			return formats.Errorf(path, name, "the index has it in %q, which does not hold it", shard)
		}
	}
	return nil
}

// found stands in an index's map for a tensor that its shard held; as a
// shard's name it would be refused.
const found = ""

// addShard takes the last opened shard's tensors as far as the index allows.
func (f *File) addShard(name string, where map[string]string) {
	s := f.shards[len(f.shards)-1]
	for _, t := range s.tensors {
		shard, listed := where[t.Name]
		if listed && shard == name {
			where[t.Name] = found
		} else {
			f.unlisted = append(f.unlisted, name+": "+t.Name)
		}
		if listed && shard != name {
			continue // the index takes another shard's
		}
		where[t.Name] = found
		f.tensors = append(f.tensors, t)
	}
}

// parseIndex returns the weight_map of an index.
func parseIndex(file string, p []byte) (map[string]string, error) {
	sc := pyjson.NewScanner(file, 0, p)
	var where map[string]string
	err := sc.Object(func(key string) error {
		if key != "weight_map" {
			return sc.Skip() // "metadata" and whatever a tool adds
		}
		if where != nil {
			return sc.Errorf("", "duplicate weight_map")
		}
		where = make(map[string]string)
		return sc.Object(func(name string) error {
			if _, ok := where[name]; ok {
				return sc.Errorf(name, "duplicate name in weight_map")
			}
			shard, err := sc.String()
			if err != nil {
				return err
			}
			where[name] = shard
			return checkShardName(sc, name, shard)
		})
	})
	if err == nil {
		err = sc.End()
	}
	if err == nil && len(where) == 0 {
		err = formats.Errorf(file, "", "no weight_map, or an empty one")
	}
	return where, err
}

// checkShardName refuses what would leave the index's folder.
func checkShardName(sc *pyjson.Scanner, name, shard string) error {
	if strings.ContainsAny(shard, "/\\:\x00") || !filepath.IsLocal(shard) || shard == "." {
		return sc.Errorf(name, "shard %q is not a plain file name", shard)
	}
	return nil
}

func shardNames(where map[string]string) []string {
	seen := make(map[string]bool)
	var out []string
	for _, shard := range where {
		if !seen[shard] {
			seen[shard] = true
			out = append(out, shard)
		}
	}
	slices.Sort(out)
	return out
}

func sortedKeys(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
