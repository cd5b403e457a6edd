package schedule

import (
	"runtime"
	"sync"
)

// A Score is the logarithm of the probability of a token of a prompt behind the first, and
// those of the most probable ones there in falling order.
type Score struct {
	Logprob float64
	Top     []Logprob
}

// A score gathers those of a prompt.
type score struct {
	prompt []int32
	top    int
	vocab  int
	st     *Stream
}

// done is how many are known: those of a prompt that is computed again are known before.
func (p *score) done() int { return len(p.st.Scores()) }

// take sees the logits [n][vocab] behind the tokens from one on.
func (p *score) take(at int, logits []float32) {
	from := p.done()
	to := min(at+len(logits)/p.vocab, len(p.prompt)-1) // nothing follows the last one
	if from >= to {
		return
	}
	all := make([]Score, to-from)
	var next, workers = make(chan int), sync.WaitGroup{}
	for range min(runtime.GOMAXPROCS(0), len(all)) {
		workers.Go(func() {
			for i := range next {
				row := logits[(from+i-at)*p.vocab:][:p.vocab]
				norm := logSum(row)
				all[i] = Score{float64(row[p.prompt[from+i+1]]) - norm, top(row, p.top, norm)}
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	workers.Wait()
	p.st.mu.Lock()
	p.st.scores = append(p.st.scores, all...)
	p.st.mu.Unlock()
}
