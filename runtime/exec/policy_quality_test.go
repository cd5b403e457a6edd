package exec

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nstf/nstf/formats/attention"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/runtime/device"
)

// A ranker is another method of choosing pages, which a policy is held to.
type ranker struct {
	name string
	rank func() func(*device.Ranking) // for one sequence
}

// perHead keeps what a method knows of each head. Heads are ranked at the same time.
type perHead[T any] struct {
	mu sync.Mutex
	of map[[2]int]*T
}

func (p *perHead[T]) at(r *device.Ranking) *T {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := [2]int{r.Block, r.Head}
	if p.of[key] == nil {
		if p.of == nil {
			p.of = map[[2]int]*T{}
		}
		p.of[key] = new(T)
	}
	return p.of[key]
}

// rankers are the weight that pages really have (an oracle), Quest's bound of scores by the
// extremes of a page's keys (arXiv 2406.10774, softmaxed and summed over the queries of a
// group), the newest pages, and history alone: weights smoothed over the steps, beginning
// with those of the first and fed by what was read.
func rankers() []ranker {
	return []ranker{
		{"oracle", func() func(*device.Ranking) {
			return func(r *device.Ranking) {
				for page := range r.Weights {
					r.Weights[page] = r.Mass(page)
				}
			}
		}},
		{"quest", func() func(*device.Ranking) {
			var known perHead[[][2][]float32]
			return func(r *device.Ranking) { quest(r, known.at(r)) }
		}},
		{"window", func() func(*device.Ranking) {
			return func(r *device.Ranking) {
				for page := range r.Weights {
					r.Weights[page] = float64(page)
				}
			}
		}},
		{"history", func() func(*device.Ranking) {
			var known perHead[[]float64]
			return func(r *device.Ranking) { historyAlone(r, known.at(r)) }
		}},
	}
}

func quest(r *device.Ranking, known *[][2][]float32) {
	pages := len(r.Weights)
	for len(*known) < pages-1 { // those that are whole
		keys := r.Keys(len(*known))
		var both [2][]float32
		for at := 0; at < len(keys); at += device.PolicyPage {
			both[0] = append(both[0], slices.Min(keys[at:at+device.PolicyPage]))
			both[1] = append(both[1], slices.Max(keys[at:at+device.PolicyPage]))
		}
		*known = append(*known, both)
	}
	d := len((*known)[0][0])
	for q := 0; q < len(r.Queries); q += d {
		scores, top := make([]float64, pages-1), math.Inf(-1)
		for page := range scores {
			for i, x := range r.Queries[q : q+d] {
				scores[page] += float64(max(x*(*known)[page][0][i], x*(*known)[page][1][i])) * float64(r.Scale)
			}
			top = max(top, scores[page])
		}
		sum := 0.
		for _, x := range scores {
			sum += math.Exp(x - top)
		}
		for page, x := range scores {
			r.Weights[page] += math.Exp(x-top) / sum
		}
	}
}

// historyAlone reads the true weights of what it chooses, and of all at its first step.
func historyAlone(r *device.Ranking, known *[]float64) {
	const kept = 0.7
	first := *known == nil
	for page := len(*known); page < len(r.Weights); page++ {
		*known = append(*known, r.Mass(page))
	}
	copy(r.Weights, *known)
	if first {
		return
	}
	order := make([]int, len(r.Weights))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(r.Weights[b], r.Weights[a]) })
	for i, page := range order {
		seen := 0.
		if i < len(order)/10 || page == 0 || page >= len(order)-2 {
			seen = r.Mass(page)
		}
		(*known)[page] = kept*(*known)[page] + (1-kept)*seen
	}
}

// A quality is what a method costs.
type quality struct {
	kl, worst float64 // the mean divergence from dense attention, and the largest
	se        float64
	read      float64 // share of the pages
	right     bool    // every wanted token was the most likely one
}

// A qualityWalk compares methods behind one prompt.
type qualityWalk struct {
	t      testing.TB
	e      *Executor
	policy *device.Policy
	prompt *Sequence
	ids    []int32 // behind it
	want   [][]float32
}

func newQualityWalk(t testing.TB, model string, ids []int32, steps int) *qualityWalk {
	t.Helper()
	p := device.DefaultPolicy()
	w := &qualityWalk{t: t, policy: &p, ids: ids[len(ids)-steps:]}
	m, err := checkpoint.Open(model)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if w.e, err = New(m, Options{Exact: true, KV: "f16", Context: int64(len(ids)), Sequences: 3, Policy: w.policy}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.e.Close() })
	if w.prompt, err = w.e.NewSequence(); err != nil {
		t.Fatal(err)
	}
	if err := w.prompt.Prefill(context.Background(), ids[:len(ids)-steps], nil); err != nil {
		t.Fatal(err)
	}
	w.policy.Pages = 1
	w.run(func(_ int, logits []float32) { w.want = append(w.want, slices.Clone(logits)) })
	return w
}

