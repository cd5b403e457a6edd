package bench

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/place"
	"github.com/nstf/nstf/runtime/sample"
)

// Options say what to measure. The zero value measures nothing.
type Options struct {
	Prompt  int            // tokens of the prompt; 0: no prompt is timed
	Gen     int            // tokens decoded one by one; 0: none
	Depth   int            // tokens in front of the decoded ones, not timed
	Repeat  int            // rounds, at least 1
	Threads int            // 0: as many as Go runs at once
	Level   string         // SIMD level by its name; "": the best this machine runs
	Exact   bool           // float32 throughout, see exec.Options
	KV      string         // how keys and values are kept, see exec.Options
	Policy  *device.Policy // of attention, see exec.Options; nil: it is dense
	Pin     bool           // each thread on a processor of its own
	Device  exec.Device
	Profile bool // time the kernels of a step too, on a GPU
	// Tuned has a GPU look for the divisions of its work that are fastest, instead
	// of timing the model, and is told about each operation; nil: it does not.
	Tuned func(device.Tuned)
	// FirstToken starts a process of its own and returns the time until the
	// model's first token; nil: it is not measured.
	FirstToken func(ctx context.Context) (time.Duration, error)
	// Progress is called with rounds done and their total; nil: nobody.
	Progress func(done, total int64)
}

// A Result is what was measured. Phases that were not are nil.
type Result struct {
	Model      string              `json:"model"`
	Machine    place.Machine       `json:"machine"`
	Device     string              `json:"device,omitempty"` // the GPU that ran it, "": the processor, or several
	Layout     *place.Layout       `json:"layout,omitempty"` // on several devices: what was expected of each
	Threads    int                 `json:"threads"`
	Repeat     int                 `json:"repeat"`
	Exact      bool                `json:"exact"`
	KV         string              `json:"kv,omitempty"` // where asked for
	Params     int64               `json:"params"`
	Bytes      int64               `json:"bytes"` // of all stored weights
	LoadS      float64             `json:"load_s"`
	Prompt     *Prompt             `json:"prompt,omitempty"`
	Decode     *Decode             `json:"decode,omitempty"`
	FirstToken *place.Rate         `json:"first_token_s,omitempty"` // from the start of a process
	Kernels    []device.KernelTime `json:"kernels,omitempty"`       // of a pass of the prompt and of a step
	Tuning     string              `json:"tuning,omitempty"`        // file that keeps what Options.Tuned was told
	PeakRSS    int64               `json:"peak_rss,omitempty"`      // bytes, mapped weights included; 0 where the system does not tell
}

// A Prompt is how fast a prompt is read, to the logits of its last token.
type Prompt struct {
	Tokens int        `json:"tokens"`
	Rate   place.Rate `json:"tokens_per_s"`
	Gops   place.Rate `json:"gops"`      // 10^9 multiplications and additions per second
	Kind   string     `json:"kind"`      // of multiplication that the limit is of, see cpu.PeakF32
	Peak   place.Rate `json:"peak_gops"` // the machine's, in the same run
	Share  float64    `json:"share"`     // of the peak, medians
}

// A Decode is how fast tokens come one after another.
type Decode struct {
	Tokens      int        `json:"tokens"`
	Depth       int        `json:"depth"`
	Rate        place.Rate `json:"tokens_per_s"`
	WeightBytes int64      `json:"weight_bytes"`        // read for a token
	CacheBytes  int64      `json:"cache_bytes"`         // keys and values read for a token, on average
	GBs         place.Rate `json:"gbs"`                 // of both, 10^9 bytes per second
	PagesIn     int64      `json:"pages_in,omitempty"`  // of keys and values that came to a GPU from the host's memory,
	PagesOut    int64      `json:"pages_out,omitempty"` // and left it for that, since the model was opened
	// Memory is reading a buffer far beyond the caches, in the same run; on a GPU
	// copying one, read and written bytes counted.
	Memory place.Rate `json:"memory_gbs"`
	Share  float64    `json:"share"` // of Memory: the median of the rounds' shares
	// Expected is the tokens in a second that were predicted before, behind 512, where
	// blocks were laid out. On several devices it stands in for Memory and Share.
	Expected float64 `json:"expected_tokens_per_s,omitempty"`
	// InPlace is reading the weights where they lie, again and again as tokens do, nil
	// where they do not lie in the mapped file.
	InPlace      *place.Rate `json:"in_place_gbs,omitempty"`
	InPlaceShare float64     `json:"in_place_share,omitempty"`
}

