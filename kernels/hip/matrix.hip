// Products of small tiles with the machine's matrix instructions. Nothing else
// in kernels/hip names a matrix instruction or knows how one spreads a tile over
// lanes.
//
// Reference, for a tile of features and one of tokens and a block of k:
//   for f < MATRIX_FEATURES: for t < MATRIX_TOKENS: for k in block:
//     sum[f][t] += w[f][k] * x[t][k]
//
// Weights are in registers, where their decoder put them, activations in LDS. A
// lane decodes 32 consecutive k of a row, 16 at a time: the instructions' slots
// for k are given other k than their manuals do, which a sum does not mind as
// long as weights and activations agree. The lanes that share a row are the
// MATRIX_GROUPS groups g; of each 32*MATRIX_GROUPS k, the block h = 0 or 1 holds
//   k = 32g + 16h + i, i < 16.
//
// Units (NSTF_MATRIX; with NSTF_EXACT, plain loops over f32 on every target):
//   MMA     mma.sync m16n8k16, weights as the 16 rows; or, on sm_90 with
//           NSTF_TEAMS, wgmma m64n128k16 or m64n32k16 over teams of four waves, asynchronous
//   MFMA    16x16x16 or 16x16x32, waves of 64
//   WMMA11  16x16x16, both operands copied to lanes 16..31
//   WMMA12  16x16x16 without copies
//   NONE    lane l owns feature l; all lanes read the same activations
//
// A tile of activations is rows of 128 bytes, one per token: 64 halves or 32
// floats in 8 chunks. Chunk c of row r lies at chunk c ^ (r & 7), so that eight
// lanes reading one chunk of eight rows touch all banks; it is also the 128-byte
// swizzle of wgmma. The tile starts at a multiple of 1024 bytes. Which k is
// where, matrix_source says: MATRIX_GROUPS of 4 need 128 k in two tiles, and
// NVIDIA's ldmatrix and wgmma deal pairs of k to lanes.
//
// Sums are f32, in the unit's order: the same bits on every run on one target.
// All lanes of the wave must be active. Sources: PTX ISA 8.5 chapters 9.7.14 and
// 9.7.15 (fragments, descriptors); AMD's ISA manuals of CDNA3, RDNA3 and RDNA4,
// chapters on matrix operations.
#include "copies.hip"

#if NSTF_EXACT || NSTF_MATRIX == NSTF_MATRIX_NONE
#define MATRIX_PLAIN 1
#else
#define MATRIX_PLAIN 0
#endif
#if !MATRIX_PLAIN && NSTF_TEAMS && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define MATRIX_WGMMA 1
#define MATRIX_TEAM 4 // waves that multiply together
#else
#define MATRIX_WGMMA 0
#define MATRIX_TEAM 1
#endif

// Constants of a unit: features and tokens of a tile, groups of lanes that share
// a row of weights, such rows of a lane, sums of a lane.
#if MATRIX_PLAIN
#define MATRIX_FEATURES NSTF_WAVE
#define MATRIX_TOKENS 8
#define MATRIX_GROUPS 1
#define MATRIX_ROWS 1
#define MATRIX_SUMS 8
#elif NSTF_MATRIX == NSTF_MATRIX_MMA
#define MATRIX_FEATURES 16
#define MATRIX_TOKENS 8
#define MATRIX_GROUPS 4
#define MATRIX_ROWS 2
#define MATRIX_SUMS 4
#elif NSTF_MATRIX == NSTF_MATRIX_MFMA
#define MATRIX_FEATURES 16
#define MATRIX_TOKENS 16
#define MATRIX_GROUPS 4
#define MATRIX_ROWS 1
#define MATRIX_SUMS 4
#elif NSTF_MATRIX == NSTF_MATRIX_WMMA11
#define MATRIX_FEATURES 16
#define MATRIX_TOKENS 16
#define MATRIX_GROUPS 1
#define MATRIX_ROWS 1
#define MATRIX_SUMS 8
#else
#define MATRIX_FEATURES 16
#define MATRIX_TOKENS 16
#define MATRIX_GROUPS 2
#define MATRIX_ROWS 1
#define MATRIX_SUMS 8
#endif

