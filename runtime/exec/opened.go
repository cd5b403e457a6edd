package exec

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu"
	"github.com/nstf/nstf/runtime/gpu/driver"
	"github.com/nstf/nstf/runtime/place"
)

// An Opened device is one that stages of a model are opened and closed on, one after
// the other, while hidden states stay there. nil is the processor, which takes no
// opening. It serves one goroutine at a time; what is opened on it is closed before it.
type Opened struct {
	gpu *gpu.Device
	// Limit is how many bytes of the device are taken at most; 0: what is free.
	Limit int64
}

// OpenDevice opens the GPU that a device names, or with place.Auto the first that is
// worth it; nil where that is none, or the processor is asked for.
func OpenDevice(d Device) (*Opened, error) {
	switch d.Kind {
	case place.HIP, place.CUDA:
		g, err := gpu.Open(d.gpu(hip.API(d.Kind)))
		if err != nil {
			return nil, err
		}
		return &Opened{gpu: g}, nil
	case place.Auto:
		return openAny(&d), nil
	}
	return nil, nil
}

func openAny(d *Device) *Opened {
	var refused []string
	for _, api := range apis {
		g, err := gpu.Open(d.gpu(api))
		var missing *gpu.MissingError
		switch {
		case errors.As(err, &missing):
		case err != nil:
			refused = append(refused, fmt.Sprintf("%s cannot be used: %v", api, err))
		case g.Worthwhile():
			return &Opened{gpu: g}
		default:
			refused = append(refused, fmt.Sprintf("%v is not worth it", g))
			g.Close()
		}
	}
	d.refused(refused)
	return nil
}

// OpenFor is [OpenDevice] for a model that is to be walked: with place.Auto the processor
// is taken, and the device's Notice says so, where a GPU lacks room or an operation. Of a
// GPU that is named that is an error.
func OpenFor(m *model.Model, d Device, w Walk) (*Opened, error) {
	o, err := OpenDevice(d)
	if o == nil || err != nil {
		return nil, err
	}
	if err = o.check(m, w); err != nil {
		o.Close()
		if d.Kind != place.Auto {
			return nil, err
		}
		d.notice("device: cpu, for %v cannot take it: %v", o, err)
		return nil, nil
	}
	d.notice("device: text is run on %v", o)
	return o, nil
}

// check refuses a walk for which there is no room, or none for two stages at once, as
// where models are compared.
func (o *Opened) check(m *model.Model, w Walk) error {
	need, err := o.Need(m, w)
	if err != nil {
		return err
	}
	w.Gather = false
	stage, err := o.Need(m, w)
	if err != nil {
		return err
	}
	need = max(need, 2*stage+w.Beside)
	free, err := o.free()
	if free += o.gpu.Kept(); err == nil && need > free {
		u := formats.Unsupportedf("", "", "walking through blocks on %v: %d MiB are needed, %d MiB are free", o, need>>20, free>>20)
		u.Hint = "give shorter windows (--ctx), or --device cpu"
		err = u
	}
	return err
}

// Close gives the device back. A [*gpu.InUseError] says that something was still open
// on it.
func (o *Opened) Close() error {
	if o == nil {
		return nil
	}
	return o.gpu.Close()
}

// GPU returns the opened GPU, nil for the processor.
func (o *Opened) GPU() *gpu.Device {
	if o == nil {
		return nil
	}
	return o.gpu
}

// String names the device: cpu, or cuda:0, NVIDIA H200.
func (o *Opened) String() string {
	if o == nil {
		return string(place.CPU)
	}
	return o.gpu.String()
}

// options are those of a stage, as gpu has them.
func (o *Opened) options(s *Options) gpu.Options {
	return gpu.Options{Context: s.Context, Sequences: s.Sequences, KV: s.KV, Exact: s.Exact, Policy: s.Policy, Rows: s.Device.Rows, Most: o.Limit}
}

// stage opens a span.
func (o *Opened) stage(g *graph.Graph, span device.Span, tensor func(string) formats.Tensor, s *Options) (device.Stage, int64, error) {
	e, err := o.gpu.New(g, span, tensor, o.options(s))
	if err != nil {
		return nil, 0, err
	}
	return e, e.Context(), nil
}

// A Walk says how a model is walked on an opened device, stage by stage.
type Walk struct {
	Context int  // tokens of the longest window
	Gather  bool // what linears read is summed up
	// Beside is how many bytes one of two stages that are open at once takes beyond the stored one.
	Beside int64
}

// Need returns the bytes of the device that walking a model takes beside hidden states:
// those of the largest stage and, where sums are gathered, those of one of its inputs. 0
// for the processor. It fails where the device lacks an operation, or room.
func (o *Opened) Need(m *model.Model, w Walk) (stage int64, err error) {
	if o == nil {
		return 0, nil
	}
	g := m.Graph
	spans := []device.Span{device.Embedding(), device.Head(g)}
	for i := range g.Blocks {
		spans = append(spans, device.Block(i))
	}
	for _, span := range spans {
		s := walkOptions(Options{Exact: true, Context: int64(w.Context), On: o})
		n, err := o.gpu.Need(g, span, m.Tensor, o.options(&s))
		if err != nil {
			return 0, formats.In(m.Path, err)
		}
		if w.Gather {
			n += gatherBytes(device.Inputs(g, span))
		}
		stage = max(stage, n)
	}
	return stage, nil
}

// gatherBytes is what the sums of the largest of inputs take.
func gatherBytes(inputs []device.Input) (most int64) {
	for i := range inputs {
		most = max(most, gpu.GatherBytes(inputs[i:i+1]))
	}
	return most
}

// Room returns how many hidden states of a width have room on the device beside what is
// left for stages.
func (o *Opened) Room(width int, reserve int64) (tokens int64, err error) {
	if o == nil {
		return 0, nil
	}
	free, err := o.free()
	return max(free+o.gpu.Kept()-reserve-free/16, 0) / (4 * int64(width)), err
}

// free returns the bytes that may be taken yet.
func (o *Opened) free() (int64, error) {
	free, err := o.gpu.Memory()
	if used, _ := o.gpu.Used(); o.Limit > 0 {
		free = min(free, o.Limit-used)
	}
	return max(free, 0), err
}

// NewRows returns room for n hidden states of a width: on the device, or in the
// processor's memory.
func (o *Opened) NewRows(n, width int) (device.Rows, error) {
	if o == nil {
		return device.HostRows{X: make([]float32, n*width), Width: width}, nil
	}
	return o.gpu.NewRows(n, width)
}

// together divides inputs into groups whose sums have room at once; of one that has none
// by itself Gather says so.
func (o *Opened) together(inputs []device.Input) ([][]device.Input, error) {
	if o == nil {
		return [][]device.Input{inputs}, nil
	}
	free, err := o.free()
	if err != nil {
		return nil, err
	}
	var groups [][]device.Input
	for len(inputs) > 0 {
		n := 1
		for n < len(inputs) && gpu.GatherBytes(inputs[:n+1]) <= free-free/16 {
			n++
		}
		groups, inputs = append(groups, slices.Clip(inputs[:n])), inputs[n:]
	}
	return groups, nil
}

// Full reports whether an error says that a device has no room.
func Full(err error) bool {
	var large *gpu.TooLargeError
	return errors.Is(err, driver.ErrMemory) || errors.As(err, &large)
}
