package exec

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nstf/nstf/formats/attention"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/sample"
)

// promptShares has every head's blocks of queries read the same share of the pages.
func promptShares(g *graph.Graph, share float64) [][]float64 {
	out := make([][]float64, len(g.Blocks))
	for i := range out {
		if b := &g.Blocks[i]; device.Followed(b) {
			out[i] = slices.Repeat([]float64{share}, int(b.Attn.KVHeads))
		}
	}
	return out
}

// promptPolicy has blocks of queries choose among pages, of contexts that tests can pay for:
// 16 pages are read in any case.
func promptPolicy(g *graph.Graph, share float64) *device.Policy {
	p := tinyPolicy()
	p.Prompts = promptShares(g, share)
	return p
}

func newPrompted(t testing.TB, g *graph.Graph, p *device.Policy, o Options) *Executor {
	t.Helper()
	o.Context = 1600
	return newFollowed(t, g, p, o)
}

// halved rounds to half precision.
func halved(x float64) float64 {
	_, e := math.Frexp(x)
	unit := math.Ldexp(1, max(e-11, -24))
	return math.RoundToEven(x/unit) * unit
}

// leftOut is what [reference.leaves] wants, by the words of docs/attention.md: a block of
// queries reads the first page, the newest two, and those with the most of the weight that is
// foretold, the mean over its queries.
func leftOut(shares [][]float64, sinks func(name string) []float64) func(number int, a *graph.Attention, kv int, q, k [][]float64) func(t, page int) bool {
	return func(number int, a *graph.Attention, kv int, q, k [][]float64) func(t, page int) bool {
		const page = device.PolicyPage
		d, group := int(a.HeadDim), int(a.Heads/a.KVHeads)
		left := map[[2]int]bool{}
		score := func(t, head, s int) (z float64) {
			for i := range d {
				z += q[t][head*d+i] * k[s][kv*d+i]
			}
			return softcap(z*float64(a.Scale), a.Softcap)
		}
		foretold := func(t, head, at int) float64 {
			var mean, spread float64
			for i := range d {
				var sum, squares float64
				for s := at * page; s < (at+1)*page; s++ {
					sum += k[s][kv*d+i] / page
				}
				for s := at * page; s < (at+1)*page; s++ {
					squares += (k[s][kv*d+i] - sum) * (k[s][kv*d+i] - sum) / page
				}
				x := q[t][head*d+i] * float64(a.Scale)
				mean += x * halved(sum)
				spread += x * x * halved(squares)
			}
			return math.Log(page) + softcap(mean, a.Softcap) + 0.35*spread
		}
		if !device.Followed(&graph.Block{Attn: a}) {
			return func(int, int) bool { return false }
		}
		for block := 0; (block+1)*page <= len(q); block++ {
			room := max(int(math.Ceil(shares[number][kv]*float64(block+1))), 16)
			if room > block {
				continue
			}
			weights := make([]float64, block-1)
			for t := block * page; t < (block+1)*page; t++ {
				for head := kv * group; head < (kv+1)*group; head++ {
					near := 0.
					for s := 0; s <= t; s++ {
						if s < page || s >= (block-1)*page {
							near += math.Exp(score(t, head, s))
						}
					}
					sum := near
					if a.Sinks != "" {
						sum += math.Exp(sinks(a.Sinks)[head])
					}
					row := make([]float64, block-1)
					for at := 1; at < block-1; at++ {
						row[at] = math.Exp(foretold(t, head, at))
						sum += row[at]
					}
					for at, x := range row {
						weights[at] += x / sum
					}
				}
			}
			var order []int
			for at := 1; at < block-1; at++ {
				order = append(order, at)
			}
			slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(weights[y], weights[x]) })
			for _, at := range order[room-3:] {
				left[[2]int{block, at}] = true
			}
		}
		return func(t, at int) bool { return left[[2]int{t / page, at}] }
	}
}

