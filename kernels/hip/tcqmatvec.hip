// Products of codewords of the scheme tcq with up to 4 rows of activations.
//
//	for t, n: y[t][n] = unit[n/16] * sum over k of codeword[n][k] * x[t][k]
//	TCQ_EXPERTS: one row x for each slot, the matrix being that of the slot's expert
//
// x are activations rotated by rotate.hip: Acts (acts.hip) where TCQ_INT, else
// f32[T][K]. y f32[T][N], still to be rotated. N, K multiples of 16. Up to six
// matrices of one number of bits share x (TCQ_MATRICES): three and their corrections.
//
// A lane takes a whole tile: its 256 windows then lie at places that the compiler
// knows, a column's activation serves 16 rows, and no bits come from another lane.
// With TCQ_AHEAD the pieces of its next tile are read into the registers of those that
// are used up.
// Grid: x is strips of 16 rows, NSTF_WAVE/TCQ_LANES a block, y the slot. TCQ_LANES
// lanes of each of TCQ_WAVES waves share a strip and take its tiles in turn; any
// wave size. LDS: 64 bytes for each wave, strip and row of x.
// Phases: tiles are multiplied, a column's sums of 16 products being exact
// integers; sums over lanes, by halves of the rows; barrier; over waves.
// Deterministic: every sum in one fixed order.
// Bound: the bytes of the codes, or 3.2 to 4 instructions per weight
// (docs/perf/trellis.md).
// Tolerance: integer sums are exact within 16 columns; otherwise a float32 sum's.
#include "tcqcode.hip"
#include "acts.hip"

#define TCQ_STRIPS (NSTF_WAVE / TCQ_LANES) // of a block
#define TCQ_THREADS (TCQ_WAVES * NSTF_WAVE)
#if TCQ_INT
#define TCQ_NAME nstf_matvec_tcq_i8
#else
#define TCQ_NAME nstf_matvec_tcq_f32
#endif

#define TCQ_WAVE_LDS (TCQ_STRIPS * TCQ_T * 4) // pieces of 16 bytes

typedef f32 Sums[TCQ_T][16];

// Four copies of byte i of v.
NSTF_DEVICE u32 splat(u32 v, int i) {
#if defined(NSTF_CUDA)
	return choose_bytes(v, v, i * 0x1111);
#else
	return __builtin_amdgcn_perm(v, v, i * 0x01010101u);
#endif
}

// What a lane has of x for one tile.
struct Inputs {
#if TCQ_INT
	uint4 bytes[TCQ_T];
	f32 d[TCQ_T];
#else
	const f32 *x;
#endif
};

NSTF_DEVICE void inputs(Inputs &in, const u8 *x, int k, int u) {
#if TCQ_INT
#pragma unroll
	for (int t = 0; t < TCQ_T; t++) {
		const u8 *row = x + t * acts_row_bytes(k);
		in.bytes[t] = *(const uint4 *)(row + acts_piece(u) * 16);
		in.d[t] = *(const f32 *)(row + acts_padded(k) + u / 2 * 8);
	}
#else
	in.x = (const f32 *)x + u * 16;
#endif
}

// Loads the pieces of the tile at `next` into the registers of those that no column
// after c needs.
NSTF_DEVICE void roll(TcqTile &tile, const uint4 *next, i64 tiles, int c) {
#pragma unroll
	for (int p = 0; p < TCQ_PIECES; p++)
		if (128 * (p + 1) > 16 * c * TCQ_BITS && 128 * (p + 1) <= 16 * (c + 1) * TCQ_BITS) tcq_piece(tile, next, tiles, p);
}