// Run measures a model. Its errors are those of the executor and of FirstToken.
func Run(ctx context.Context, m *model.Model, o Options) (*Result, error) {
	if o.Prompt < 0 || o.Gen < 0 || o.Depth < 0 || o.Repeat < 1 || o.Prompt+o.Gen == 0 {
		panic(fmt.Sprintf("bench: prompt %d, gen %d, depth %d, repeat %d", o.Prompt, o.Gen, o.Depth, o.Repeat))
	}
	if o.Threads == 0 {
		o.Threads = goruntime.GOMAXPROCS(0)
	}
	r, err := newRun(m, o)
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.warmUp(ctx); err != nil {
		return nil, err
	}
	if o.Tuned != nil {
		return r.tune(ctx)
	}
	for i := range o.Repeat {
		if err := r.round(ctx); err != nil {
			return nil, err
		}
		if o.Progress != nil {
			o.Progress(int64(i+1), int64(o.Repeat))
		}
	}
	res := r.result()
	if r.gpu != nil && o.Profile {
		if res.Kernels, err = r.profile(); err != nil {
			return nil, err
		}
	}
	r.close()
	if o.FirstToken != nil {
		res.FirstToken, err = firstToken(ctx, o)
	}
	return res, err
}

// tune has the device look for its best divisions of work.
func (r *run) tune(ctx context.Context) (*Result, error) {
	t, ok := r.gpu.(device.Tuner)
	if !ok {
		return nil, errors.New("bench: only a GPU is tuned with a model")
	}
	res := &Result{Model: r.m.Path, Device: r.gpu.Name()}
	var err error
	res.Tuning, err = t.Tune(ctx, r.o.Tuned)
	return res, err
}

// profile times the kernels of what was measured.
func (r *run) profile() (all []device.KernelTime, err error) {
	for _, rows := range []int{min(r.o.Prompt, r.ex.MaxRows()), min(r.o.Gen, 1), min(r.o.Gen, 8), min(r.o.Gen, 32)} {
		if rows == 0 {
			continue
		}
		k, err := r.gpu.Profile(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, k...)
	}
	return all, nil
}

func firstToken(ctx context.Context, o Options) (*place.Rate, error) {
	var seconds []float64
	for range o.Repeat {
		d, err := o.FirstToken(ctx)
		if err != nil {
			return nil, fmt.Errorf("measuring the time to the first token: %w", err)
		}
		seconds = append(seconds, d.Seconds())
	}
	r := place.NewRate(seconds)
	return &r, nil
}

// A run is a measurement in progress.
type run struct {
	o    Options
	m    *model.Model
	set  *cpu.Set
	ex   *exec.Executor
	seq  *exec.Sequence
	pool *cpu.Pool    // for the limits
	gpu  device.Meter // nil: the processor
	ids  []int32
	load time.Duration
	rss  int64

	memory, weights *place.Reader
	between         bool // memory is read between tokens too: they are long
	peak            *cpu.Peak

	prompts, decodes, memories, inPlace, peaks []float64 // per second
}