// What a prompt gives whose blocks of queries choose pages is what the definition gives in
// float64, and a part of the pages is read.
func TestPromptPolicy(t *testing.T) {
	for i, c := range followedGraphs() {
		if gpuTested(t) && i > 0 || c.graph.Blocks[1].MoE != nil || c.graph.Recurrent() {
			continue // a router may choose another expert
		}
		p := promptPolicy(c.graph, 0.1)
		_, weights := fillWeights(t, c.graph, "f32", 7)
		r := &reference{g: c.graph, weights: weights}
		r.leaves = leftOut(p.Prompts, func(name string) []float64 { return weights[name] })
		ids := tinyIDs(64*19 + 30)
		e := newPrompted(t, c.graph, p, Options{Threads: 2, Exact: true})
		got := allLogits(t, sequence(t, e), ids)
		checkLogits(t, c.name, got, toFloat32(r.logits(ids)), 1e-4)
		if read, held := e.PagesRead(); read == 0 || read >= held {
			t.Errorf("%s: %d of %d pages read", c.name, read, held)
		}
		dense := allLogits(t, sequence(t, newPrompted(t, c.graph, nil, Options{Threads: 2, Exact: true})), ids)
		const whole = 64 * 16
		wantSame(t, c.name+", read whole", got[:whole], dense[:whole])
		if slices.Equal(got[len(ids)-40], dense[len(ids)-40]) {
			t.Errorf("%s: nothing was left out", c.name)
		}
	}
}

// Where all pages may be read a prompt is dense, to the bit, and so is one that is shorter than
// what is read in any case.
func TestPromptPolicyOfAllPages(t *testing.T) {
	for i, c := range followedGraphs() {
		if gpuTested(t) && i > 0 {
			break
		}
		for j, kv := range []string{"f32", "q8", "q4"} {
			if testing.Short() && j != i%3 || gpuTested(t) && kv != "f32" { // prompts are dense
				continue
			}
			o := Options{Threads: 2, KV: kv, Exact: true}
			ids := tinyIDs(64 * 19)
			want := allLogits(t, sequence(t, newPrompted(t, c.graph, nil, o)), ids)
			wantSame(t, c.name+" "+kv, allLogits(t, sequence(t, newPrompted(t, c.graph, promptPolicy(c.graph, 1), o)), ids), want)
			least := promptPolicy(c.graph, 0.1)
			least.Least = 64 * 19
			wantSame(t, c.name+" "+kv+", read whole", allLogits(t, sequence(t, newPrompted(t, c.graph, least, o)), ids), want)
		}
	}
}

