// What matrows.hip does, with the same bits, for NVIDIA's matrix unit and weights whose
// codes are unpacked on the way to it: 32 lanes of matvec.hip share a row, and K is
// 1024 at least.
//
// Sixteen waves have two parts each of the same 32 rows of W, so that four waves are on a
// quarter of a multiprocessor while one waits. What a wave needs next comes to LDS by
// itself, as it lies in memory (cp.async): registers are left to sums. ldmatrix then gives
// each lane the word of 8 nibbles that two masks turn to the unit's bytes, and the
// activations of two tiles of tokens at once.
//
// Weights of q4_k's planes: 16 bytes of nibbles for 32 weights, then heads of 256 weights. x
// Acts (acts.hip), rows from `from` on. y f32[T][N], which may be the residual. Up to three
// matrices share x (RAW_MATRICES); RAW_GATED: 16 rows of each of two.
//
// Grid: blocks of 16 waves, which take tiles of 32 rows of W in turn, and RAW_TOKENS tiles
// of 8 tokens. LDS: chunks of x for steps of 1024 numbers, all of them with RAW_WHOLE,
// else RAW_DEPTH; RAW_DEPTH slots of weights for each wave; what waves exchange, where a
// wave's scales lie meanwhile. Step g of a block computes while steps up to g + RAW_DEPTH
// come. Waves meet at each step in which x comes, and at the end of a tile.
// Deterministic: matvec.hip's order of sums.
// Bound: 96 fused multiplications and some 50 instructions beside for 32 weights of 32
// rows of W and 32 tokens; of 8 tokens the bytes of W.
#include "SCHEME.hip"
#include "acts.hip"
#include "matrixbytes.hip"
#if RAW_GATED
#include "activation.hip"
#endif

#define RAW_WAVES 16
#define RAW_THREADS (RAW_WAVES * NSTF_WAVE)
#define RAW_ROWS (RAW_TOKENS * 8)                  // rows of x, those behind T included
#define RAW_UNITS (RAW_K / 32)                     // of a row
#define RAW_STEPS ((RAW_UNITS + 31) / 32)          // of a tile
#define RAW_EVEN (RAW_UNITS % 32 == 0)             // the last one is whole
#define RAW_OUT (32 / (1 + RAW_GATED))             // outputs of a tile
#define RAW_PAIRS (RAW_ROWS * 1024)                // bytes of a chunk of x, behind which are pairs
#define RAW_CHUNK (RAW_PAIRS + RAW_ROWS * 32 * 8)
#define RAW_CHUNKS (RAW_WHOLE ? RAW_STEPS : RAW_DEPTH + 1)
#define RAW_SLOT 1536                              // two units of 32 rows, their heads
#define RAW_SHARED (RAW_ROWS * 128)                // sums of a tile of two waves
#define RAW_X acts_row_bytes(RAW_K)

static_assert(NSTF_MATRIX == NSTF_MATRIX_MMA && Weights::unit == 32 && Weights::group == 32 && Weights::mins && Weights::zero == 0, "q4_k");

NSTF_DEVICE u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
NSTF_DEVICE void copy16(u32 to, const void *from) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory"); }
NSTF_DEVICE void copy8(u32 to, const void *from) { asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory"); }
NSTF_DEVICE void copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Left> NSTF_DEVICE void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory"); }
NSTF_DEVICE void matrices4(u32 (&v)[4], u32 at) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(at));
}
NSTF_DEVICE void matrices2(u32 &v0, u32 &v1, u32 at) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(v0), "=r"(v1) : "r"(at));
}
// The thread's number, read again where it is needed: what is worked out from it is not kept in registers.
NSTF_DEVICE int thread_again() {
	int v;
	asm volatile("mov.u32 %0, %%tid.x;" : "=r"(v));
	return v;
}
NSTF_DEVICE void put_scales(u32 at, f32 scale, f32 min) { asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(at), "f"(scale), "f"(min) : "memory"); }
NSTF_DEVICE float4 four_at(u32 at) {
	float4 v;
	asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at));
	return v;
}
NSTF_DEVICE void pair_sync(int pair) { asm volatile("bar.sync %0, 64;" ::"r"(pair + 1) : "memory"); }