#if NSTF_EXACT
#define MATRIX_TILE_K 32 // k of a tile's row of 128 bytes
#define MATRIX_RUN 16    // words of 16 weights: floats, or pairs of halves
#else
#define MATRIX_TILE_K 64
#define MATRIX_RUN 8
#endif
#define MATRIX_BLOCKS (MATRIX_TILE_K / 16 / MATRIX_GROUPS) // of 16 k per lane in a tile

// Products of one block of k go into a basic block of their own where this is 1:
// LLVM's scheduler else loads the activations of many at once and spills. With
// MFMA that would copy all sums from and to accumulation registers.
#define MATRIX_APART (NSTF_MATRIX != NSTF_MATRIX_MFMA || MATRIX_PLAIN)

// A number that is the same in all lanes of the wave, told so to the compiler.
NSTF_DEVICE int matrix_uniform(int v) {
#if defined(NSTF_CUDA)
	return __shfl_sync(0xffffffffu, v, 0);
#else
	return __builtin_amdgcn_readfirstlane(v);
#endif
}

NSTF_DEVICE int matrix_lane() { return threadIdx.x % NSTF_WAVE; }

// A tile's offset in bytes of a row's chunk.
NSTF_DEVICE int matrix_chunk(int row, int chunk) { return row * 128 + ((chunk ^ (row & 7)) << 4); }

// The sums that a lane holds of one tile.
struct MatrixSums { f32 v[MATRIX_SUMS]; };

// A lane's runs of one tile's weights.
struct MatrixRuns { u32 v[MATRIX_ROWS][MATRIX_RUN]; };

// Where a lane's values belong: the row of the tile of its weights r, its group,
// and feature and token of its sum i.
#if MATRIX_PLAIN
NSTF_DEVICE int matrix_row(int) { return matrix_lane(); }
NSTF_DEVICE int matrix_group() { return 0; }
NSTF_DEVICE int matrix_feature(int) { return matrix_lane(); }
NSTF_DEVICE int matrix_token(int i) { return i; }
#elif NSTF_MATRIX == NSTF_MATRIX_MMA
NSTF_DEVICE int matrix_row(int r) { return matrix_lane() / 4 + 8 * r; }
NSTF_DEVICE int matrix_group() { return matrix_lane() % 4; }
NSTF_DEVICE int matrix_feature(int i) { return matrix_lane() / 4 + 8 * (i / 2); }
NSTF_DEVICE int matrix_token(int i) { return matrix_lane() % 4 * 2 + i % 2; }
#else
NSTF_DEVICE int matrix_row(int) { return matrix_lane() % 16; }
NSTF_DEVICE int matrix_feature(int) { return matrix_lane() % 16; }
#if NSTF_MATRIX == NSTF_MATRIX_WMMA11
NSTF_DEVICE int matrix_group() { return 0; }
NSTF_DEVICE int matrix_token(int i) { return matrix_lane() / 16 + 2 * i; }
#else
NSTF_DEVICE int matrix_group() { return matrix_lane() / 16; }
NSTF_DEVICE int matrix_token(int i) { return matrix_lane() / 16 * MATRIX_SUMS + i; }
#endif
#endif

// The k, an even one, whose activation and its successor's lie at place p, an
// even one, of a row of tiles.
NSTF_DEVICE int matrix_source(int p) {
#if !NSTF_EXACT && NSTF_MATRIX == NSTF_MATRIX_MMA
	return p / 128 * 128 + p % 8 / 2 * 32 + p / 64 % 2 * 16 + p % 64 / 8 * 2;
#elif !NSTF_EXACT && NSTF_MATRIX == NSTF_MATRIX_MFMA
	return p / 128 * 128 + p % 64 / 16 * 32 + p / 64 % 2 * 16 + p % 16;
#else
	return p;
#endif
}

