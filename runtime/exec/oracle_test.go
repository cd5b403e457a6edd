package exec

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/nstf/nstf/formats/checkpoint"
)

// What the checkpoints' references say, and how far we may be from it.
const (
	logitTolerance = 2e-4 // of the range of the reference's logits
	closeMargin    = 1e-2 // a greedy step nearer than this may fall either way
)

// readNPY reads a two-dimensional float32 array of numpy's format, version 1.
func readNPY(t *testing.T, path string) (rows [][]float32) {
	t.Helper()
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(p) < 10 || string(p[:8]) != "\x93NUMPY\x01\x00" {
		t.Fatalf("%s: not a npy file of version 1", path)
	}
	n := 10 + int(binary.LittleEndian.Uint16(p[8:]))
	header, data := string(p[10:n]), p[n:]
	m := regexp.MustCompile(`'descr': '<f4', 'fortran_order': False, 'shape': \((\d+), (\d+)\)`).FindStringSubmatch(header)
	if m == nil {
		t.Fatalf("%s: header %q", path, header)
	}
	h, _ := strconv.Atoi(m[1])
	w, _ := strconv.Atoi(m[2])
	flat := make([]float32, h*w)
	if err := binary.Read(bytes.NewReader(data), binary.LittleEndian, flat); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for r := range h {
		rows = append(rows, flat[r*w:(r+1)*w])
	}
	return rows
}

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	p, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(p, v)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// difference returns the largest absolute difference of got and want as a
// share of want's range.
func difference(got, want [][]float32) (worst float64, at string) {
	lo, hi := math.Inf(1), math.Inf(-1)
	for r := range want {
		for c, w := range want[r] {
			lo, hi = min(lo, float64(w)), max(hi, float64(w))
			d := math.Abs(float64(got[r][c]) - float64(w))
			if d > worst || d != d {
				worst, at = d, fmt.Sprintf("row %d, token %d: %v instead of %v", r, c, got[r][c], w)
			}
			if d != d {
				return math.NaN(), at
			}
		}
	}
	return worst / (hi - lo), at
}

// open opens a checkpoint for the length of the test.
func open(t testing.TB, path string, o Options) *Executor {
	t.Helper()
	m, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	e, err := New(m, onFlag(t, o))
	opened(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

func sequence(t testing.TB, e *Executor) *Sequence {
	t.Helper()
	s, err := e.NewSequence()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// allLogits prefills an empty sequence and returns a copy of every row.
func allLogits(t testing.TB, s *Sequence, ids []int32) [][]float32 {
	t.Helper()
	var rows [][]float32
	start := s.Len()
	err := s.Prefill(context.Background(), ids, func(pos int, row []float32) error {
		if pos != start+len(rows) {
			return fmt.Errorf("row of position %d after %d rows from %d", pos, len(rows), start)
		}
		rows = append(rows, slices.Clone(row))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(ids) {
		t.Fatalf("%d rows for %d tokens", len(rows), len(ids))
	}
	return rows
}

// stepLogits is allLogits, a token at a time.
func stepLogits(t testing.TB, s *Sequence, ids []int32) [][]float32 {
	t.Helper()
	var rows [][]float32
	for _, id := range ids {
		row, err := s.Step(id)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, slices.Clone(row))
	}
	return rows
}

// checkLogits compares with a reference, and names what was compared.
func checkLogits(t *testing.T, what string, got, want [][]float32, tolerance float64) {
	t.Helper()
	d, at := difference(got, want)
	if !(d <= tolerance) {
		t.Errorf("%s: differs by %.3g of the range, more than %.3g: %s", what, d, tolerance, at)
		return
	}
	t.Logf("%s: largest difference %.3g of the range", what, d)
}

func argmax(row []float32) int32 {
	best := 0
	for i, v := range row {
		if v > row[best] {
			best = i
		}
	}
	return int32(best)
}

// greedyCase is a prompt with its recorded continuation.
type greedyCase struct {
	Prompt  []int32   `json:"prompt_ids"`
	Greedy  []int32   `json:"greedy_ids"`
	Margins []float64 `json:"margins"`
}

// check decodes greedily up to the first step whose margin is too close.
// whole computes the whole sequence again at each step, as the micro
// checkpoints' script did: it matters where the length turns the keys.
func (c *greedyCase) check(t *testing.T, s *Sequence, whole bool) {
	t.Helper()
	s.Reset()
	row, err := s.PrefillLast(context.Background(), c.Prompt)
	for i, want := range c.Greedy {
		if err != nil {
			t.Fatal(err)
		}
		if c.Margins[i] < closeMargin {
			t.Logf("greedy: %d of %d steps, then the margin is %v", i, len(c.Greedy), c.Margins[i])
			return
		}
		if got := argmax(row); got != want {
			t.Errorf("greedy step %d: token %d instead of %d (margin %v)", i, got, want, c.Margins[i])
			return
		}
		if whole {
			ids := append(slices.Clone(c.Prompt), c.Greedy[:i+1]...)
			s.Reset()
			row, err = s.PrefillLast(context.Background(), ids)
		} else {
			row, err = s.Step(want)
		}
	}
}

const microFolder = "../../testdata/micro"

// microFlag names another folder of such checkpoints, for a run by hand.
var microFlag = flag.String("micro", microFolder, "folder of checkpoints with reference.json, as testdata/micro/make.py makes them")

// microCheckpoints returns the folders under testdata/micro.
func microCheckpoints(t *testing.T) []string {
	t.Helper()
	configs, err := filepath.Glob(filepath.Join(*microFlag, "*", "config.json"))
	if err != nil || len(configs) < 30 && *microFlag == microFolder || len(configs) == 0 {
		t.Fatalf("%d micro checkpoints found (%v)", len(configs), err)
	}
	for i, c := range configs {
		configs[i] = filepath.Dir(c)
	}
	return configs
}
