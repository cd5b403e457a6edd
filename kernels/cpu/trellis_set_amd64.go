//go:build !noasm

package cpu

// trellisAVX2 and trellisAVX512 return the step of so many bits and its lanes.
func trellisAVX2(bits int) (trellisStep, int) {
	return assemblyTrellis([...]func(next, prev *uint16, code *int16, z int){
		trellisStep2AVX2, trellisStep3AVX2, trellisStep4AVX2, trellisStep5AVX2, trellisStep6AVX2}[bits-2]), 16
}

func trellisAVX512(bits int) (trellisStep, int) {
	return assemblyTrellis([...]func(next, prev *uint16, code *int16, z int){
		trellisStep2AVX512, trellisStep3AVX512, trellisStep4AVX512, trellisStep5AVX512, trellisStep6AVX512}[bits-2]), 32
}

func assemblyTrellis(f func(next, prev *uint16, code *int16, z int)) trellisStep {
	return func(next, prev []uint16, code []int16, z int16) { f(&next[0], &prev[0], &code[0], int(z)) }
}