// Multiplies a tile. With TCQ_AHEAD it is the tile at `next` afterwards, unless that is
// null.
#if TCQ_INT
NSTF_DEVICE void multiply(Sums &sums, TcqTile &tile, const Inputs &in, int, const uint4 *next, i64 tiles) {
	i32 dots[TCQ_T][16];
#pragma unroll
	for (int c = 0; c < 16; c++) {
		u32 same[TCQ_T];
#pragma unroll
		for (int t = 0; t < TCQ_T; t++) {
			const u32 words[4] = {in.bytes[t].x, in.bytes[t].y, in.bytes[t].z, in.bytes[t].w};
			same[t] = splat(words[c / 4], c % 4);
		}
#pragma unroll
		for (int r = 0; r < 16; r++) {
			const u32 bytes = tcq_bytes(tcq_state(tile.w, c, r));
#pragma unroll
			for (int t = 0; t < TCQ_T; t++) dots[t][r] = dot4(bytes, same[t], c > 0 ? dots[t][r] : 0);
		}
		if (TCQ_AHEAD && next) roll(tile, next, tiles, c);
	}
	tile.w[TCQ_WORDS] = tile.w[0];
#pragma unroll
	for (int t = 0; t < TCQ_T; t++)
#pragma unroll
		for (int r = 0; r < 16; r++) sums[t][r] = fmaf(in.d[t], (f32)dots[t][r], sums[t][r]);
}
#else
NSTF_DEVICE void multiply(Sums &sums, TcqTile &tile, const Inputs &in, int k, const uint4 *next, i64 tiles) {
#pragma unroll
	for (int c = 0; c < 16; c++) {
		f32 a[TCQ_T];
#pragma unroll
		for (int t = 0; t < TCQ_T; t++) a[t] = in.x[(i64)t * k + c];
#pragma unroll
		for (int r = 0; r < 16; r++) {
			const f32 w = tcq_codeword(tcq_state(tile.w, c, r));
#pragma unroll
			for (int t = 0; t < TCQ_T; t++) sums[t][r] = fmaf(w, a[t], sums[t][r]);
		}
		if (TCQ_AHEAD && next) roll(tile, next, tiles, c);
	}
	tile.w[TCQ_WORDS] = tile.w[0];
}
#endif

// One step of a sum over lanes that differ in a bit: each keeps the half of Count
// numbers that is its own, or all of one.
template <int Count> NSTF_DEVICE void fold(f32 (&v)[16], int bit) {
	const bool upper = threadIdx.x & bit;
#pragma unroll
	for (int i = 0; i < Count / 2; i++) {
		const f32 mine = upper ? v[i + Count / 2] : v[i], other = upper ? v[i] : v[i + Count / 2];
		v[i] = mine + wave_xor(other, bit);
	}
	if (Count == 1) v[0] += wave_xor(v[0], bit);
}

// Sums over lanes: lane l gets those of rows from l*16/TCQ_LANES on.
NSTF_DEVICE void gather(f32 (&v)[16]) {
	if (TCQ_LANES > 1) fold<16>(v, TCQ_LANES / 2);
	if (TCQ_LANES > 2) fold<8>(v, TCQ_LANES / 4);
	if (TCQ_LANES > 4) fold<4>(v, TCQ_LANES / 8);
	if (TCQ_LANES > 8) fold<2>(v, TCQ_LANES / 16);
	if (TCQ_LANES > 16) fold<1>(v, TCQ_LANES / 32);
	if (TCQ_LANES > 32) fold<1>(v, 1);
}

#define TCQ_PRODUCT(i) const u8 *w##i, f32 *y##i, int n##i