func (w *qualityWalk) run(f func(step int, logits []float32)) {
	w.t.Helper()
	s, err := w.prompt.Fork()
	if err != nil {
		w.t.Fatal(err)
	}
	defer s.Close()
	for i, id := range w.ids {
		logits, err := s.Step(id)
		if err != nil {
			w.t.Fatal(err)
		}
		f(i, logits)
	}
}

// measure runs the policy as it is set, and counts the last steps as answers.
func (w *qualityWalk) measure(answers int) (q quality) {
	w.t.Helper()
	var all []float64
	read, held := w.e.PagesRead()
	q.right = true
	w.run(func(step int, logits []float32) {
		all = append(all, divergenceOf(w.want[step], logits))
		if n := len(w.ids) - answers; step >= n-1 && step+1 < len(w.ids) && argmax(logits) != w.ids[step+1] {
			q.right = false
		}
	})
	r, h := w.e.PagesRead()
	q.read = float64(r-read) / float64(max(h-held, 1))
	for _, x := range all {
		q.kl += x / float64(len(all))
		q.worst = max(q.worst, x)
	}
	for _, x := range all {
		q.se += (x - q.kl) * (x - q.kl)
	}
	q.se = math.Sqrt(q.se) / float64(len(all))
	return q
}

func divergenceOf(ref, own []float32) (sum float64) {
	norm := func(x []float32) float64 {
		top := slices.Max(x)
		s := 0.
		for _, v := range x {
			s += math.Exp(float64(v - top))
		}
		return float64(top) + math.Log(s)
	}
	a, b := norm(ref), norm(own)
	for i, v := range ref {
		if p := math.Exp(float64(v) - a); p > 0 {
			sum += p * (float64(v) - a - float64(own[i]) + b)
		}
	}
	return sum
}

// set has the walk's policy read a share of the pages, by the shares of heads that were
// measured where there are some, or by another method.
func (w *qualityWalk) set(pages float64, heads *attention.Policy, rank func(*device.Ranking)) {
	*w.policy = device.DefaultPolicy()
	w.policy.Pages, w.policy.Rank = pages, rank
	if heads != nil {
		w.policy.Heads = heads.Shares(len(w.e.g.Blocks), pages)
	}
}

// On a trained model the policy loses less than a window, than Quest's bound and than
// history alone, which read as many pages.
func TestSharedPolicy(t *testing.T) {
	processorOnly(t, "policies of attention")
	model := filepath.Join(shared(t), "long-llama")
	ids := readIDs(t, filepath.Join(model, "reference", "long_ids.json"))
	w := newQualityWalk(t, model, ids[:4096], 48)
	const pages = 0.2
	w.set(pages, nil, nil)
	own := w.measure(0)
	for _, r := range rankers() {
		w.set(pages, nil, r.rank())
		q := w.measure(0)
		t.Logf("%s: %.5f, %.3f of the pages; the policy %.5f, %.3f", r.name, q.kl, q.read, own.kl, own.read)
		if r.name != "oracle" && !(own.kl < q.kl) {
			t.Errorf("%s loses %g, the policy %g", r.name, q.kl, own.kl)
		}
	}
}

// BenchmarkPolicyQuality measures the same behind long prompts, for docs/perf/attention.md:
// the file that ATTENTION names has the shares of heads, LENGTH and PAGES choose some.
func BenchmarkPolicyQuality(b *testing.B) {
	model := filepath.Join(shared(b), "long-llama")
	ids := readIDs(b, filepath.Join(model, "reference", "long_ids.json"))
	const steps = 128 // of which one reads all
	if n, err := strconv.Atoi(os.Getenv("LENGTH")); err == nil {
		ids = ids[:n]
	}
	w := newQualityWalk(b, model, ids, steps)
	heads := benchHeads(b)
	for _, pages := range []float64{0.1, 0.2, 0.3} {
		if p := os.Getenv("PAGES"); p != "" && p != fmt.Sprint(pages) {
			continue
		}
		show := func(name string) {
			q := w.measure(0)
			fmt.Printf(`{"text":"book","context":%d,"steps":%d,"pages":%g,"method":%q,"read":%.4f,"kl":%.6f,"se":%.6f,"worst":%.5f}`+"\n", len(ids), steps, pages, name, q.read, q.kl, q.se, q.worst)
		}
		w.set(pages, nil, nil)
		show("policy, all heads alike")
		if heads != nil {
			w.set(pages, heads, nil)
			show("policy")
		}
		for _, r := range rankers() {
			w.set(pages, nil, r.rank())
			show(r.name)
		}
	}
}