// A prompt's bits do not depend on how many rows a pass takes, on threads, on whose logits are
// wanted, nor on who else is in the pass; with keys and values in any format.
func TestPromptPolicyWidth(t *testing.T) {
	for i, c := range followedGraphs() {
		if gpuTested(t) && i > 0 {
			break
		}
		kv := []string{"f32", "f16", "q8", "q4"}[i%4]
		ids := tinyIDs(64*19 + 30)
		open := func(threads int) *Executor {
			return newPrompted(t, c.graph, promptPolicy(c.graph, 0.1), Options{Threads: threads, KV: kv, Exact: true})
		}
		e := open(1)
		want := allLogits(t, sequence(t, e), ids)
		if read, held := e.PagesRead(); read >= held {
			t.Errorf("%s %s: %d of %d pages read", c.name, kv, read, held)
		}
		if !gpuTested(t) {
			wantSame(t, c.name+" "+kv+", 3 threads", allLogits(t, sequence(t, open(3)), ids), want)
		}
		last, err := sequence(t, e).PrefillLast(context.Background(), ids)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, c.name+" "+kv+", the last alone", [][]float32{last}, want[len(want)-1:])
		// two prompts by turns, of fewer rows than a page has and of more
		some := []int{7, 100, 300}
		if gpuTested(t) {
			some = some[1:2]
		} else if testing.Short() {
			some = some[i%3:][:1]
		}
		for _, rows := range some {
			var all []*Decoding
			var got [2][][]float32
			for j := range got {
				d, err := sequence(t, e).Continue(Continuation{Prompt: ids, Sampler: newSampler(t, sample.Options{}), Score: func(_ int, logits []float32) {
					for at := 0; at < len(logits); at += int(c.graph.Vocab) {
						got[j] = append(got[j], slices.Clone(logits[at:at+int(c.graph.Vocab)]))
					}
				}})
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, d)
			}
			for all[0].Unread()+all[1].Unread() > 0 {
				var turns []Turn
				for j, d := range all {
					if d.Unread() > 0 {
						turns = append(turns, Turn{d, rows + 13*j})
					}
				}
				if err := e.Advance(turns); err != nil {
					t.Fatal(err)
				}
			}
			for j, d := range all {
				wantSame(t, fmt.Sprintf("%s %s, prompt %d by turns of %d", c.name, kv, j, rows), got[j], want)
				if err := d.Stop(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// A device reads the pages of prompts that the processor reads, and gives its logits, in steps behind them too; so
// does the processor at another level of SIMD.
func TestPromptPolicyChoosesAlike(t *testing.T) {
	for i, c := range followedGraphs() {
		if gpuTested(t) && i > 0 {
			break
		}
		for _, kv := range []string{"f32", "f16"} {
			choosesAlike(t, &c, Options{KV: kv, Policy: promptPolicy(c.graph, 0.1), Context: 1600}, tinyIDs(64*20+40), 64*20+30, map[string]float64{"f32": 1e-4, "f16": 0.1}[kv])
		}
	}
}

// Stages that work at once on passes of a prompt give the bits of one, wherever these cut it.
func TestPromptPolicyAbreast(t *testing.T) {
	processorOnly(t, "a prompt of a thousand tokens many times over")
	for i, c := range followedGraphs() {
		n := len(c.graph.Blocks)
		at := n / 2
		for at < n && len(c.graph.Carried(at)) > 0 { // keys and values stay in their stage
			at++
		}
		p := promptPolicy(c.graph, 0.1)
		source, _ := fillWeights(t, c.graph, "f32", 7)
		o := onFlag(t, Options{Threads: 1, KV: []string{"f32", "q4"}[i%2], Exact: true, Context: 1600, Policy: p})
		ids := tinyIDs(64*19 + 30)
		want := allLogits(t, sequence(t, newPrompted(t, c.graph, p, o)), ids)
		var stages []device.Stage
		for _, span := range []device.Span{{Hi: at, Embed: true}, {Lo: at, Hi: n, Head: true}} {
			s, _, err := newStage(c.graph, span, source, &o)
			opened(t, err)
			stages = append(stages, s)
		}
		e := join(c.graph, 1600, stages...)
		defer e.Close()
		e.follow(p)
		for _, least := range []int{40, 100, 256} {
			e.abreast, e.leastAbreast = true, least
			s := sequence(t, e)
			wantSame(t, fmt.Sprintf("%s, passes of %d", c.name, e.cut(len(ids))), allLogits(t, s, ids), want)
			s.Close()
		}
		if read, held := e.PagesRead(); read == 0 || read >= held {
			t.Errorf("%s: %d of %d pages read", c.name, read, held)
		}
	}
}

// On a trained model a prompt whose blocks of queries read less than half of the pages loses
// little.
func TestSharedPromptPolicy(t *testing.T) {
	processorOnly(t, "4,096 tokens of a trained model, twice")
	model := filepath.Join(shared(t), "long-llama")
	ids := readIDs(t, filepath.Join(model, "reference", "long_ids.json"))[:4096]
	m, err := checkpoint.Open(model)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p := device.DefaultPolicy()
	e, err := New(m, Options{Exact: true, KV: "f16", Context: int64(len(ids)), Policy: &p})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s, err := e.NewSequence()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var want [][]float32
	q := quality{}
	for _, shares := range [][][]float64{nil, promptShares(m.Graph, 0.3)} {
		p.Prompts = shares
		s.Reset()
		err := s.Prefill(context.Background(), ids, func(pos int, row []float32) error {
			switch {
			case pos < int(p.Least) || pos%16 != 0:
			case shares == nil:
				want = append(want, slices.Clone(row))
			default:
				q.steps = append(q.steps, divergenceOf(want[len(q.steps)], row))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	q.sum()
	read, held := e.PagesRead()
	t.Logf("KL %.5f, %d of %d pages", q.kl, read, held)
	if !(q.kl > 0 && q.kl < 0.02) || read == 0 || 2*read > held {
		t.Errorf("%d of %d pages lose %g", read, held, q.kl)
	}
}

// promptHeads returns the shares that heads have in prompts, or in steps where prompts were not
// measured.
func promptHeads(p *attention.Policy, blocks int, pages float64) [][]float64 {
	if len(p.Prompts) == 0 {
		return p.Shares(blocks, pages)
	}
	return p.PromptShares(blocks, pages)
}

// processorSeconds returns the time that all threads of the process have computed: what a machine
// that others use lets be compared, of one thread, which does not wait for others. 0 where
// Linux does not say.
func processorSeconds() float64 {
	data, _ := os.ReadFile("/proc/self/stat")
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	ticks := 0.
	for _, at := range []int{11, 12} { // in user mode, and in the kernel
		if at < len(fields) {
			n, _ := strconv.ParseFloat(fields[at], 64)
			ticks += n
		}
	}
	return ticks / 100 // USER_HZ
}

// BenchmarkPolicyPrompt measures what prompts lose and gain whose blocks of queries read some
// pages, for docs/perf/attention.md. MODEL names a model (long-llama), TEXT a file of token ids
// (or KL=0: any ids, times alone), ATTENTION the shares of heads; windows of LENGTH, WINDOWS of
// them, SKIP in front, on THREADS; PAGES lists shares. Kinds take turns.
func BenchmarkPolicyPrompt(b *testing.B) {
	model := cmp.Or(os.Getenv("MODEL"), filepath.Join(shared(b), "long-llama"))
	m, err := checkpoint.Open(model)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	length, windows, skip, kl, every := number(b, "LENGTH", 16384), number(b, "WINDOWS", 1), number(b, "SKIP", 0), number(b, "KL", 1), number(b, "EVERY", 8)
	p := device.DefaultPolicy()
	e, err := New(m, Options{Threads: number(b, "THREADS", 0), Exact: kl != 0, KV: "f16", Context: int64(length), Policy: &p})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	var heads *attention.Policy
	if name := os.Getenv("ATTENTION"); name != "" {
		if heads, err = attention.Read(name); err != nil {
			b.Fatal(err)
		}
	}
	var ids []int32
	if text := os.Getenv("TEXT"); text != "" {
		ids = readIDs(b, text)[skip*length:]
	} else {
		for i := range length * windows {
			ids = append(ids, int32((i*7919+13)%int(m.Graph.Vocab)))
		}
	}
	type sum struct {
		quality
		seconds, computed []float64
		read              float64
	}
	pages := append([]float64{1}, benchPages(b, 0.1, 0.2, 0.3)...)
	sums := make([]sum, len(pages))
	s, err := e.NewSequence()
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for w := range windows {
		window := ids[w*length : (w+1)*length]
		if kl != 0 {
			window = append([]int32{0}, window[:length-1]...)
		}
		var want [][]float32
		for i, x := range pages {
			p.Prompts = nil
			if x < 1 {
				p.Prompts = promptShares(m.Graph, x)
				if heads != nil {
					p.Prompts = promptHeads(heads, len(m.Graph.Blocks), x)
				}
			}
			s.Reset()
			var rows func(pos int, row []float32) error
			if kl != 0 {
				rows = func(pos int, row []float32) error {
					if pos%every != 0 || pos < int(p.Least) {
						return nil
					}
					if x == 1 {
						want = append(want, slices.Clone(row))
						return nil
					}
					sums[i].steps = append(sums[i].steps, divergenceOf(want[(pos-int(p.Least))/every], row))
					return nil
				}
			}
			read, held := e.PagesRead()
			begin, computed := time.Now(), processorSeconds()
			if err := s.Prefill(context.Background(), window, rows); err != nil {
				b.Fatal(err)
			}
			sums[i].seconds = append(sums[i].seconds, time.Since(begin).Seconds())
			sums[i].computed = append(sums[i].computed, processorSeconds()-computed)
			r, h := e.PagesRead()
			sums[i].read += float64(r-read) / float64(max(h-held, 1)) / float64(windows)
		}
	}
	for i, x := range pages {
		q := &sums[i]
		fmt.Printf(`{"model":%q,"text":%q,"context":%d,"windows":%d,"pages":%g,"heads":%v,"read":%.4f,"seconds":%.2f,"processor_seconds":%.2f`, filepath.Base(model), filepath.Base(os.Getenv("TEXT")),
			length, windows, x, heads != nil, q.read, slices.Min(q.seconds), slices.Min(q.computed))
		if kl != 0 && x < 1 {
			q.sum()
			fmt.Printf(`,"rows":%d,"kl":%.6f,"se":%.6f,"worst":%.5f,"quarters":[`, len(q.steps), q.kl, q.se(), q.worst)
			n := len(q.steps) / 4
			for j := range 4 {
				part := quality{steps: q.steps[j*n : (j+1)*n]}
				part.sum()
				fmt.Printf("%.5f%s", part.kl, []string{",", "]"}[j/3])
			}
		}
		fmt.Println("}")
	}
}

// BenchmarkPolicyPromptNeedles asks long-llama's questions, as [BenchmarkPolicyNeedles] does,
// of prompts with the true answers, by ATTENTION with the shares that PAGES lists.
func BenchmarkPolicyPromptNeedles(b *testing.B) {
	m, err := checkpoint.Open(filepath.Join(shared(b), "long-llama"))
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	heads, err := attention.Read(os.Getenv("ATTENTION"))
	if err != nil {
		b.Fatal(err)
	}
	cases, length, skip := needles(b)
	p := device.DefaultPolicy()
	e, err := New(m, Options{Exact: true, KV: "f16", Context: int64(length + 256), Policy: &p})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	s, err := e.NewSequence()
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for _, pages := range benchPages(b, 0.1) {
		p.Prompts = promptHeads(heads, len(m.Graph.Blocks), pages)
		right, shared := 0, 0.
		for _, c := range cases {
			s.Reset()
			all := true
			read, held := e.PagesRead()
			err := s.Prefill(context.Background(), c.ids, func(pos int, row []float32) error {
				if next := pos + 1; next >= len(c.ids)-c.answer && next < len(c.ids) && argmax(row) != c.ids[next] {
					all = false
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
			r, h := e.PagesRead()
			shared += float64(r-read) / float64(max(h-held, 1)) / float64(len(cases))
			if all {
				right++
			}
		}
		fmt.Printf(`{"prompt_needles":%d,"from":%d,"cases":%d,"pages":%g,"read":%.4f,"right":%d}`+"\n", length, skip, len(cases), pages, shared, right)
	}
}

// BenchmarkPolicyPromptRows times 512 rows of a prompt behind BEHIND positions of the model that
// MODEL names, whose pages are those of a short prompt over and over: dense, and by the shares
// that PAGES lists, of every head, by turns.
func BenchmarkPolicyPromptRows(b *testing.B) {
	path := os.Getenv("MODEL")
	if path == "" {
		b.Skip("MODEL names no model")
	}
	const rows, rounds = 512, 3
	behind := number(b, "BEHIND", 16384)
	m, err := checkpoint.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	p := device.DefaultPolicy()
	e, err := New(m, Options{Threads: number(b, "THREADS", 0), Context: int64(behind + 2*rows), Sequences: 3, Policy: &p})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	s, ids := loaded(b, e, behind)
	pages := append([]float64{1}, benchPages(b, 0.1, 0.2, 0.3)...)
	times, computed := make([][]float64, len(pages)), make([][]float64, len(pages))
	for range rounds + 1 {
		for i, x := range pages {
			p.Prompts = nil
			if x < 1 {
				p.Prompts = promptShares(m.Graph, x)
			}
			f, err := s.Fork()
			if err != nil {
				b.Fatal(err)
			}
			// the first rows make summaries of all pages behind them
			if err := f.Prefill(context.Background(), ids[:64], nil); err != nil {
				b.Fatal(err)
			}
			begin, before := time.Now(), processorSeconds()
			if err := f.Prefill(context.Background(), ids[:rows], nil); err != nil {
				b.Fatal(err)
			}
			times[i], computed[i] = append(times[i], time.Since(begin).Seconds()), append(computed[i], processorSeconds()-before)
			f.Close()
		}
	}
	for i, x := range pages {
		t := times[i][1:] // the first round meets cold memory
		slices.Sort(t)
		fmt.Printf(`{"model":%q,"behind":%d,"rows":%d,"pages":%g,"median_s":%.3f,"least_s":%.3f,"processor_s":%.2f}`+"\n", filepath.Base(path), behind, rows, x, t[len(t)/2], t[0], slices.Min(computed[i][1:]))
	}
}
