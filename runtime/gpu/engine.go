package gpu

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
)

// Options are the choices of an [Engine].
type Options struct {
	API       hip.API
	Ordinal   int      // of several devices
	Libraries []string // folders where the driver's libraries are looked for first
	Kernels   string   // folder that keeps compiled kernels; "": none are kept
	Context   int64    // positions of a sequence; 0: the model's, or what fits
	// KV is how keys and values are stored: f32, f16 or q8; "": f16, or f32
	// where Exact is set.
	KV string
	// Exact asks for float32 throughout: activations, keys and values.
	Exact bool
	// Planned is told what will be placed on which device, before it is; nil: nobody.
	Planned func(device string, p *Plan)
	// Progress is told how much of what is done; nil: nobody.
	Progress func(what string, done, total int64)
}

// A MissingError says that there is no device, or no library to reach one.
type MissingError struct{ Err error }

// Error implements error.
func (e *MissingError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *MissingError) Unwrap() error { return e.Err }

// An Engine executes one model on one GPU.
type Engine struct {
	device.Backend
	context int64
}

// Context returns the positions of a sequence.
func (e *Engine) Context() int64 { return e.context }

// New places a checked graph's weights on a device. tensor returns a tensor by a
// name of [model.Graph.Weights]. Errors name the tensor.
func New(g *model.Graph, tensor func(name string) formats.Tensor, o Options) (*Engine, error) {
	return nil, &MissingError{formats.Unsupportedf("", "", "devices of %s: not built yet", o.API)}
}
