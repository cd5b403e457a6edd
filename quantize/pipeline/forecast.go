package pipeline

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/work"
	"github.com/nstf/nstf/quantize/factored"
	"github.com/nstf/nstf/quantize/fit"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
)

// A Forecast is what a request will take and give.
type Forecast struct {
	Plan    *plan.Plan `json:"plan,omitempty"` // nil before the model is measured
	Bytes   int64      `json:"tensor_bytes"`   // of the graph's tensors, 0: not known
	BPW     float64    `json:"bpw"`            // 0: not known
	KLD     float64    `json:"predicted_kld"`  // 0: not known
	Seconds float64    `json:"seconds"`        // of fitting and measuring, from samples timed now
	Memory  int64      `json:"memory"`
	Disk    int64      `json:"disk"`
	Device  int64      `json:"device_memory,omitempty"` // of the GPU that text is run on
}

// Predict says what a request will take and give, and writes nothing. A plan that is to be
// made of statistics that have not been measured is not made: what is then told follows
// from the size that is asked for, with every matrix in the typical code, and the
// divergence is not known.
func Predict(ctx context.Context, m *model.Model, q Request) (*Forecast, error) {
	if err := q.check(m); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "nstf-plan-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	f := &flow{Request: q, m: m}
	if f.work, err = work.Create(dir+"/work", work.Job{}); err != nil {
		return nil, err
	}
	defer f.close()
	if f.Plan == nil && f.Stats == nil {
		return f.guess(ctx)
	}
	if f.stats = f.Stats; f.Stats != nil {
		if err := f.Stats.Check(m); err != nil {
			return nil, err
		}
	}
	p, err := f.planned(ctx, "plan.json", q.MaxKLD)
	if err != nil {
		return nil, err
	}
	needs := Need(m, p, f.options(f.stats))
	out := &Forecast{Plan: p, KLD: p.Predicted.KLD, Memory: needs.Memory, Disk: needs.Disk, Device: needs.Device}
	if f.measures() {
		out.Disk += statsBytes(m.Graph)
	}
	var params int64
	out.Bytes, params = planBytes(m, p)
	out.BPW = 8 * float64(out.Bytes) / float64(params)
	out.Seconds, err = f.seconds(ctx, p)
	return out, err
}

// planBytes returns what a model's weights take by a plan, and how many numbers they are.
func planBytes(m *model.Model, p *plan.Plan) (bytes, params int64) {
	for _, w := range m.Graph.Weights() {
		t := m.Tensor(w.Name)
		bytes += stored(&t, p, w.Role.Base() == graph.RoleEmbed)
		params += t.Elements()
	}
	return bytes, params
}

// seconds extrapolates from samples: some rows by each recipe, and one window
// through one block.
func (f *flow) seconds(ctx context.Context, p *plan.Plan) (float64, error) {
	sum, err := f.fits(ctx, p)
	if err != nil || len(f.Windows) == 0 {
		return sum, err
	}
	text, err := f.runs(ctx, 0)
	return sum + text, err
}

// runs returns the seconds that text takes to go through all blocks: windows are measured
// and walked behind once each to fit, and walked twice by original and package to measure;
// more is how many windows go through besides.
func (f *flow) runs(ctx context.Context, more float64) (float64, error) {
	block, err := f.walk(ctx)
	passes := 2.5*float64(len(f.Windows)) + 6*float64(len(f.Held)) + more
	return block * passes * float64(len(f.m.Graph.Blocks)), err
}

// fits returns the seconds that fitting takes by a plan.
func (f *flow) fits(ctx context.Context, p *plan.Plan) (float64, error) {
	r := run{m: f.m, p: p, o: f.options(f.stats)}
	rates := map[plan.Recipe]float64{} // seconds per weight
	var sum float64
	for _, w := range f.m.Graph.Weights() {
		recipe := r.recipe(w.Name)
		if _, reused := f.Earlier[w.Name]; reused || recipe.Kept() || len(w.Shape) < 2 {
			continue
		}
		t := f.m.Tensor(w.Name)
		if _, ok := rates[recipe]; !ok {
			var err error
			if rates[recipe], err = f.rate(ctx, &t, recipe); err != nil {
				return 0, err
			}
		}
		sum += rates[recipe] * float64(t.Elements())
	}
	return sum, nil
}

// sampledRows is how many rows are fitted to learn a rate; a device searches the codes
// of many in the time of few.
const sampledRows, sampledOnDevice = 64, 2048

// sample returns how many rows are fitted to learn a recipe's rate, by what, and where
// codes are searched. A product has fewer columns than its rows; what is fitted to a
// tensor as a whole takes about the time of its codes.
func (f *flow) sample(recipe plan.Recipe) (rows int64, by plan.Recipe, on fit.Searcher) {
	rows, by = sampledRows, recipe
	if !recipe.Whole() {
		rows = max(rows, int64(2*recipe.Rank))
	} else if by = plan.Dense(recipe.Code); by.Code == (plan.Code{}) {
		by = plan.Dense(recipe.A)
	}
	if s, looks := f.Searcher.(interface{ Found() bool }); f.Searcher != nil && by.Form == plan.FormDense && by.Code.Bits > 0 && (!looks || s.Found()) {
		rows, on = sampledOnDevice, f.Searcher
	}
	return rows, by, on
}

// rate times fitting, with and without moments, in seconds per weight.
func (f *flow) rate(ctx context.Context, t *formats.Tensor, recipe plan.Recipe) (float64, error) {
	rows, recipe, on := f.sample(recipe)
	o := fit.Options{Threads: f.Threads, Searcher: on, Effort: f.Effort}
	if f.Plan != nil {
		o.Effort = int(f.Plan.Effort)
	}
	n, k := t.Rows()
	n = min(n, rows)
	w := make([]float32, n*k)
	if err := form.DecodeRows(w, t, 0, n); err != nil {
		return 0, err
	}
	if on != nil { // which gets its kernels ready
		few := int(min(k, 64))
		if _, err := fit.Matrix(ctx, t.Name, w[:int(n)*few], int(n), few, recipe.Code, nil, o); err != nil {
			return 0, err
		}
	}
	seconds, err := timed(func() error {
		_, err := factored.Matrix(ctx, t.Name, w, int(n), int(k), recipe, nil, o)
		return err
	})
	return 2 * seconds / float64(n*k), err
}

// How often a sample is timed: one run of a few milliseconds is off by half on a machine
// that does something else too. No more than so long is spent on one.
const (
	sampleRuns = 5
	sampleTime = time.Second
)

// timed returns the median of the seconds that some runs take.
func timed(run func() error) (float64, error) {
	var took []float64
	for begun := time.Now(); len(took) < sampleRuns && (len(took) == 0 || time.Since(begun) < sampleTime); {
		began := time.Now()
		if err := run(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began).Seconds())
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// walk times one window through the first block.
func (f *flow) walk(ctx context.Context) (float64, error) {
	walk, err := exec.NewWalker(f.m.Path, f.m.Graph, f.m.Tensor, device.Span{Hi: 1, Embed: true}, walkOptions(f.Windows, f.Threads, f.On))
	if err != nil {
		return 0, err
	}
	seconds, err := timed(func() error {
		h, err := calibrate.NewHidden(ctx, walk, f.m.Graph, f.Windows[:1], calibrate.Keep{})
		return errors.Join(err, h.Close())
	})
	return seconds, errors.Join(err, walk.Close())
}
