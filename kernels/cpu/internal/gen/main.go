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

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
)

func main() {
	kernel := flag.String("kernel", "", "file of kernels to write: dot, vector, half, exp, gemm, panel, norm, tile, quantize, eights, trellis, tcq, lanes, fixed or a scheme")
	flag.Parse()
	files := map[string]func(v isa){"dot": dotFile, "vector": vectorFile, "half": halfFile, "exp": expFile, "gemm": gemmFile,
		"panel": panelFile, "norm": normFile, "probe": probeFile, "tile": tileFile, "codes": codesFile, "unpack": unpackFile, "strips": stripsFile, "quantize": quantizeFile, "trellis": trellisFile,
		"tcq": tcqFile, "lanes": lanesFile, "fixed": fixedFile, "eights": eightsFile}
	for name, s := range integers() {
		files[name] = integerFile(s, narrows()[name])
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