func benchHeads(b *testing.B) *attention.Policy {
	b.Helper()
	name := os.Getenv("ATTENTION")
	if name == "" {
		return nil
	}
	p, err := attention.Read(name)
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// needleSteps is how many tokens of a question are run one by one, in front of its answer.
const needleSteps = 24

// BenchmarkPolicyNeedles asks long-llama's questions, the last tokens of which, and the true
// answer's, are run one by one: right is who has every token of the answer as the most
// likely one.
func BenchmarkPolicyNeedles(b *testing.B) {
	model := filepath.Join(shared(b), "long-llama")
	var all struct {
		Offsets []int
		Cases   []struct {
			Length int
			Answer []int32 `json:"answer_ids"`
		}
	}
	readJSON(b, filepath.Join(model, "reference", "needles.json"), &all)
	data, err := os.ReadFile(filepath.Join(model, "reference", "needles.npy"))
	if err != nil {
		b.Fatal(err)
	}
	data = data[10+int(binary.LittleEndian.Uint16(data[8:])):] // behind the header: uint16
	heads := benchHeads(b)
	const pages = 0.1
	for length, cases := range map[int]int{4096: 4, 8192: 4, 16384: 2} {
		if n := os.Getenv("LENGTH"); n != "" && n != strconv.Itoa(length) {
			continue
		}
		right, read, done := map[string]int{}, map[string]float64{}, 0
		for i, c := range all.Cases {
			if c.Length != length || done == cases {
				continue
			}
			done++
			var ids []int32
			for at := all.Offsets[i]; at < all.Offsets[i+1]; at++ {
				ids = append(ids, int32(binary.LittleEndian.Uint16(data[2*at:])))
			}
			ids = append(ids, c.Answer...)
			w := newQualityWalk(b, model, ids, needleSteps+len(c.Answer))
			ask := func(name string) {
				q := w.measure(len(c.Answer))
				read[name] += q.read
				if q.right {
					right[name]++
				}
			}
			w.set(1, nil, nil)
			ask("dense")
			w.set(pages, nil, nil)
			ask("policy, all heads alike")
			if heads != nil {
				w.set(pages, heads, nil)
				ask("policy")
			}
			for _, r := range rankers() {
				w.set(pages, nil, r.rank())
				ask(r.name)
			}
			w.prompt.Close()
		}
		for name, n := range read {
			fmt.Printf(`{"needles":%d,"pages":%g,"method":%q,"read":%.4f,"cases":%d,"right":%d}`+"\n", length, pages, name, n/float64(done), done, right[name])
		}
	}
}

// BenchmarkPolicyStep times steps of the model that MODEL names behind 16,384 positions,
// whose pages are those of a short prompt over and over: dense, with a tenth of the pages, and
// with nearly all of them, chosen as ever.
func BenchmarkPolicyStep(b *testing.B) {
	path := os.Getenv("MODEL")
	if path == "" {
		b.Skip("MODEL names no model")
	}
	const behind, steps, rounds = 16384, 8, 5
	m, err := checkpoint.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	p := device.DefaultPolicy()
	e, err := New(m, Options{Context: behind + 256, Sequences: 3, Policy: &p})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	ids := make([]int32, behind)
	for i := range ids {
		ids[i] = int32((i*7919 + 13) % int(m.Graph.Vocab))
	}
	front, err := e.NewSequence()
	if err != nil {
		b.Fatal(err)
	}
	if err := front.Prefill(context.Background(), ids[:256], nil); err != nil {
		b.Fatal(err)
	}
	kept, err := front.Snapshot()
	if err != nil {
		b.Fatal(err)
	}
	var pages [][]byte
	for i := range behind / device.PolicyPage {
		pages = append(pages, kept.AppendPage(nil, i%4))
	}
	s, err := e.NewSequence()
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Load(ids, behind, pages, nil); err != nil {
		b.Fatal(err)
	}
	kinds := []struct {
		name   string
		least  int64
		pages  float64
		period int64
	}{{"dense", 1 << 40, 1, 2}, {"policy, 10 % of the pages", 1024, 0.1, 1 << 40}, {"policy, all pages but one", 1024, 1 - 1./(behind/device.PolicyPage+2), 1 << 40}}
	var times [3][]float64
	for range rounds {
		for i, k := range kinds {
			p.Least, p.Pages, p.Refresh = k.least, k.pages, k.period
			f, err := s.Fork()
			if err != nil {
				b.Fatal(err)
			}
			for step := range steps + 2 {
				begin := time.Now()
				if _, err := f.Step(ids[step]); err != nil {
					b.Fatal(err)
				}
				if step >= 2 { // the first reads all, and makes summaries
					times[i] = append(times[i], time.Since(begin).Seconds())
				}
			}
			f.Close()
		}
	}
	for i, k := range kinds {
		slices.Sort(times[i])
		fmt.Printf(`{"model":%q,"behind":%d,"kind":%q,"steps":%d,"median_ms":%.2f,"least_ms":%.2f}`+"\n", filepath.Base(path), behind, k.name, len(times[i]), 1e3*times[i][len(times[i])/2], 1e3*times[i][0])
	}
}