// Two halves in a word: made of two floats, sum of products, and the codes 0..255
// of two bytes of q (the lower or the upper two) as 1024 + code.
#if defined(NSTF_CUDA)
NSTF_DEVICE u32 halves_of(f32 lo, f32 hi) {
	u32 h;
	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(h) : "f"(hi), "f"(lo));
	return h;
}
NSTF_DEVICE u32 halves_add(u32 a, u32 b) {
	u32 h;
	asm("add.rn.f16x2 %0, %1, %2;" : "=r"(h) : "r"(a), "r"(b));
	return h;
}
NSTF_DEVICE u32 halves_fma(u32 a, u32 b, u32 c) {
	u32 h;
	asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(h) : "r"(a), "r"(b), "r"(c));
	return h;
}
NSTF_DEVICE u32 halves_lower(u32 q) { return __byte_perm(q, 0x64646464u, 0x4140); }
NSTF_DEVICE u32 halves_upper(u32 q) { return __byte_perm(q, 0x64646464u, 0x4342); }
#else
typedef _Float16 matrix_half2 __attribute__((ext_vector_type(2)));
NSTF_DEVICE matrix_half2 matrix_pair(u32 a) { return __builtin_bit_cast(matrix_half2, a); }
NSTF_DEVICE u32 halves_of(f32 lo, f32 hi) {
	return __builtin_bit_cast(u32, (matrix_half2){(_Float16)lo, (_Float16)hi});
}
NSTF_DEVICE u32 halves_add(u32 a, u32 b) { return __builtin_bit_cast(u32, matrix_pair(a) + matrix_pair(b)); }
NSTF_DEVICE u32 halves_fma(u32 a, u32 b, u32 c) {
#if __has_builtin(__builtin_elementwise_fma)
	return __builtin_bit_cast(u32, __builtin_elementwise_fma(matrix_pair(a), matrix_pair(b), matrix_pair(c)));
#else // ROCm 5: the compiler fuses these by itself
	return __builtin_bit_cast(u32, matrix_pair(a) * matrix_pair(b) + matrix_pair(c));
#endif
}
NSTF_DEVICE u32 halves_lower(u32 q) { return __builtin_amdgcn_perm(0x64646464u, q, 0x04010400u); }
NSTF_DEVICE u32 halves_upper(u32 q) { return __builtin_amdgcn_perm(0x64646464u, q, 0x04030402u); }
#endif
#define HALVES_MINUS_1024 0xe400e400u
#define HALVES_MINUS_1152 0xe480e480u

#if MATRIX_COPIES
// Makes what every thread's copies brought seen by all, wgmma included.
NSTF_DEVICE void matrix_copies_seen() {
#if MATRIX_WGMMA
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
	__syncthreads();
}
#endif

// matrix_products adds the products of F tiles of weights, all of one block of
// k, with N tiles of tokens: sums[f][n] += w[f] * tile[n], block counting the
// 16 k per lane in the tile's rows.
#if MATRIX_PLAIN
#define MATRIX_PIECES (MATRIX_RUN / 4)

#if NSTF_EXACT
NSTF_DEVICE f32 matrix_term(u32 w, u32 x, f32 sum) { return fmaf(of_bits(w), of_bits(x), sum); }
#else
// sum + w.lo*x.lo + w.hi*x.hi.
NSTF_DEVICE f32 matrix_term(u32 w, u32 x, f32 sum) {
#if defined(__gfx906__) || defined(__gfx1011__) || defined(__gfx1012__) || \
    (defined(__GFX10__) && !defined(__gfx1010__) && !defined(__gfx1013__))
	return __builtin_amdgcn_fdot2(matrix_pair(w), matrix_pair(x), sum, false);
#else
	sum = fmaf(half_value((u16)w), half_value((u16)x), sum);
	return fmaf(half_value((u16)(w >> 16)), half_value((u16)(x >> 16)), sum);
#endif
}
#endif

