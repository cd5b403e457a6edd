package place

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
)

// A Range is neighbouring blocks on one device, and what is expected of them. The first
// range has the embedding too, the last one the head.
type Range struct {
	Device  Request `json:"device"`
	Name    string  `json:"name,omitempty"`
	Lo      int     `json:"lo"` // blocks Lo to Hi, without Hi
	Hi      int     `json:"hi"`
	Memory  int64   `json:"memory,omitempty"`  // bytes that it takes
	Limit   int64   `json:"limit,omitempty"`   // bytes that it may take
	Read    int64   `json:"read,omitempty"`    // bytes that a token reads
	Seconds float64 `json:"seconds,omitempty"` // of a token
	Hand    float64 `json:"hand_s,omitempty"`  // of those, taking hidden states, or tokens, from and to the host
	// HostExperts are blocks, ascending, whose routed experts lie in the processor's memory and
	// are computed there, while the range's device, a GPU, has the rest of them.
	HostExperts []int `json:"host_experts,omitempty"`
	// Pinned are experts of those blocks, ascending, that lie on the device too, which computes them for
	// steps, by block; PinnedUse is the share of choices that go to them, of all of HostExperts.
	Pinned    map[int][]int `json:"pinned_experts,omitempty"`
	PinnedUse float64       `json:"pinned_use,omitempty"`
	// Streams has the weights of those experts come to the device for rows of prompts, in place of
	// the processor's multiplying them: see Prompts, which is nil where none can come.
	Streams     bool     `json:"stream_experts,omitempty"`
	Prompts     *Prompts `json:"host_prompts,omitempty"`
	HostMemory  int64    `json:"host_memory,omitempty"` // bytes of those, and of what rows take on the way there
	HostRead    int64    `json:"host_read,omitempty"`   // bytes that a token reads of them
	HostSeconds float64  `json:"host_s,omitempty"`      // of Seconds, what the processor takes for them
	// Pace is how many times as long runs on the device took as single measurements say, and Runs how
	// many; Seconds is by that. HostPace and HostRuns are the processor's, where HostSeconds is something.
	Pace     float64 `json:"pace,omitempty"`
	Runs     int     `json:"pace_runs,omitempty"`
	HostPace float64 `json:"host_pace,omitempty"`
	HostRuns int     `json:"host_pace_runs,omitempty"`
}

// A Sharing is how devices share a model.
type Sharing string

// The ways to share: whole blocks each, or a part of the tensors of every block. The zero
// value lets the prediction choose.
const (
	Layers  Sharing = "layers"
	Tensors Sharing = "tensor"
)

// ParseSharing reads auto, layers or tensor.
func ParseSharing(s string) (Sharing, error) {
	switch s {
	case "auto":
		return "", nil
	case string(Layers), string(Tensors):
		return Sharing(s), nil
	}
	return "", fmt.Errorf("split %q is not one of auto, layers, tensor", s)
}

// A Layout says which blocks of a model lie on which device, in order.
type Layout struct {
	Split   Sharing   `json:"split,omitempty"` // how the ranges' devices share blocks; "": by layers
	Ranges  []Range   `json:"ranges"`
	Apart   string    `json:"apart,omitempty"`    // why tensors are not cut where devices might
	LeftOut []Request `json:"left_out,omitempty"` // devices without which a token is faster, or as fast
	Context int64     `json:"ctx,omitempty"`      // positions of a sequence
	Rows    int       `json:"rows,omitempty"`     // tokens of a pass, at most
	Seconds float64   `json:"seconds,omitempty"`  // that a token takes
}

// maxLayout bounds a file of a layout, in bytes.
const maxLayout = 1 << 20