func newRun(m *model.Model, o Options) (*run, error) {
	r := &run{o: o, m: m, set: cpu.Best()}
	if o.Level != "" {
		level, err := cpu.ParseLevel(o.Level)
		if err != nil {
			return nil, err
		}
		if r.set, err = cpu.ForLevel(level); err != nil {
			return nil, err
		}
	}
	start := time.Now()
	var err error
	positions := max(o.Prompt, o.Depth+o.Gen)
	if o.Device.GPU() {
		positions += 2 // tokens in front of those that are timed
	}
	options := exec.Options{Threads: o.Threads, Context: int64(positions), Level: o.Level, Exact: o.Exact, KV: o.KV, Policy: o.Policy, Pin: o.Pin, Device: o.Device}
	if r.ex, r.seq, err = exec.Alone(m, options); err != nil {
		return nil, err
	}
	r.load, r.gpu = time.Since(start), r.ex.Meter()
	r.pool = cpu.NewPool(o.Threads)
	r.ids = make([]int32, max(o.Prompt, o.Depth+o.Gen))
	for i := range r.ids {
		r.ids[i] = int32((int64(i)*7919 + 13) % m.Graph.Vocab)
	}
	kind := cpu.PeakF32
	if !o.Exact && integers(m, r.set) {
		kind = cpu.PeakInt8
	}
	for _, p := range r.set.Peaks() {
		if p.Kind() == kind {
			r.peak = &p
		}
	}
	return r, nil
}

// close ends the threads; a second call does nothing.
func (r *run) close() {
	if r.ex != nil {
		r.ex.Close()
		r.pool.Close()
		r.ex = nil
	}
}

// warmUp reads the weights into memory and lets buffers grow.
func (r *run) warmUp(ctx context.Context) error {
	if r.o.Prompt > 0 {
		if _, err := r.prompt(ctx); err != nil {
			return err
		}
	}
	n := min(r.o.Gen, 4)
	var d timed
	if n > 0 {
		var err error
		if d, err = r.decode(ctx, n); err != nil {
			return err
		}
	}
	r.rss = peakRSS()
	if r.gpu == nil && !r.several() && n > 0 {
		machine := place.Discover(r.set)
		r.memory = place.NewReader(r.set, r.pool, place.NewBuffer(&machine))
		r.memory.Read()
		if w, ok := mapped(r.m); ok {
			r.weights = place.NewReader(r.set, r.pool, w...)
			r.weights.Read()
		}
		r.between = d.seconds > longToken.Seconds()*float64(n)
	}
	return nil
}

// A token that takes longer than longToken has read so much that a cache holds nothing
// for the next one, and behind each some memory is read for the limit, which takes a few
// hundredths of that: where others share a machine, its memory is twice as fast in one
// second as in the next.
const (
	longToken    = 50 * time.Millisecond
	betweenBytes = 128 << 20
)

// prompt returns the seconds that the prompt takes.
func (r *run) prompt(ctx context.Context) (float64, error) {
	r.seq.Reset()
	start := time.Now()
	_, err := r.seq.PrefillLast(ctx, r.ids[:r.o.Prompt])
	return time.Since(start).Seconds(), err
}

// A timed is how long tokens took, and how fast memory was read between them, 0 where
// it was not.
type timed struct{ seconds, memory float64 }

// back takes the sequence back to the first n tokens, and returns those that it does not hold: the last
// least of them at least. What is in front of the decoded tokens is computed once, not for every round.
func (r *run) back(n, least int) []int32 {
	held, tokens := 0, r.seq.Tokens()
	for held < min(n-least, len(tokens)) && tokens[held] == r.ids[held] {
		held++
	}
	r.seq.Truncate(held)
	return r.ids[held:n]
}

