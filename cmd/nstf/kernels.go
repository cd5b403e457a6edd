package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
	"github.com/nstf/nstf/runtime/gpu/kernelcache"
)

// kernelsCommand is what the Python module asks for code that decodes on a GPU.
func (a *app) kernelsCommand() *cobra.Command {
	var libraries []string
	c := &cobra.Command{
		Use: "kernels TARGET", Short: "Compile the kernels that decode weights, for other programs to launch", Args: cobra.ExactArgs(1),
		Long: `Compile what writes weights as numbers, for a target such as gfx942 or sm_90. Standard input has
a list of {"scheme", "params", "type"}, type being f32, f16 or bf16; standard output gets an object
for each: what kernels/hip/decode.go says of its launch, and its code in base64. Code is kept where
nstf keeps its own kernels.`,
		Example: `  echo '[{"scheme": "q4_k", "type": "bf16"}]' | nstf dev kernels sm_90`,
		RunE: func(c *cobra.Command, args []string) error {
			a.started = true // as root does for its own commands
			var asked []numbers
			d := json.NewDecoder(io.LimitReader(a.in, 1<<20))
			d.DisallowUnknownFields()
			if err := d.Decode(&asked); err != nil {
				return formats.Errorf("standard input", "", "what kernels are asked for: %v", err)
			}
			made, err := decodeKernels(c.Context(), args[0], asked, append(libraries, gpuLibraries()...))
			if err != nil {
				return err
			}
			return json.NewEncoder(a.out).Encode(made)
		},
	}
	c.Flags().StringArrayVar(&libraries, "libraries", nil, "`folder` where hiprtc or NVRTC is looked for first")
	return c
}

// A numbers is a form of weights, and the type that they are written in.
type numbers struct {
	Scheme string           `json:"scheme"`
	Params map[string]int64 `json:"params"`
	Type   string           `json:"type"`
}

// A decodeKernel is what is needed to launch a hip.Decode.
type decodeKernel struct {
	Code     []byte `json:"code"`
	Symbol   string `json:"symbol"`
	Threads  uint32 `json:"threads"`
	Table    []byte `json:"table,omitempty"` // of blocks
	Together int    `json:"together"`        // stored blocks of a block of threads
	Weights  int    `json:"weights"`         // of a stored block
	Bytes    int    `json:"bytes"`
}

// decodeKernels compiles what is asked for.
func decodeKernels(ctx context.Context, arch string, asked []numbers, libraries []string) ([]decodeKernel, error) {
	target, err := hip.ParseTarget(arch)
	if err != nil {
		return nil, &usageError{err: err}
	}
	var units []hip.Unit
	made := make([]decodeKernel, len(asked))
	for i, n := range asked {
		call, format, err := n.call(target)
		if err != nil {
			return nil, err
		}
		units = append(units, call.Unit)
		made[i] = decodeKernel{Symbol: call.Symbol, Threads: call.Block[0], Table: format.DecodeTable()}
		made[i].Together, made[i].Weights, made[i].Bytes = format.DecodeSize()
	}
	compiler, _, err := driver.FindCompiler(driver.Options{API: target.API, Paths: libraries})
	if err != nil {
		return nil, err
	}
	cache := kernelcache.Cache{Compiler: compiler}
	if dir, err := os.UserCacheDir(); err == nil {
		cache.Dir = filepath.Join(dir, "nstf", "kernels")
		cache.Ahead = []string{cache.Dir}
	}
	r, err := cache.Get(ctx, target, units, nil)
	if err != nil {
		return nil, err
	}
	for i, u := range units {
		made[i].Code = r.Code[u]
	}
	return made, nil
}

// call returns the launch that writes such numbers, without addresses that mean anything.
func (n *numbers) call(t hip.Target) (c hip.Call, f hip.Format, err error) {
	s, ok := scheme.ByName(n.Scheme)
	if !ok {
		return c, f, formats.Unsupportedf("", "", "scheme %q", n.Scheme)
	}
	const rows, k = 128, 256 // whole blocks and rotated ones; what is compiled does not depend on it
	if _, err := s.Parts([]int64{rows, k}, n.Params); err != nil {
		return c, f, err
	}
	if f, err = hip.FormatOf(s, n.Params, k); err == nil {
		err = f.Decodes()
	}
	if err != nil {
		return c, f, err
	}
	for _, d := range hip.DecodeTypes {
		if d.String() == n.Type {
			return (&hip.Decode{Format: f, Type: d, N: rows, K: k}).Calls(t)[0], f, nil
		}
	}
	return c, f, formats.Errorf("", "", "numbers of type %q: %s are written", n.Type, fmt.Sprint(hip.DecodeTypes))
}
