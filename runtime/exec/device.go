package exec

import (
	"errors"
	"fmt"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	cpukernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/cpu"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu"
	"github.com/nstf/nstf/runtime/place"
)

// A Device says where a model runs. The zero value is the processor.
type Device struct {
	place.Request
	Libraries []string // folders where a GPU's libraries are looked for first
	Kernels   string   // folder that keeps compiled kernels; "": they are compiled every time
	// Tiles are the sizes that the processor's products are cut into; the zero value:
	// usual ones.
	Tiles cpukernels.Tiles
	Rows  int // tokens that one pass on a GPU takes at most; 0: what suits its memory
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

// newBackend opens the weights on the device asked for, and returns it with
// the positions of a sequence.
func newBackend(g *model.Graph, tensor func(string) formats.Tensor, o *Options) (device.Backend, int64, error) {
	switch o.Device.Kind {
	case place.HIP, place.CUDA:
		return newGPU(g, tensor, o, hip.API(o.Device.Kind))
	case place.Auto:
		for _, api := range []hip.API{hip.HIP, hip.CUDA} {
			b, context, err := newGPU(g, tensor, o, api)
			var missing *gpu.MissingError
			var wrong *formats.FormatError
			switch {
			case err == nil:
				return b, context, nil
			case errors.As(err, &missing):
			case errors.As(err, &wrong):
				return nil, 0, err
			default:
				o.Device.notice("device: cpu, for %s cannot take it: %v", api, err)
				return newCPU(g, tensor, o)
			}
		}
	}
	return newCPU(g, tensor, o)
}

func newCPU(g *model.Graph, tensor func(string) formats.Tensor, o *Options) (device.Backend, int64, error) {
	context := o.Context
	if context == 0 {
		context = g.Context
	}
	b, err := cpu.New(g, tensor, cpu.Options{Threads: o.Threads, Level: o.Level, KV: o.KV, Exact: o.Exact, Pin: o.Pin, Hook: o.Hook, Activations: o.Activations, Tiles: o.Device.Tiles})
	if err != nil {
		return nil, 0, err
	}
	return b, context, nil
}

func newGPU(g *model.Graph, tensor func(string) formats.Tensor, o *Options, api hip.API) (device.Backend, int64, error) {
	if o.Hook != nil {
		u := formats.Unsupportedf("", "", "calibration on a GPU")
		u.Hint = "use --device cpu"
		return nil, 0, u
	}
	d := &o.Device
	e, err := gpu.New(g, tensor, gpu.Options{API: api, Ordinal: d.Ordinal, Libraries: d.Libraries, Kernels: d.Kernels,
		Rows: d.Rows, Context: o.Context, KV: o.KV, Exact: o.Exact, Progress: d.Progress, Planned: func(name string, p *gpu.Plan) {
			d.notice("device: %s:%d, %s; %s", api, d.Ordinal, name, p)
		}})
	if err != nil {
		return nil, 0, err
	}
	return e, e.Context(), nil
}
