package exec

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	cpukernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/cache"
	"github.com/nstf/nstf/runtime/cpu"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu"
	"github.com/nstf/nstf/runtime/place"
)

// A Device says where a model runs. The zero value is the processor.
type Device struct {
	place.Request
	// Behind are further devices, in order: each takes neighbouring blocks, as place.Split
	// lays them out, so that a token takes the least time.
	Behind []place.Request
	// Ranges lays blocks out by hand, on the devices that it names: Request and Behind
	// mean nothing then. Of each range the device, Lo and Hi count.
	Ranges []place.Range
	// Split is how several GPUs of one kind share the model; "": as a token takes less time.
	Split place.Sharing
	// Memory bounds the bytes that devices give; those that it does not name give what is
	// free.
	Memory map[place.Request]int64
	// KVHost is how many bytes of the host's memory keys and values may take that a GPU, which has
	// the whole model, has no room for; steps follow a Policy then. 0: none.
	KVHost    int64
	Measured  string   // folder that keeps what was measured of the machine (place.Load); "": none does
	Libraries []string // folders where a GPU's libraries are looked for first
	Kernels   string   // folder that keeps compiled kernels; "": they are compiled every time
	// Tiles are the sizes that the processor's products are cut into; the zero value:
	// usual ones.
	Tiles cpukernels.Tiles
	Rows  int // tokens that one pass on a GPU takes at most; 0: what suits its memory
	// Warm has a GPU's kernels be ready for passes of any size when the model is opened:
	// for servers, where others would wait for the compiler.
	Warm bool
	// Notice gets a line that says which device was chosen, why, and what the
	// model takes there. It gets none where no GPU is asked for or, with
	// place.Auto, no library of one is found; nil: nobody is told.
	Notice func(line string)
	// Progress is told how much of what is done while a GPU is made ready: of
	// kernels compiled, of bytes of weights copied; nil: nobody.
	Progress func(what string, done, total int64)
}

func (d *Device) notice(format string, args ...any) {
	if d.Notice != nil {
		d.Notice(fmt.Sprintf(format, args...))
	}
}

// newStage opens the weights of a span on the device asked for, and returns it
// with the positions of a sequence.
func newStage(g *graph.Graph, span device.Span, tensor func(string) formats.Tensor, o *Options) (device.Stage, int64, error) {
	if o.On != nil {
		return o.On.stage(g, span, tensor, o)
	}
	switch o.Device.Kind {
	case place.HIP, place.CUDA:
		return newGPU(g, span, tensor, o, hip.API(o.Device.Kind))
	case place.Auto:
		var refused []string
		var first error // of those that are there
		for _, api := range apis {
			s, context, err := newGPU(g, span, tensor, o, api)
			var missing *gpu.MissingError
			var wrong *formats.FormatError
			switch {
			case err == nil:
				return s, context, nil
			case errors.As(err, &missing):
			case errors.As(err, &wrong):
				return nil, 0, err
			default:
				refused = append(refused, fmt.Sprintf("%s cannot take it: %v", api, err))
				first = cmp.Or(first, err)
			}
		}
		if first != nil && o.Device.KVHost > 0 { // which the processor takes in no case
			return nil, 0, first
		}
		o.Device.refused(refused)
	}
	return newCPU(g, span, tensor, o)
}

// checkHosted refuses keys and values in the host's memory where none can lie there.
func (o *Options) checkHosted() error {
	switch d := &o.Device; {
	case d.KVHost == 0:
	case len(d.Behind)+len(d.Ranges) > 0 || d.Split == place.Tensors:
		return gpu.UnsupportedHosted("of a model that several devices share")
	case o.Policy == nil:
		return gpu.UnsupportedHosted("where steps read all of them")
	}
	return nil
}

// apis are what place.Auto tries, in order.
var apis = []hip.API{hip.HIP, hip.CUDA}

// refused says why the processor was taken where GPUs were found.
func (d *Device) refused(reasons []string) {
	if len(reasons) > 0 {
		d.notice("device: cpu, for %s", strings.Join(reasons, "; "))
	}
}

// mostPositions bounds the pages that the processor keeps count of: their memory is
// taken when they are used.
const mostPositions = 1 << 36

func newCPU(g *graph.Graph, span device.Span, tensor func(string) formats.Tensor, o *Options) (device.Stage, int64, error) {
	if o.Device.KVHost > 0 {
		return nil, 0, gpu.UnsupportedHosted("on the processor, where all of them lie there")
	}
	context := o.Context
	if context == 0 {
		context = g.Context
	}
	positions := int64(mostPositions)
	if n := int64(max(o.Sequences, 1)); o.Positions > 0 {
		positions = min(max(o.Positions, context), mostPositions)
	} else if context > 0 && n < mostPositions/context {
		positions = n * ((context-1)/cache.PageSize + 1) * cache.PageSize
	}
	options := o.processor()
	options.KV, options.Activations, options.Policy = o.KV, o.Activations, o.Policy
	options.Positions, options.Sequences, options.Places = positions, o.Sequences, o.Places
	s, err := cpu.New(g, span, o.mapped(tensor), options)
	if err != nil {
		return nil, 0, err
	}
	return s, context, nil
}

// mapped returns tensors as the processor opens them.
func (o *Options) mapped(tensor func(string) formats.Tensor) func(string) formats.Tensor {
	if o.Verify {
		return tensor
	}
	return func(name string) formats.Tensor { t := tensor(name); return t.Unchecked() }
}

// processor returns what the options say of the processor's arithmetic.
func (o *Options) processor() cpu.Options {
	return cpu.Options{Threads: o.Threads, Level: o.Level, Exact: o.Exact, Pin: o.Pin, Tiles: o.Device.Tiles, Walk: o.walk}
}

func newGPU(g *graph.Graph, span device.Span, tensor func(string) formats.Tensor, o *Options, api hip.API) (device.Stage, int64, error) {
	d, options := &o.Device, o.gpu()
	options.API, options.Ordinal, options.Libraries, options.Kernels, options.Warm = api, d.Ordinal, d.Libraries, d.Kernels, d.Warm
	options.Most = d.Memory[place.Request{Kind: place.Kind(api), Ordinal: d.Ordinal}]
	options.Progress, options.Planned = d.Progress, func(name string, p *gpu.Plan) {
		d.notice("device: %s:%d, %s; %s", api, d.Ordinal, name, p)
		if line := p.OverLink(); line != "" {
			d.notice("device: %s", line)
		}
	}
	e, err := gpu.New(g, span, tensor, options)
	if err != nil {
		return nil, 0, err
	}
	return e, e.Context(), nil
}

// gpu returns what the options say of an engine, not of its device.
func (o *Options) gpu() gpu.Options {
	return gpu.Options{Rows: o.Device.Rows, Context: o.Context, Sequences: o.Sequences, Positions: o.Positions, Places: o.Places, KV: o.KV, Exact: o.Exact, Policy: o.Policy, KVHost: o.Device.KVHost}
}

// gpu returns the options that name a device.
func (d *Device) gpu(api hip.API) gpu.Options {
	return gpu.Options{API: api, Ordinal: d.Ordinal, Libraries: d.Libraries, Kernels: d.Kernels}
}
