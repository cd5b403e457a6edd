//go:build !noasm

package cpu

func panelAVX2() panelKernels {
	return panelKernels{
		f32: []panelKernel[[]float32]{{6, panelF32x6AVX2}, {4, panelF32x4AVX2}, {2, panelF32x2AVX2}, {1, panelF32x1AVX2}},
		f16: []panelKernel[[]byte]{{6, panelF16x6AVX2}, {4, panelF16x4AVX2}, {2, panelF16x2AVX2}, {1, panelF16x1AVX2}},
		q8:  []panelKernel[[]byte]{{6, panelQ8x6AVX2}, {4, panelQ8x4AVX2}, {2, panelQ8x2AVX2}, {1, panelQ8x1AVX2}},

		scatterF16: scatterF16AVX2,
		scatterQ8:  scatterQ8AVX2,
		maxBits:    maxBitsAVX2,
		expPart:    expPartAVX2,
		expPages:   expPagesAVX2,

		keyLevels:   [...]levelsKernel{keyLevels3AVX2, keyLevels4AVX2, keyLevels5AVX2},
		valueLevels: [...]levelsKernel{valueLevels3AVX2, valueLevels4AVX2, valueLevels5AVX2},
	}
}

func panelAVX512() panelKernels {
	p := panelAVX2() // scattering has no wider way
	p.f32 = []panelKernel[[]float32]{{12, panelF32x12AVX512}, {8, panelF32x8AVX512}, {4, panelF32x4AVX512}, {2, panelF32x2AVX512}, {1, panelF32x1AVX512}}
	p.f16 = []panelKernel[[]byte]{{12, panelF16x12AVX512}, {8, panelF16x8AVX512}, {4, panelF16x4AVX512}, {2, panelF16x2AVX512}, {1, panelF16x1AVX512}}
	p.q8 = []panelKernel[[]byte]{{12, panelQ8x12AVX512}, {8, panelQ8x8AVX512}, {4, panelQ8x4AVX512}, {2, panelQ8x2AVX512}, {1, panelQ8x1AVX512}}
	p.expPart, p.expPages = expPartAVX512, expPagesAVX512
	return p
}

func normsAVX2() normKernels {
	return normKernels{momentsAVX2, rmsApplyAVX2, layerApplyAVX2, ropeHalfAVX2, ropeInterleavedAVX2}
}

func normsAVX512() normKernels {
	return normKernels{momentsAVX512, rmsApplyAVX512, layerApplyAVX512, ropeHalfAVX512, ropeInterleavedAVX512}
}