// decode decodes n tokens.
func (r *run) decode(ctx context.Context, n int) (d timed, err error) {
	if r.gpu != nil || r.several() {
		d.seconds, err = r.decodeOnDevice(ctx, n)
		return d, err
	}
	if err := r.seq.Prefill(ctx, r.back(r.o.Depth, 0), nil); err != nil {
		return d, err
	}
	var bytes int64
	var reading time.Duration
	start := time.Now()
	for _, id := range r.ids[r.o.Depth : r.o.Depth+n] {
		if err := ctx.Err(); err != nil {
			return d, err
		}
		if _, err := r.seq.Step(id); err != nil {
			return d, err
		}
		if r.between {
			n, took := r.memory.Next(betweenBytes)
			bytes, reading = bytes+n, reading+took
		}
	}
	d.seconds = (time.Since(start) - reading).Seconds()
	if r.between {
		d.memory = float64(bytes) / reading.Seconds()
	}
	return d, nil
}

// decodeOnDevice lets a GPU choose the tokens, as it does when it generates.
func (r *run) decodeOnDevice(ctx context.Context, n int) (float64, error) {
	greedy, err := sample.New(sample.Options{})
	if err != nil {
		return 0, err
	}
	d, err := r.seq.Decode(ctx, r.back(max(r.o.Depth, 1), 1), greedy, nil)
	if err != nil {
		return 0, err
	}
	defer d.Stop()
	if _, err := d.Next(); err != nil {
		return 0, err
	}
	start := time.Now()
	for range n {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if _, err := d.Next(); err != nil {
			return 0, err
		}
	}
	return time.Since(start).Seconds(), nil
}

// round takes one sample of everything.
func (r *run) round(ctx context.Context) error {
	if r.o.Prompt > 0 {
		s, err := r.prompt(ctx)
		if err != nil {
			return err
		}
		r.prompts = append(r.prompts, float64(r.o.Prompt)/s)
	}
	if r.o.Gen > 0 {
		d, err := r.decode(ctx, r.o.Gen)
		if err != nil {
			return err
		}
		r.decodes = append(r.decodes, float64(r.o.Gen)/d.seconds)
		if d.memory > 0 {
			r.memories = append(r.memories, d.memory)
		}
	}
	return r.limits()
}

// peakTime is how long the multiplication of a round's limit goes on.
const peakTime = 50 * time.Millisecond

// several reports whether the model runs on several devices: what bounds those is what its
// layout expects.
func (r *run) several() bool {
	l := r.ex.Layout()
	return l != nil && len(l.Ranges) > 1
}

// limits takes one sample of what the machine can do.
func (r *run) limits() error {
	if r.several() {
		return nil
	}
	if r.gpu != nil {
		rate, err := r.gpu.CopyRate()
		r.memories = append(r.memories, rate)
		return err
	}
	if r.o.Gen > 0 {
		if !r.between {
			r.memories = append(r.memories, r.memory.Read())
		}
		if r.weights != nil {
			r.inPlace = append(r.inPlace, r.readInPlace())
		}
	}
	if r.o.Prompt > 0 && r.peak != nil {
		r.peaks = append(r.peaks, place.PeakRate(r.pool, *r.peak, peakTime))
	}
	return nil
}

// inPlaceTime is how long weights are read at least: few megabytes of them take less than
// a thread takes to wake up.
const inPlaceTime = 10 * time.Millisecond

// readInPlace reads the weights as one token behind another does: where a cache holds
// them it does so from the second time on.
func (r *run) readInPlace() float64 {
	if !r.between {
		r.weights.Read()
	}
	var rates []float64
	for begun := time.Now(); len(rates) == 0 || time.Since(begun) < inPlaceTime; {
		rates = append(rates, r.weights.Read())
	}
	return place.NewRate(rates).Median
}

// mapped returns the weights as they lie in the mapped file, false where less than
// nine tenths of them do.
func mapped(m *model.Model) (runs [][]byte, ok bool) {
	var in, all int64
	for _, t := range m.Tensors() {
		if t.Name == m.Graph.Embed.Table && !m.Graph.Tied() {
			continue // of which a row is read
		}
		for _, p := range t.Parts {
			all += p.Data.Len()
			if b, ok := p.Data.Unchecked().Mapped(); ok {
				in += int64(len(b))
				runs = append(runs, b)
			}
		}
	}
	return runs, in*10 >= all*9
}