template <int F, int N>
NSTF_DEVICE void matrix_products(MatrixSums (&sums)[F][N], const MatrixRuns (&w)[F], const u8 *tile, int block) {
#pragma unroll
	for (int n = 0; n < N; n++)
#pragma unroll
		for (int t = 0; t < MATRIX_TOKENS; t++)
#pragma unroll
			for (int c = 0; c < MATRIX_PIECES; c++) {
				const Words4 x = *(const Words4 *)(tile + matrix_chunk(n * MATRIX_TOKENS + t, block * MATRIX_PIECES + c));
#pragma unroll
				for (int f = 0; f < F; f++) {
					f32 s = matrix_term(w[f].v[0][4 * c], x.x, sums[f][n].v[t]);
					s = matrix_term(w[f].v[0][4 * c + 1], x.y, s);
					s = matrix_term(w[f].v[0][4 * c + 2], x.z, s);
					sums[f][n].v[t] = matrix_term(w[f].v[0][4 * c + 3], x.w, s);
				}
			}
}
#elif NSTF_MATRIX == NSTF_MATRIX_MMA
// Four matrices of 8 tokens by 8 positions: chunks 4q to 4q+3 of eight rows.
NSTF_DEVICE void matrix_load(u32 (&x)[4], const u8 *tile, int q) {
	const int lane = matrix_lane();
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
	             : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
	             : "r"(matrix_address(tile) + matrix_chunk(lane % 8, 4 * q + lane / 8)));
}

NSTF_DEVICE void matrix_mma(MatrixSums &d, const MatrixRuns &w, int step, u32 x0, u32 x1) {
	asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
	             : "+f"(d.v[0]), "+f"(d.v[1]), "+f"(d.v[2]), "+f"(d.v[3])
	             : "r"(w.v[0][2 * step]), "r"(w.v[1][2 * step]), "r"(w.v[0][2 * step + 1]), "r"(w.v[1][2 * step + 1]), "r"(x0), "r"(x1));
}

#if MATRIX_WGMMA
// wgmma m64n128k16 or m64n32k16: the four waves' weights in registers times 128 or 32
// tokens in LDS. Runs by itself from here to matrix_wait.
#define MATRIX_SUMS_4(d, i) "+f"(d[i].v[0]), "+f"(d[i].v[1]), "+f"(d[i].v[2]), "+f"(d[i].v[3])
#define MATRIX_SUMS_16(d, i) MATRIX_SUMS_4(d, i), MATRIX_SUMS_4(d, i + 1), MATRIX_SUMS_4(d, i + 2), MATRIX_SUMS_4(d, i + 3)
#define MATRIX_RUNS_OF(w, step) "r"(w.v[0][2 * step]), "r"(w.v[1][2 * step]), "r"(w.v[0][2 * step + 1]), "r"(w.v[1][2 * step + 1])
NSTF_DEVICE void matrix_wgmma_128(MatrixSums *d, const MatrixRuns &w, int step, u64 tile) {
	asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
	             "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
	             "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
	             "{%64,%65,%66,%67}, %68, 1, 1, 1, 0;"
	             : MATRIX_SUMS_16(d, 0), MATRIX_SUMS_16(d, 4), MATRIX_SUMS_16(d, 8), MATRIX_SUMS_16(d, 12)
	             : MATRIX_RUNS_OF(w, step), "l"(tile));
}
NSTF_DEVICE void matrix_wgmma_32(MatrixSums *d, const MatrixRuns &w, int step, u64 tile) {
	asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
	             "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, 1, 1, 1, 0;"
	             : MATRIX_SUMS_16(d, 0)
	             : MATRIX_RUNS_OF(w, step), "l"(tile));
}

// A tile as wgmma is told of it: address, 1024 bytes from eight rows to the next
// eight, swizzle of 128 bytes, each in units of 16 bytes.
NSTF_DEVICE u64 matrix_tile(const u8 *tile) {
	return (u64)(matrix_address(tile) >> 4 & 0x3fff) | (u64)1 << 16 | (u64)64 << 32 | (u64)1 << 62;
}

