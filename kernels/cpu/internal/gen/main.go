// Command gen writes the assembly of kernels/cpu, one file of kernels a run:
//
//	go run . -kernel dot -out ../../dot_amd64.s -stubs ../../dot_amd64.go -pkg cpu
//
// kernels/cpu/generate.go lists the runs. It is a module of its own so that the
// project depends on neither avo nor the x/tools that avo needs; what it writes
// is committed. Instructions that Go's assembler does not know are spelled in
// bytes in one place, probe.go.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/nstf/nstf/formats/scheme"
)

// facts are what the table of schemes says of one.
type facts struct {
	name  string // in the names of kernels: Q40
	bytes int    // of 256 weights
	group int    // weights that share a scale
	mins  bool
}

// of returns the facts of the scheme with a basename.
func of(basename string) facts {
	for _, s := range scheme.Table() {
		if s.Basename() == basename {
			return facts{strings.ToUpper(basename), 256 / s.Block * s.BlockBytes, s.Group, s.Mins}
		}
	}
	panic("gen: no scheme " + basename)
}

func main() {
	kernel := flag.String("kernel", "", "file of kernels to write: dot, vector, half, exp, gemm, panel, norm, tile, quantize, eights, trellis, tcq, lanes, fixed, delta, kvcodes, decode or a scheme")
	flag.Parse()
	files := map[string]func(v isa){"dot": dotFile, "vector": vectorFile, "half": halfFile, "exp": expFile, "gemm": gemmFile,
		"panel": panelFile, "norm": normFile, "probe": probeFile, "tile": tileFile, "codes": codesFile, "unpack": unpackFile, "strips": stripsFile, "quantize": quantizeFile, "trellis": trellisFile,
		"tcq": tcqFile, "lanes": lanesFile, "fixed": fixedFile, "eights": eightsFile, "delta": deltaFile, "kvcodes": kvCodesFile, "scan": scanFile, "decode": decodeFile, "parts": partsFile}
	for name, s := range integers() {
		files[name] = integerFile(of(name), s, narrows()[name])
	}
	write, ok := files[*kernel]
	if !ok {
		fmt.Fprintf(os.Stderr, "gen: no kernel file %q\n", *kernel)
		os.Exit(2)
	}
	ConstraintExpr("amd64")
	ConstraintExpr("!noasm")
	data := map[string]operand.Mem{}
	for _, v := range []isa{avx2(data), avx512(data)} {
		write(v)
	}
	Generate()
}
