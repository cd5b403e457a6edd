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
	"strings"
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
	kl, worst float64   // the mean divergence from dense attention, and the largest
	read      float64   // share of the pages
	right     bool      // every wanted token was the most likely one
	steps     []float64 // divergences
}

// se is the standard error of the mean.
func (q *quality) se() (x float64) {
	for _, y := range q.steps {
		x += (y - q.kl) * (y - q.kl)
	}
	return math.Sqrt(x) / float64(len(q.steps))
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
	read, held := w.e.PagesRead()
	q.right = true
	w.run(func(step int, logits []float32) {
		q.steps = append(q.steps, divergenceOf(w.want[step], logits))
		if n := len(w.ids) - answers; step >= n-1 && step+1 < len(w.ids) && argmax(logits) != w.ids[step+1] {
			q.right = false
		}
	})
	r, h := w.e.PagesRead()
	q.read = float64(r-read) / float64(max(h-held, 1))
	q.sum()
	return q
}

// sum fills in what follows from the steps.
func (q *quality) sum() {
	q.kl, q.worst = 0, 0
	for _, x := range q.steps {
		q.kl += x / float64(len(q.steps))
		q.worst = max(q.worst, x)
	}
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

// benchPages returns the shares of pages that PAGES lists, or these.
func benchPages(b *testing.B, usual ...float64) []float64 {
	b.Helper()
	list := os.Getenv("PAGES")
	if list == "" {
		return usual
	}
	var out []float64
	for f := range strings.SplitSeq(list, ",") {
		x, err := strconv.ParseFloat(f, 64)
		if err != nil {
			b.Fatalf("PAGES=%s: %v", list, err)
		}
		out = append(out, x)
	}
	return out
}

// A method is a way to choose pages, and its name in results.
type method struct {
	name  string
	heads *attention.Policy
	rank  func() func(*device.Ranking) // nil: the policy's own
}

// benchMethods are the policy, the policy by the shares of heads that the file ATTENTION has,
// and rankers; METHODS lists the names of some.
func benchMethods(b *testing.B) (out []method) {
	b.Helper()
	all := []method{{name: "policy, all heads alike"}}
	if name := os.Getenv("ATTENTION"); name != "" {
		p, err := attention.Read(name)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, method{name: "policy", heads: p})
	}
	for _, r := range rankers() {
		all = append(all, method{name: r.name, rank: r.rank})
	}
	list := os.Getenv("METHODS")
	for _, m := range all {
		if list == "" || slices.Contains(strings.Split(list, ";"), m.name) {
			out = append(out, m)
		}
	}
	return out
}

// try has the walk choose so.
func (w *qualityWalk) try(pages float64, m *method) {
	var rank func(*device.Ranking)
	if m.rank != nil {
		rank = m.rank()
	}
	w.set(pages, m.heads, rank)
}

// BenchmarkPolicyQuality measures the same behind long prompts, for docs/perf/attention.md:
// TEXT names a file of token ids, of which the first WINDOWS windows of LENGTH are run, each
// behind BOS, and PAGES and METHODS choose some.
func BenchmarkPolicyQuality(b *testing.B) {
	model := filepath.Join(shared(b), "long-llama")
	text := cmp.Or(os.Getenv("TEXT"), filepath.Join(model, "reference", "long_ids.json"))
	ids := readIDs(b, text)
	const bos = 0
	if ids[0] == bos {
		ids = ids[1:]
	}
	const steps = 128 // of which one reads all
	length, windows := number(b, "LENGTH", 16384), number(b, "WINDOWS", 1)
	var order []string
	sums := map[string]*quality{}
	for at := range windows {
		w := newQualityWalk(b, model, append([]int32{bos}, ids[at*(length-1):(at+1)*(length-1)]...), steps)
		for _, pages := range benchPages(b, 0.05, 0.1, 0.2, 0.3, 0.5) {
			for _, m := range benchMethods(b) {
				w.try(pages, &m)
				q, key := w.measure(0), fmt.Sprintf(`"pages":%g,"method":%q`, pages, m.name)
				if sums[key] == nil {
					sums[key], order = &quality{}, append(order, key)
				}
				sum := sums[key]
				sum.read += q.read / float64(windows)
				sum.steps = append(sum.steps, q.steps...)
			}
		}
		w.prompt.Close()
		w.e.Close()
	}
	for _, key := range order {
		q := sums[key]
		q.sum()
		fmt.Printf(`{"text":%q,"context":%d,"windows":%d,"steps":%d,%s,"read":%.4f,"kl":%.6f,"se":%.6f,"worst":%.5f}`+"\n", filepath.Base(text), length, windows, steps, key, q.read, q.kl, q.se(), q.worst)
	}
}