template <int F, int N>
NSTF_DEVICE void matrix_products(MatrixSums (&sums)[F][N], const MatrixRuns (&w)[F], const u8 *tile, int) {
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
	const u64 at = matrix_tile(tile);
#pragma unroll
	for (int step = 0; step < 4; step++) {
#pragma unroll
		for (int f = 0; f < F; f++) {
#pragma unroll
			for (int n = 0; n < N; n += N < 16 ? 4 : 16) {
				const u64 from = at + n * 64 + step * 2;
				if (N < 16) matrix_wgmma_32(&sums[f][n], w[f], step, from);
				else matrix_wgmma_128(&sums[f][n], w[f], step, from);
			}
		}
	}
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until all but the last Open products are done.
template <int Open> NSTF_DEVICE void matrix_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Open) : "memory"); }
#else
template <int F, int N>
NSTF_DEVICE void matrix_products(MatrixSums (&sums)[F][N], const MatrixRuns (&w)[F], const u8 *tile, int) {
#pragma unroll
	for (int q = 0; q < 2; q++) {
#pragma unroll
		for (int n = 0; n < N; n++) {
			u32 x[4];
			matrix_load(x, tile + n * 8 * 128, q);
#pragma unroll
			for (int f = 0; f < F; f++) matrix_mma(sums[f][n], w[f], 2 * q, x[0], x[1]);
#pragma unroll
			for (int f = 0; f < F; f++) matrix_mma(sums[f][n], w[f], 2 * q + 1, x[2], x[3]);
		}
	}
}
#endif
#else
typedef _Float16 matrix_half4 __attribute__((ext_vector_type(4)));
typedef _Float16 matrix_half8 __attribute__((ext_vector_type(8)));
typedef _Float16 matrix_half16 __attribute__((ext_vector_type(16)));
typedef f32 matrix_sums __attribute__((ext_vector_type(MATRIX_SUMS)));

// One tile: both operands are runs of 16 halves.
NSTF_DEVICE void matrix_product(MatrixSums &sums, const u32 (&w)[8], const u32 (&x)[8]) {
	matrix_sums d = __builtin_bit_cast(matrix_sums, sums);
#if NSTF_MATRIX == NSTF_MATRIX_WMMA11
	struct Run { u32 v[8]; };
	d = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(__builtin_bit_cast(matrix_half16, *(const Run *)x),
	                                               __builtin_bit_cast(matrix_half16, *(const Run *)w), d);
#elif NSTF_MATRIX == NSTF_MATRIX_WMMA12 || defined(__gfx950__)
	struct Part { u32 v[4]; };
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const matrix_half8 a = __builtin_bit_cast(matrix_half8, *(const Part *)(x + 4 * i));
		const matrix_half8 b = __builtin_bit_cast(matrix_half8, *(const Part *)(w + 4 * i));
#if NSTF_MATRIX == NSTF_MATRIX_WMMA12
		d = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, d);
#else
		d = __builtin_amdgcn_mfma_f32_16x16x32_f16(a, b, d, 0, 0, 0);
#endif
	}
#else
	struct Part { u32 v[2]; };
#pragma unroll
	for (int i = 0; i < 4; i++) {
		d = __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(matrix_half4, *(const Part *)(x + 2 * i)),
		                                          __builtin_bit_cast(matrix_half4, *(const Part *)(w + 2 * i)), d, 0, 0, 0);
	}
#endif
	sums = __builtin_bit_cast(MatrixSums, d);
}

template <int F, int N>
NSTF_DEVICE void matrix_products(MatrixSums (&sums)[F][N], const MatrixRuns (&w)[F], const u8 *tile, int block) {
	const int row = matrix_lane() % 16, chunk = 2 * (matrix_group() * MATRIX_BLOCKS + block);
#pragma unroll
	for (int n = 0; n < N; n++) {
		u32 x[8];
#pragma unroll
		for (int c = 0; c < 2; c++) {
			const Words4 v = *(const Words4 *)(tile + matrix_chunk(n * 16 + row, chunk + c));
			x[4 * c] = v.x, x[4 * c + 1] = v.y, x[4 * c + 2] = v.z, x[4 * c + 3] = v.w;
		}
#pragma unroll
		for (int f = 0; f < F; f++) matrix_product(sums[f][n], w[f].v[0], x);
	}
}
#endif
