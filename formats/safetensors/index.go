package safetensors

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/pyjson"
)

// These are far above the largest models: an index of 20 MB, 200,000 tensors,
// 200 shards.
const (
	maxIndex   = 64 << 20
	maxIndexed = 1 << 19
	maxShards  = 1 << 14
)

// openIndex opens all shards of an index and checks one against the other.
func (f *File) openIndex(path string) error {
	p, err := f.remote.ReadFile(path, maxIndex, "an index")
	if err != nil {
		return err
	}
	index, err := parseIndex(path, p)
	if err != nil {
		return err
	}
	for i, name := range index.shards {
		full := filepath.Join(filepath.Dir(path), name)
		if err := f.addFile(full); errors.Is(err, fs.ErrNotExist) {
			return &formats.FormatError{File: path, Offset: -1, Reason: fmt.Sprintf("shard %q is missing", name), Err: err}
		} else if err != nil {
			return err
		}
		f.addShard(index, i)
	}
	for _, m := range index.tensors {
		if !m.found {
			return formats.Errorf(path, m.name, "the index has it in %q, which does not hold it", index.shards[m.shard])
		}
	}
	return nil
}

// An index says which shard holds each tensor.
type index struct {
	shards  []string // sorted
	tensors []mapped // sorted by name
}

type mapped struct {
	name  string
	shard int32
	found bool
}

// find returns the entry of a name, nil for none.
func (x *index) find(name string) *mapped {
	i, ok := slices.BinarySearchFunc(x.tensors, name, func(m mapped, name string) int { return cmp.Compare(m.name, name) })
	if !ok {
		return nil
	}
	return &x.tensors[i]
}

// addShard takes the last opened shard's tensors as far as the index allows.
func (f *File) addShard(x *index, no int) {
	for _, t := range f.shards[len(f.shards)-1].tensors {
		m := x.find(t.Name)
		if m != nil && int(m.shard) == no {
			m.found = true
			f.tensors = append(f.tensors, t)
			continue
		}
		f.unlisted = append(f.unlisted, x.shards[no]+": "+t.Name)
		if m != nil || f.extra[t.Name] {
			continue // another shard's is taken
		}
		if f.extra == nil {
			f.extra = make(map[string]bool)
		}
		f.extra[t.Name] = true
		f.tensors = append(f.tensors, t)
	}
}

// parseIndex reads an index.
func parseIndex(file string, p []byte) (*index, error) {
	sc := pyjson.NewScanner(file, 0, p)
	var x *index
	err := sc.Object(func(key string) error {
		if key != "weight_map" {
			return sc.Skip() // "metadata" and whatever a tool adds
		}
		if x != nil {
			return sc.Errorf("", "duplicate weight_map")
		}
		x = &index{tensors: make([]mapped, 0, min(bytes.Count(p, []byte(`.safetensors"`)), maxIndexed))}
		return x.parseMap(sc)
	})
	if err == nil {
		err = sc.End()
	}
	if err == nil && (x == nil || len(x.tensors) == 0) {
		err = formats.Errorf(file, "", "no weight_map, or an empty one")
	}
	if err != nil {
		return nil, err
	}
	return x, x.sort(file)
}

func (x *index) parseMap(sc *pyjson.Scanner) error {
	number := make(map[string]int32)
	return sc.Object(func(name string) error {
		p, err := sc.Bytes()
		if err != nil {
			return err
		}
		no, ok := number[string(p)]
		if !ok {
			shard := string(p)
			if err := checkShardName(sc, name, shard); err != nil {
				return err
			}
			if len(x.shards) == maxShards {
				return sc.Errorf(name, "more than %d shards", maxShards)
			}
			no = int32(len(x.shards))
			number[shard] = no
			x.shards = append(x.shards, shard)
		}
		if len(x.tensors) == maxIndexed {
			return sc.Errorf(name, "more than %d tensors", maxIndexed)
		}
		x.tensors = append(x.tensors, mapped{name: name, shard: no})
		return nil
	})
}

// checkShardName refuses what would leave the index's folder.
func checkShardName(sc *pyjson.Scanner, name, shard string) error {
	if strings.ContainsAny(shard, "/\\:\x00") || !filepath.IsLocal(shard) || shard == "." {
		return sc.Errorf(name, "shard %q is not a plain file name", shard)
	}
	return nil
}

// sort puts shards and tensors in order and refuses equal names.
func (x *index) sort(file string) error {
	order := make([]int32, len(x.shards))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(x.shards[a], x.shards[b]) })
	place := make([]int32, len(order))
	for i, o := range order {
		place[o] = int32(i)
	}
	slices.Sort(x.shards)
	for i := range x.tensors {
		x.tensors[i].shard = place[x.tensors[i].shard]
	}
	slices.SortFunc(x.tensors, func(a, b mapped) int { return cmp.Compare(a.name, b.name) })
	for i := 1; i < len(x.tensors); i++ {
		if x.tensors[i].name == x.tensors[i-1].name {
			return formats.Errorf(file, x.tensors[i].name, "duplicate name in weight_map")
		}
	}
	return nil
}