// number returns one that the environment has, or the usual one.
func number(b *testing.B, name string, usual int) int {
	b.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		b.Fatalf("%s=%s: %v", name, text, err)
	}
	return n
}

// needleSteps is how many tokens of a question are run one by one, in front of its answer.
const needleSteps = 24

// A needle is a question of long-llama's own, and how many of its last tokens are the answer.
type needle struct {
	ids    []int32
	answer int
}

// needles returns questions of a LENGTH, all or CASES behind the first SKIP.
func needles(b *testing.B) (out []needle, length, skip int) {
	b.Helper()
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
	length, skip = number(b, "LENGTH", 4096), number(b, "SKIP", 0)
	most, seen := number(b, "CASES", 32), 0
	for i, c := range all.Cases {
		if c.Length != length || len(out) == most {
			continue
		}
		if seen++; seen <= skip {
			continue
		}
		n := needle{answer: len(c.Answer)}
		for at := all.Offsets[i]; at < all.Offsets[i+1]; at++ {
			n.ids = append(n.ids, int32(binary.LittleEndian.Uint16(data[2*at:])))
		}
		n.ids = append(n.ids, c.Answer...)
		out = append(out, n)
	}
	return out, length, skip
}

// BenchmarkPolicyNeedles asks long-llama's questions. Their last tokens and the true answer's
// are run one by one: right is who has every token of the answer as the most likely one.
func BenchmarkPolicyNeedles(b *testing.B) {
	model := filepath.Join(shared(b), "long-llama")
	cases, length, skip := needles(b)
	type sum struct {
		right int
		read  float64
	}
	sums := map[string]*sum{}
	var order []string
	for _, c := range cases {
		w := newQualityWalk(b, model, c.ids, needleSteps+c.answer)
		ask := func(name string, pages float64) {
			q := w.measure(c.answer)
			key := fmt.Sprintf(`"pages":%g,"method":%q`, pages, name)
			if sums[key] == nil {
				sums[key], order = &sum{}, append(order, key)
			}
			sums[key].read += q.read
			if q.right {
				sums[key].right++
			}
		}
		w.set(1, nil, nil)
		ask("dense", 1)
		for _, pages := range benchPages(b, 0.1) {
			for _, m := range benchMethods(b) {
				w.try(pages, &m)
				ask(m.name, pages)
			}
		}
		w.prompt.Close()
		w.e.Close()
	}
	for _, key := range order {
		fmt.Printf(`{"needles":%d,"from":%d,"cases":%d,%s,"read":%.4f,"right":%d}`+"\n", length, skip, len(cases), key, sums[key].read/float64(len(cases)), sums[key].right)
	}
}

// loaded returns a sequence behind so many positions, whose pages are those of a short prompt
// over and over, and its tokens.
func loaded(b *testing.B, e *Executor, behind int) (*Sequence, []int32) {
	b.Helper()
	ids := make([]int32, behind)
	for i := range ids {
		ids[i] = int32((i*7919 + 13) % int(e.g.Vocab))
	}
	front, err := e.NewSequence()
	if err != nil {
		b.Fatal(err)
	}
	defer front.Close()
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
	if err := s.Load(ids, int64(behind), pages, nil); err != nil {
		b.Fatal(err)
	}
	return s, ids
}

// BenchmarkPolicyStep times steps of the model that MODEL names behind 16,384 positions,
// whose pages are those of a short prompt over and over: dense, with the shares of the pages
// that PAGES lists, and with nearly all of them, chosen as ever.
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
	s, ids := loaded(b, e, behind)
	type kind struct {
		name  string
		least int64
		pages float64
	}
	kinds := []kind{{"dense", 1 << 40, 1}}
	for _, x := range benchPages(b, 0.1) {
		kinds = append(kinds, kind{fmt.Sprintf("policy, %g %% of the pages", 100*x), 1024, x})
	}
	kinds = append(kinds, kind{"policy, all pages but one", 1024, 1 - 1./(behind/device.PolicyPage+2)})
	times := make([][]float64, len(kinds))
	for range rounds {
		for i, k := range kinds {
			p.Least, p.Pages, p.Refresh = k.least, k.pages, 1<<40
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
