package exec

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/runtime/gpu"
	"github.com/nstf/nstf/runtime/place"
	"github.com/nstf/nstf/runtime/sample"
)

// A device whose keys and values lie in the host's memory for the most part chooses the same tokens, ahead of who
// reads them, within the memory that it may give, and says where they lie.
func TestPolicyHosted(t *testing.T) {
	if !gpuTested(t) {
		t.Skip("for a GPU")
	}
	c := followedGraphs()[0]
	var lines []string
	open := func(host, most int64) *Executor {
		o := Options{Threads: 2, Exact: true, Sequences: 3}
		o.Device.KVHost, o.Device.Notice = host, func(line string) { lines = append(lines, line) }
		if most > 0 {
			o.Device.Memory = map[place.Request]int64{request(t): most}
		}
		p := tinyPolicy()
		p.Pages = 0.5
		return newFollowed(t, c.graph, p, o)
	}
	roomy := open(1<<30, 0).stages[0].(*gpu.Engine)
	page, err := roomy.StateBytes(64)
	if err != nil {
		t.Fatal(err)
	}
	lines = nil
	m := roomy.Memory()
	hosted := open(1<<30, m.Resident+m.Scratch+7*page) // of 33 pages some six, beside the summaries of all
	if all := strings.Join(lines, "\n"); !strings.Contains(all, "of the host's memory") || !strings.Contains(all, "over the link") {
		t.Errorf("what is said of it: %s", all)
	}
	decode := func(e *Executor) (ids []int32) {
		d, err := sequence(t, e).Decode(context.Background(), tinyIDs(430), newSampler(t, sample.Options{Temperature: 1, Seed: 5}), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Stop()
		for range 90 {
			id, err := d.Next()
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		return ids
	}
	if got, want := decode(hosted), decode(open(0, 0)); !slices.Equal(got, want) {
		t.Errorf("tokens %v, want %v", got, want)
	}
	if in, out := hosted.PagesMoved(); in == 0 || out == 0 {
		t.Errorf("%d pages came to the card, %d left it", in, out)
	}
}

// The host's memory is refused for keys and values on the processor, on several devices and where steps read all.
func TestHostedRefusals(t *testing.T) {
	g := tinies()[0].graph
	source, _ := fillWeights(t, g, "f32", 7)
	card := place.Request{Kind: place.HIP}
	for what, o := range map[string]Options{
		"processor": {Policy: tinyPolicy()}, "several": {Policy: tinyPolicy(), Device: Device{Request: card, Behind: []place.Request{{Kind: place.CPU}}}}, "read all": {Device: Device{Request: card}},
	} {
		o.Device.KVHost = 1 << 20
		_, err := newExecutor("tiny", g, source, o)
		if u := (*formats.UnsupportedError)(nil); !errors.As(err, &u) || u.Hint == "" || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Where any device would do, the GPU's own reason is told, not that the processor has no use for the host's memory.
func TestHostedAuto(t *testing.T) {
	if !gpuTested(t) {
		t.Skip("for a GPU")
	}
	g := tinies()[0].graph
	source, _ := fillWeights(t, g, "f32", 7)
	r := request(t)
	o := Options{Policy: tinyPolicy(), Device: Device{Request: place.Request{Kind: place.Auto}, KVHost: 1 << 20, Memory: map[place.Request]int64{r: 1}}}
	_, err := newExecutor("tiny", g, source, o)
	if large := (*gpu.TooLargeError)(nil); !errors.As(err, &large) {
		t.Errorf("%v", err)
	}
}