NSTF_KERNEL void __launch_bounds__(TCQ_THREADS, TCQ_RESIDENT) TCQ_NAME(
    const u8 *x, int k, const i32 *expert, int share, i64 stack,
    TCQ_PRODUCT(0)
#if TCQ_MATRICES > 1
    , TCQ_PRODUCT(1)
#endif
#if TCQ_MATRICES > 2
    , TCQ_PRODUCT(2)
#endif
#if TCQ_MATRICES > 3
    , TCQ_PRODUCT(3)
#endif
#if TCQ_MATRICES > 4
    , TCQ_PRODUCT(4)
#endif
#if TCQ_MATRICES > 5
    , TCQ_PRODUCT(5)
#endif
) {
	__shared__ __align__(16) u8 lds[TCQ_WAVES * TCQ_WAVE_LDS * 16];
	let_next_begin();
	const u8 *w = w0;
	f32 *y = y0;
	int n = n0, block = blockIdx.x;
	// Passes over a matrix, to one that begins with another block.
	bool here = false;
	auto pass = [&](const u8 *next, f32 *out, int rows) {
		const int blocks = (n / 16 + TCQ_STRIPS - 1) / TCQ_STRIPS;
		here = here || block < blocks;
		if (!here) block -= blocks, w = next, y = out, n = rows;
	};
#if TCQ_MATRICES > 1
	pass(w1, y1, n1);
#endif
#if TCQ_MATRICES > 2
	pass(w2, y2, n2);
#endif
#if TCQ_MATRICES > 3
	pass(w3, y3, n3);
#endif
#if TCQ_MATRICES > 4
	pass(w4, y4, n4);
#endif
#if TCQ_MATRICES > 5
	pass(w5, y5, n5);
#endif
	const int across = k / 16, wave = threadIdx.x / NSTF_WAVE, lane = threadIdx.x % TCQ_LANES;
	const int mine = block * TCQ_STRIPS + threadIdx.x % NSTF_WAVE / TCQ_LANES;
	const int strip = mine < n / 16 ? mine : n / 16 - 1; // the last one is done again rather than none
	i64 first = strip;
	wait_for_inputs();
	if (TCQ_EXPERTS) first += (i64)expert[blockIdx.y] * (n / 16);
	const i64 tiles = (TCQ_EXPERTS ? stack : n) / 16 * across;
	if (TCQ_EXPERTS) x += (i64)(blockIdx.y / share) * (TCQ_INT ? acts_row_bytes(k) : k * 4);

	// Where a wave's sums of a strip go.
	auto part = [&](int wave, int strip, int t) { return (f32 *)(lds + wave * (TCQ_WAVE_LDS * 16)) + (strip * TCQ_T + t) * 16; };
	Sums sums = {};
	const uint4 *codes = (const uint4 *)w + first * across;
	TcqTile tile;
#if TCQ_AHEAD
	int u = wave * TCQ_LANES + lane;
	if (u < across) {
		Inputs in;
		tcq_load(tile, codes, tiles, u);
		inputs(in, x, k, u);
		while (true) {
			const int after = u + TCQ_WAVES * TCQ_LANES;
			Inputs coming = in;
			if (after < across) inputs(coming, x, k, after);
			multiply(sums, tile, in, k, after < across ? codes + after : nullptr, tiles);
			if (after >= across) break;
			u = after, in = coming;
		}
	}
#else
	for (int u = wave * TCQ_LANES + lane; u < across; u += TCQ_WAVES * TCQ_LANES) {
		Inputs in;
		tcq_load(tile, codes, tiles, u);
		inputs(in, x, k, u);
		multiply(sums, tile, in, k, nullptr, tiles);
	}
#endif
	const int held = TCQ_LANES < 16 ? 16 / TCQ_LANES : 1, row = lane * 16 / TCQ_LANES;
#pragma unroll
	for (int t = 0; t < TCQ_T; t++) {
		gather(sums[t]);
#pragma unroll
		for (int i = 0; i < held; i++) part(wave, threadIdx.x % NSTF_WAVE / TCQ_LANES, t)[row + i] = sums[t][i];
	}
	__syncthreads();
	for (int i = threadIdx.x; i < TCQ_STRIPS * TCQ_T * 16; i += TCQ_THREADS) {
		const int to = block * TCQ_STRIPS + i / (TCQ_T * 16), t = i / 16 % TCQ_T, r = i % 16;
		if (to >= n / 16) continue;
		f32 sum = 0;
		for (int p = 0; p < TCQ_WAVES; p++) sum += part(p, i / (TCQ_T * 16), t)[r];
		const i64 at = TCQ_EXPERTS ? (i64)expert[blockIdx.y] * (n / 16) + to : to;
		const u16 *units = (const u16 *)(w + tiles * (32 * TCQ_BITS));
		y[(i64)(TCQ_EXPERTS ? blockIdx.y : t) * n + to * 16 + r] = tcq_unit(units[at]) * sum;
	}
}
