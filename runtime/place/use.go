package place

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
)

// usesVersion changes with the meaning of what is kept.
const usesVersion = 1

// Uses are how often the router of each block of a mixture chose each expert, where experts were left to the
// processor. Newer choices count for more: they are halved together where there are many.
type Uses struct {
	Version int             `json:"version"`
	Model   string          `json:"model"` // that tells it from others; letters and digits
	Blocks  map[int][]int64 `json:"blocks"`
}

const (
	mostUses  = 1 << 22 // of a block
	leastUses = 4       // for each expert, on the average, that shares are taken from
	maxExpert = 1 << 16 // see graph.MoE
)

func usesPath(dir, model string) string { return filepath.Join(dir, "experts-"+model+".json") }

// LoadUses returns what is kept of a model: nothing where there is no file, and a FormatError with nothing where it is
// not one of that model.
func LoadUses(dir, model string) (*Uses, error) {
	path, u := usesPath(dir, model), &Uses{}
	fresh := &Uses{Version: usesVersion, Model: model, Blocks: map[int][]int64{}}
	switch err := load(path, u); {
	case errors.Is(err, fs.ErrNotExist):
		return fresh, nil
	case err != nil:
		return fresh, err
	case u.Version != usesVersion || u.Model != model || u.Blocks == nil:
		return fresh, formats.Errorf(path, "", "version %d, model %q are not those of model %q", u.Version, u.Model, model)
	}
	for b, counts := range u.Blocks {
		if len(counts) > maxExpert || slices.ContainsFunc(counts, func(n int64) bool { return n < 0 || n > mostUses }) {
			return fresh, formats.Errorf(path, "blocks", "counts of block %d", b)
		}
	}
	return u, nil
}

// maxModels bounds the models whose uses a folder keeps; those that were learned of longest ago go first.
const maxModels = 64

// Save writes the uses into a folder, which is made where it is missing.
func (u *Uses) Save(dir string) error {
	if err := atomicfile.Scratch(usesPath(dir, u.Model)).WriteJSON(u); err != nil {
		return err
	}
	return forgetModels(dir)
}

// forgetModels removes the uses of those beyond maxModels.
func forgetModels(dir string) error {
	paths, err := filepath.Glob(usesPath(dir, "*"))
	if err != nil || len(paths) <= maxModels {
		return err
	}
	age := map[string]time.Time{}
	for _, p := range paths {
		if info, err := os.Stat(p); err == nil { // else another process has removed it
			age[p] = info.ModTime()
		}
	}
	slices.SortStableFunc(paths, func(a, b string) int { return age[a].Compare(age[b]) })
	for _, p := range paths[:len(paths)-maxModels] {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Add counts choices, by block and expert.
func (u *Uses) Add(chosen map[int]map[int32]int64) {
	for b, experts := range chosen {
		counts, sum := u.Blocks[b], int64(0)
		for x, n := range experts {
			if x < 0 || x >= maxExpert {
				continue
			}
			for int(x) >= len(counts) {
				counts = append(counts, 0)
			}
			counts[x] += n
		}
		for _, n := range counts {
			sum += n
		}
		for ; sum > mostUses; sum /= 2 {
			for i := range counts {
				counts[i] /= 2
			}
		}
		u.Blocks[b] = counts
	}
}

// priorUses is how many choices for each expert, on the average, a prior counts for at most: as 1000 tokens of 4 of 128
// experts.
const priorUses = 32

// Shares returns the share of choices of each of a block's experts, of which those that were never chosen count as if
// once; nil where there were few choices. A prior is what is known from elsewhere, of each expert, or nil; the more
// choices were counted here, the less it weighs.
func (u *Uses) Shares(block int, prior []int64, experts int) []float64 {
	counts, sum, before := u.Blocks[block], 0., 0.
	if len(counts) > experts || prior != nil && len(prior) != experts {
		return nil // of another model
	}
	all := make([]float64, experts)
	for i, n := range counts {
		all[i] = float64(n)
		sum += float64(n)
	}
	for _, n := range prior {
		before += float64(n)
	}
	if weight := min(1, float64(priorUses*experts)/before); before > 0 {
		for i, n := range prior {
			all[i] += weight * float64(n)
		}
		sum += weight * before
	}
	if sum < float64(leastUses*experts) {
		return nil
	}
	for i := range all {
		all[i] = (all[i] + 1) / (sum + float64(experts))
	}
	return all
}