// integers reports whether most of a model's weights are stored in schemes with
// integer kernels.
func integers(m *model.Model, set *cpu.Set) bool {
	var n, all int64
	for i := range m.Graph.Blocks {
		for _, l := range m.Graph.Blocks[i].Linears() {
			t := m.Tensor(l.Weight)
			all += t.Elements()
			if set.Integer(t.Scheme) != nil {
				n += t.Elements()
			}
		}
	}
	return n*2 > all
}

func (r *run) result() *Result {
	res := &Result{Model: r.m.Path, Machine: place.Discover(r.set), Threads: r.o.Threads, Repeat: r.o.Repeat, Exact: r.o.Exact, KV: r.o.KV,
		Params: r.m.Graph.Params(), LoadS: r.load.Seconds(), PeakRSS: r.rss}
	for _, t := range r.m.Tensors() {
		res.Bytes += t.Size()
	}
	if r.gpu != nil {
		res.Device = r.gpu.Name()
	}
	if res.Layout = r.ex.Layout(); res.Layout != nil {
		var names []string
		for _, x := range res.Layout.Ranges {
			names = append(names, fmt.Sprintf("%v %s", x.Device, x.Name))
		}
		res.Device = strings.Join(names, ", ")
	}
	const positions = 1 << 10
	cache, err := r.ex.StateBytes(positions)
	if err != nil {
		panic(err) // a sequence of such a cache exists
	}
	cost := place.NewCost(r.m.Graph, r.m.Tensor, cache, positions)
	if r.o.Prompt > 0 {
		p := &Prompt{Tokens: r.o.Prompt, Rate: place.NewRate(r.prompts)}
		p.Gops = p.Rate.Times(cost.Operations(int64(r.o.Prompt)) / float64(r.o.Prompt) / 1e9)
		if len(r.peaks) > 0 {
			p.Kind, p.Peak = r.peak.Kind(), place.NewRate(r.peaks).Times(1e-9)
			p.Share = p.Gops.Median / p.Peak.Median
		}
		res.Prompt = p
	}
	if r.o.Gen > 0 {
		res.Decode = r.decodeResult(cost)
	}
	return res
}

func (r *run) decodeResult(cost *place.Cost) *Decode {
	var weights, cache float64
	for i := range r.o.Gen {
		w, c := cost.Bytes(int64(r.o.Depth + i + 1))
		weights, cache = w, cache+c/float64(r.o.Gen)
	}
	if read, held := r.ex.PagesRead(); held > 0 {
		cache *= float64(read) / float64(held)
	}
	d := &Decode{Tokens: r.o.Gen, Depth: r.o.Depth, Rate: place.NewRate(r.decodes), WeightBytes: int64(weights), CacheBytes: int64(cache)}
	d.PagesIn, d.PagesOut = r.ex.PagesMoved()
	d.GBs = d.Rate.Times((weights + cache) / 1e9)
	if len(r.memories) > 0 {
		d.Memory, d.Share = place.NewRate(r.memories).Times(1e-9), r.share(weights+cache, r.memories)
	}
	if l := r.ex.Layout(); l != nil {
		d.Expected = 1 / l.Seconds
	}
	if len(r.inPlace) > 0 {
		in := place.NewRate(r.inPlace).Times(1e-9)
		d.InPlace, d.InPlaceShare = &in, r.share(weights+cache, r.inPlace)
	}
	return d
}

// share returns what decoding moved of what the limit would have moved, each round with
// the limit of that round: the median.
func (r *run) share(bytes float64, limits []float64) float64 {
	shares := make([]float64, len(r.decodes))
	for i, rate := range r.decodes {
		shares[i] = rate * bytes / limits[i]
	}
	return place.NewRate(shares).Median
}