// ReadLayout reads a layout as `nstf place --json` writes it. Of its ranges the device, lo
// and hi count; what they take and how fast they are is found anew.
func ReadLayout(path string) (*Layout, error) {
	raw, err := formats.ReadFile(path, maxLayout, "a layout")
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	l := &Layout{}
	if err := d.Decode(l); err != nil {
		return nil, formats.Errorf(path, "", "no layout, as nstf place --json writes it: %v", err)
	}
	at := 0
	if _, err := ParseSharing(string(l.Split)); l.Split != "" && err != nil {
		return nil, formats.Errorf(path, "split", "%v", err)
	}
	for i, r := range l.Ranges {
		if l.Split == Tensors { // each device has a part of all blocks
			at = 0
		}
		switch {
		case r.Device.Kind == Auto:
			return nil, formats.Errorf(path, "ranges", "%v is no device by name", r.Device)
		case r.Lo != at || r.Hi <= r.Lo:
			return nil, formats.Errorf(path, "ranges", "range %d has blocks %d to %d, behind block %d", i, r.Lo, r.Hi, at)
		case l.Split == Tensors && r.Hi != l.Ranges[0].Hi:
			return nil, formats.Errorf(path, "ranges", "range %d has %d blocks of which each device has a part, not %d", i, r.Hi, l.Ranges[0].Hi)
		case len(r.HostExperts) > 0 && (r.Device.Kind == CPU || l.Split == Tensors):
			return nil, formats.Errorf(path, "ranges", "range %d has host_experts, which are of GPUs that share a model by layers", i)
		case !ascending(r.HostExperts, r.Lo, r.Hi):
			return nil, formats.Errorf(path, "ranges", "host_experts of range %d are not some of blocks %d to %d, in order", i, r.Lo, r.Hi-1)
		case !pinsKnown(&r):
			return nil, formats.Errorf(path, "ranges", "pinned_experts of range %d are not experts, in order, of blocks among host_experts", i)
		case slices.ContainsFunc(l.Ranges[:i], func(o Range) bool { return o.Device == r.Device }):
			return nil, formats.Errorf(path, "ranges", "%v has two ranges", r.Device)
		}
		at = r.Hi
	}
	if at == 0 {
		return nil, formats.Errorf(path, "ranges", "there are none")
	}
	return l, nil
}

// pinsKnown reports whether experts are pinned of blocks alone that leave theirs to the processor, and in order.
func pinsKnown(r *Range) bool {
	for block, experts := range r.Pinned {
		if !slices.Contains(r.HostExperts, block) || len(experts) == 0 || !ascending(experts, 0, math.MaxInt) {
			return false
		}
	}
	return true
}

// ascending reports whether numbers are from lo to below hi, each larger than the one before.
func ascending(numbers []int, lo, hi int) bool {
	for _, n := range numbers {
		if n < lo || n >= hi {
			return false
		}
		lo = n + 1
	}
	return true
}

// A RoomError says that a model has no room on the devices given.
type RoomError struct {
	Missing int64 // bytes, at least, whichever way the model is divided
	Sites   []Site
}

// Error implements error.
func (e *RoomError) Error() string {
	text := ""
	for i, s := range e.Sites {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s on %v", formats.Size(s.Memory), s.Device)
	}
	return fmt.Sprintf("%s are missing beside %s", formats.Size(e.Missing), text)
}

// Devices are those that ranges need, in order: the processor too, where experts lie there.
func Devices(ranges []Range) (all []Request) {
	host := Request{Kind: CPU}
	hosted := false
	for _, r := range ranges {
		all = append(all, r.Device)
		hosted = hosted || len(r.HostExperts) > 0
	}
	if hosted && !slices.Contains(all, host) {
		all = append(all, host)
	}
	return all
}

// Idle names the devices that are left out, parted by commas; "" where none is.
func (l *Layout) Idle() string {
	var names []string
	for _, r := range l.LeftOut {
		names = append(names, r.String())
	}
	return strings.Join(names, ", ")
}

// Learned says by which runs before the prediction is, "" where there were none.
func (l *Layout) Learned() string {
	var all []string
	seen := map[string]bool{}
	add := func(d Request, factor float64, runs int) {
		text := fmt.Sprintf("%v takes %.3g times as long as measured apart, by %d runs", d, factor, runs)
		if runs == 1 {
			text = strings.TrimSuffix(text, "s")
		}
		if runs > 0 && !seen[text] {
			seen[text] = true
			all = append(all, text)
		}
	}
	for _, r := range l.Ranges {
		add(r.Device, r.Pace, r.Runs)
		add(Request{Kind: CPU}, r.HostPace, r.HostRuns)
	}
	return strings.Join(all, "; ")
}

// Pins says which experts lie on both devices, "" where none do.
func (r *Range) Pins() string {
	n := 0
	for _, experts := range r.Pinned {
		n += len(experts)
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of those experts, the most used of %d blocks, lie on %v too: %.0f %% of choices are expected to be theirs", n, len(r.Pinned), r.Device, 100*r.PinnedUse)
}