typedef f32 Sums[2][RAW_TOKENS][4];

// Where a tile lies: rows of one of the matrices that share x.
struct Place {
	const u8 *w;
	f32 *y;
	const f32 *bias, *residual;
	int n, first; // rows, and the tile's first
};

// Sums of a tile: f32 [token][feature], turned so that the unit's lanes hit other banks.
NSTF_DEVICE int sum_at(int token, int feature) { return token * 32 + (feature + (token >> 1) * 8) % 32; }

#define RAW_PRODUCT(i) const u8 *w##i, f32 *y##i, const f32 *bias##i, const f32 *residual##i, int n##i

NSTF_KERNEL void __launch_bounds__(RAW_THREADS, RAW_RESIDENT) NSTF_PASTED(NSTF_NAMED(nstf_matrowsraw), i8)(
    const u8 *x, int t, int from, RAW_PRODUCT(0)
#if RAW_MATRICES > 1
    , RAW_PRODUCT(1)
#endif
#if RAW_MATRICES > 2
    , RAW_PRODUCT(2)
#endif
) {
	extern __shared__ __align__(16) u8 lds[];
	let_next_begin();
	auto tiles_of = [](int n) { return (n + RAW_OUT - 1) / RAW_OUT; };
	const int tiles0 = tiles_of(n0);
	int tiles = tiles0;
#if RAW_MATRICES > 1 && !RAW_GATED
	const int tiles1 = tiles += tiles_of(n1);
#endif
#if RAW_MATRICES > 2
	tiles += tiles_of(n2);
#endif
	// Member by member: a choice between whole structs would go through memory.
	auto place = [=](int tile) {
		Place p = {w0, y0, bias0, residual0, n0, tile * RAW_OUT};
#if RAW_MATRICES > 1 && !RAW_GATED
		const bool second = tile >= tiles0;
		p.w = second ? w1 : p.w, p.y = second ? y1 : p.y, p.bias = second ? bias1 : p.bias, p.residual = second ? residual1 : p.residual;
		p.n = second ? n1 : p.n, p.first = second ? (tile - tiles0) * RAW_OUT : p.first;
#endif
#if RAW_MATRICES > 2
		const bool third = tile >= tiles1;
		p.w = third ? w2 : p.w, p.y = third ? y2 : p.y, p.bias = third ? bias2 : p.bias, p.residual = third ? residual2 : p.residual;
		p.n = third ? n2 : p.n, p.first = third ? (tile - tiles1) * RAW_OUT : p.first;
#endif
		return p;
	};
	// Wave numbers are the same in all lanes, and the compiler is told so.
	const int wave = (int)wave_get((u32)threadIdx.x / NSTF_WAVE, 0), lane = bytes_lane();
	const u32 ring = shared_address(lds) + RAW_CHUNKS * RAW_CHUNK + wave * (RAW_DEPTH * RAW_SLOT);
	const u32 scales = shared_address(lds) + RAW_CHUNKS * RAW_CHUNK + RAW_WAVES * RAW_DEPTH * RAW_SLOT + wave * 512; // [unit][rows 16f + r and + 8][{scale, min}]
	u8 *const exchange = lds + RAW_CHUNKS * RAW_CHUNK + RAW_WAVES * (RAW_DEPTH * RAW_SLOT + 512);

	// What comes next: two pieces of codes for each lane, of the rows 16 * i + lane / 2, and
	// the head of row `lane`.
	// Pieces of 16 bytes from the matrix's first on.
	const u8 *base = w0;
	u32 codes[2], heads;
	auto aim = [&](int tile) {
		const Place p = place(tile);
		auto row_of = [&](int feature) {
			const int row = p.first + feature % RAW_OUT;
			return (u32)(row < p.n ? row : p.n - 1);
		};
		base = p.w;
#pragma unroll
		for (int i = 0; i < 2; i++) codes[i] = row_of(16 * i + lane / 2) * RAW_UNITS + wave * 2 + lane % 2;
		heads = (u32)p.n * RAW_UNITS + row_of(lane) * (RAW_UNITS / 8) + wave / 4;
	};
	auto here = [=](int step) { return RAW_EVEN || step * 32 + wave * 2 < RAW_UNITS; }; // a wave's units of a step are both in a row or behind it
	auto ask = [&](int step, int slot) {
		if (!here(step)) return;
		const u32 to = ring + slot * RAW_SLOT;
#if RAW_GATED
		const u8 *w[2] = {base, w1};
#else
		const u8 *w[2] = {base, base};
#endif
#pragma unroll
		for (int i = 0; i < 2; i++) copy16(to + lane % 2 * 512 + lane / 2 * 16 + i * 256, w[i] + (u64)(codes[i] + step * 32) * 16);
		copy16(to + 1024 + lane * 16, (lane < 16 ? w[0] : w[1]) + (u64)(heads + step * 4) * 16);
	};

	// Chunks of x: pieces of 16 bytes, of which eight rows' are in other banks, and pairs
	// [unit][row]. A thread's pairs are four units next to each other of eight rows in a wave.
	auto bring = [&](int step, int slot) {
		u8 *const chunk = lds + slot * RAW_CHUNK;
		const int thread = thread_again(), pair_unit = thread % 4, pair_row = thread / 4 % 8;
#pragma unroll
		for (int i = 0; i < RAW_TOKENS; i++) {
			const int row = i * 8 + thread / 64, piece = thread % 64;
			if (row < t && (RAW_EVEN || step * 32 + piece / 2 < RAW_UNITS))
				copy16(shared_address(chunk + row * 1024 + (piece ^ row % 8) * 16), x + (i64)row * RAW_X + acts_piece(step * 64 + piece) * 16);
		}
#pragma unroll
		for (int i = 0; i < RAW_TOKENS * 8; i += RAW_WAVES) {
			const int j = i + wave, row = j / 8 * 8 + pair_row, unit = j % 8 * 4 + pair_unit;
			if (j < RAW_TOKENS * 8 && row < t && (RAW_EVEN || step * 32 + unit < RAW_UNITS))
				copy8(shared_address(chunk + RAW_PAIRS + (unit * RAW_ROWS + row) * 8), x + (i64)row * RAW_X + acts_pair(RAW_K, (step * 32 + unit) * 8));
		}
	};
	// A thread turns the pairs that it brought to scales, and these times the sums.
	auto turn = [&](int slot) {
		u8 *const pairs = lds + slot * RAW_CHUNK + RAW_PAIRS;
		const int thread = thread_again(), pair_unit = thread % 4, pair_row = thread / 4 % 8;
#pragma unroll
		for (int i = 0; i < RAW_TOKENS * 8; i += RAW_WAVES) {
			const int j = i + wave;
			if (j >= RAW_TOKENS * 8) break;
			u8 *const at = pairs + ((j % 8 * 4 + pair_unit) * RAW_ROWS + j / 8 * 8 + pair_row) * 8;
			const uint2 pair = *(const uint2 *)at;
			const f32 d = of_bits(pair.x);
			*(float2 *)at = make_float2(d, d * (f32)(pair_first(pair) + pair_last(pair)));
		}
	};

	aim(blockIdx.x);
	// Of the steps of the block's tiles, those asked for.
	int ask_tile = blockIdx.x, ask_step = 0, ask_slot = 0;
	auto ask_next = [&]() {
		if (ask_tile < tiles) ask(ask_step, ask_slot);
		ask_slot = ask_slot + 1 < RAW_DEPTH ? ask_slot + 1 : 0;
		if (++ask_step < RAW_STEPS) return;
		ask_step = 0, ask_tile += gridDim.x;
		if (ask_tile < tiles) aim(ask_tile);
	};
	int x_step = 0, x_slot = 0, x_left = RAW_WHOLE ? RAW_STEPS : (tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x * RAW_STEPS; // chunks to bring
	auto bring_next = [&]() {
		if (x_left == 0) return;
		bring(x_step, x_slot);
		x_left--;
		x_step = x_step + 1 < RAW_STEPS ? x_step + 1 : 0, x_slot = x_slot + 1 < RAW_CHUNKS ? x_slot + 1 : 0;
	};
#pragma unroll
	for (int i = 0; i < RAW_DEPTH; i++) ask_next();
	wait_for_inputs();
	x += (i64)from * RAW_X;
#pragma unroll
	for (int i = 0; i < RAW_DEPTH; i++) bring_next(), copies_end();

	// Where a lane's activations and their scales lie in a chunk.
	const u32 act_at = shared_address(lds) + (lane / 16 * 8 + lane % 8) * 1024 + ((wave * 4 + lane / 8 % 2) ^ lane % 8) * 16;
	const u32 pair_at = shared_address(lds) + RAW_PAIRS + (wave * 2 * RAW_ROWS + lane % 4 * 2) * 8;
	Sums sums[2] = {};
	// Adds the products of unit p of the wave's two.
	auto multiply = [&](Sums &sum, int p, const u32 (&raw)[4], int chunk) {
		ByteWeights<2> w[2];
		f32 scale[2][2], off[2][2], least[2][2];
#pragma unroll
		for (int f = 0; f < 2; f++) {
#pragma unroll
			for (int r = 0; r < 2; r++) w[f].v[r][0] = raw[2 * f + r] & 0x0f0f0f0f, w[f].v[r][1] = raw[2 * f + r] >> 4 & 0x0f0f0f0f;
			const float4 v = four_at(scales + lane / 4 * 16 + p * 256 + f * 128);
			scale[f][0] = v.x, least[f][0] = v.y, scale[f][1] = v.z, least[f][1] = v.w;
#pragma unroll
			for (int r = 0; r < 2; r++) off[f][r] = scale[f][r] * -BYTES_MAGIC_VALUE;
		}
		const u32 acts = (act_at ^ p * 32) + chunk * RAW_CHUNK;
#pragma unroll
		for (int n = 0; n < RAW_TOKENS; n += 2) {
			u32 v[4];
			if (n + 1 < RAW_TOKENS) matrices4(v, acts + n * 8192);
			else matrices2(v[0], v[1], acts + n * 8192);
#pragma unroll
			for (int m = n; m < n + 2 && m < RAW_TOKENS; m++) {
				const ByteActs<2> a = {v[2 * (m - n)], v[2 * (m - n) + 1]};
				const float4 d = four_at(pair_at + chunk * RAW_CHUNK + (p * RAW_ROWS + m * 8) * 8);
				const f32 scale_of[2] = {d.x, d.z}, sum_of[2] = {d.y, d.w};
#pragma unroll
				for (int f = 0; f < 2; f++) {
					const ByteSums dots = bytes_product(w[f], a);
#pragma unroll
					for (int i = 0; i < 4; i++) {
						f32 &s = sum[f][m][i];
						s = fmaf(scale_of[i % 2], fmaf(of_bits((u32)dots.v[i]), scale[f][i / 2], off[f][i / 2]), s);
						s = fmaf(-least[f][i / 2], sum_of[i % 2], s);
					}
				}
			}
		}
	};

	int slot = 0, chunk = 0, fresh = RAW_STEPS; // steps until all of x is there
	for (int tile = blockIdx.x, step = 0; tile < tiles;) {
		copies_wait<RAW_DEPTH - 1>();
		if (!RAW_WHOLE || fresh > 0) {
			turn(chunk);
			__syncthreads();
			fresh--;
		} else {
			wave_sync();
		}
		// The slot is read, and free for what comes next.
		u32 raw[2][4];
		{
			Weights::Raw head;
			const float4 v = four_at(ring + slot * RAW_SLOT + 1024 + lane * 16);
			head.head = make_uint4(bits_of(v.x), bits_of(v.y), bits_of(v.z), bits_of(v.w));
#pragma unroll
			for (int p = 0; p < 2; p++) matrices4(raw[p], ring + slot * RAW_SLOT + p * 512 + lane * 16);
			f32 s[2][1], m[2][1];
#pragma unroll
			for (int p = 0; p < 2; p++) {
				Weights::scales(head, wave * 2 + p, s[p], m[p]);
				put_scales(scales + lane / 16 * 128 + lane % 8 * 16 + lane / 8 % 2 * 8 + p * 256, s[p][0], m[p][0]);
			}
		}
		wave_sync();
		ask_next();
		bring_next();
		copies_end();
		if (here(step)) {
			multiply(sums[0], 0, raw[0], chunk);
			multiply(sums[1], 1, raw[1], chunk);
		}
		wave_sync(); // scales have been read
		slot = slot + 1 < RAW_DEPTH ? slot + 1 : 0;
		chunk = chunk + 1 < RAW_CHUNKS ? chunk + 1 : 0;
		if (++step < RAW_STEPS) continue;
		step = 0;
		if (RAW_WHOLE && tile != (int)blockIdx.x) __syncthreads(); // sums of the tile before have been read
		// Parts next to each other are added, then those of two waves, each of which has 16
		// features of both, then the pairs' first ones.
		const bool odd = wave % 2;
		u8 *const mine = exchange + wave / 2 * RAW_SHARED;
		f32 kept[RAW_TOKENS][4];
#pragma unroll
		for (int n = 0; n < RAW_TOKENS; n++) {
			f32 v[2][4];
#pragma unroll
			for (int f = 0; f < 2; f++)
#pragma unroll
				for (int i = 0; i < 4; i++) {
					v[f][i] = sums[0][f][n][i] + sums[1][f][n][i];
					sums[0][f][n][i] = sums[1][f][n][i] = 0;
				}
#pragma unroll
			for (int i = 0; i < 4; i++) kept[n][i] = odd ? v[1][i] : v[0][i], v[0][i] = odd ? v[0][i] : v[1][i];
			*(float4 *)(mine + odd * (RAW_SHARED / 2) + (n * NSTF_WAVE + lane) * 16) = make_float4(v[0][0], v[0][1], v[0][2], v[0][3]);
		}
		pair_sync(wave / 2);
#pragma unroll
		for (int n = 0; n < RAW_TOKENS; n++) {
			const float4 v = *(const float4 *)(mine + !odd * (RAW_SHARED / 2) + (n * NSTF_WAVE + lane) * 16);
			kept[n][0] += v.x, kept[n][1] += v.y, kept[n][2] += v.z, kept[n][3] += v.w;
		}
		pair_sync(wave / 2);
#pragma unroll
		for (int n = 0; n < RAW_TOKENS; n++)
#pragma unroll
			for (int i = 0; i < 4; i++) ((f32 *)mine)[sum_at(n * 8 + bytes_token(i % 2), odd * 16 + bytes_feature(i / 2))] = kept[n][i];
		__syncthreads();
		const Place p = place(tile);
		auto whole = [&](int token, int feature) {
			f32 v[RAW_WAVES / 2];
#pragma unroll
			for (int w = 0; w < RAW_WAVES / 2; w++) v[w] = ((const f32 *)(exchange + w * RAW_SHARED))[sum_at(token, feature)];
#pragma unroll
			for (int width = 1; width < RAW_WAVES / 2; width *= 2)
#pragma unroll
				for (int w = 0; w < RAW_WAVES / 2; w += 2 * width) v[w] += v[w + width];
			return v[0];
		};
		for (int i = threadIdx.x; i < t * RAW_OUT; i += RAW_THREADS) {
			const int token = i / RAW_OUT, feature = i % RAW_OUT, n = p.first + feature;
			if (n >= p.n) continue;
			const i64 at = (i64)token * p.n + n;
#if RAW_GATED
			p.y[at] = gated(whole(token, feature), whole(token, RAW_OUT + feature));
#else
			const f32 bias = p.bias ? p.bias[n] : 0, residual = p.residual ? p.residual[at] : 0;
			p.y[at] = whole(token, feature) + bias + residual;
#endif
		}
		tile += gridDim.x;
	}
}
