// What matrows.hip does, with the same bits, for NVIDIA's matrix unit and weights whose
// codes are unpacked on the way to it: 32 lanes of matvec.hip share a row, and K is
// 1024 at least.
//
// A wave has 16 rows of W and RAW_GROUPS groups of four of their 32 parts, one group after
// the other, whose sums it adds as a tree, so that with RAW_SPLIT of 1 no other wave has to
// do with these rows. What a wave needs next of W comes to LDS by itself, as it lies in
// memory (cp.async); a slab of x is there for all waves while the next comes. ldmatrix
// gives each lane the word of 8 nibbles that two masks turn to the unit's bytes. The
// matrix unit's rows are tokens and its columns rows of W: scales of tokens, that lanes
// next to each other share, are then read from LDS at twice the rate.
//
// Weights of q4_k's planes: 16 bytes of nibbles for 32 weights, then heads of 256 weights. x
// Acts (acts.hip), rows from `from` on. y f32[T][N], which may be the residual. Up to three
// matrices share x (RAW_MATRICES); RAW_GATED: 8 rows of each of two.
//
// Grid: blocks of RAW_WAVES waves, RAW_SPLIT of which share a tile of 16 rows; a block has
// tiles blockIdx, blockIdx + gridDim and so on at once, and then the next of these. RAW_EIGHTS
// times 8 tokens, two of which are a tile of the unit. A step is four units of each wave: of a group, one of every 32. LDS:
// RAW_SLABS slabs of x of RAW_SLAB steps; for each wave RAW_DEPTH steps of weights, the
// scales of one, and sums that wait for others. Blocks meet once a slab.
// Deterministic: matvec.hip's order of sums.
// Bound: for 32 weights of 16 rows and 32 tokens 48 fused multiplications, which nothing can
// leave out, of some 90 instructions, and 32 cycles of LDS; of 16 tokens the bytes of W.
#include "SCHEME.hip"
#include "acts.hip"
#include "matrixbytes.hip"
#if RAW_GATED
#include "activation.hip"
#endif

#define RAW_THREADS (RAW_WAVES * NSTF_WAVE)
#define RAW_TILES ((RAW_EIGHTS + 1) / 2)           // of tokens
#define RAW_ROWS (RAW_TILES * 16)                  // rows of x, those behind T included
#define RAW_UNITS (RAW_K / 32)                     // of a row
#define RAW_STEPS ((RAW_UNITS + 31) / 32)          // of a group
#define RAW_GROUPS (8 / RAW_SPLIT)                 // of a wave
#define RAW_TURNS (RAW_GROUPS * RAW_STEPS)         // steps of a tile
#define RAW_EVEN (RAW_UNITS % 32 == 0)             // the last step is whole
#define RAW_WHOLE (RAW_STEPS <= 4 && RAW_STEPS % RAW_DEPTH == 0 && RAW_STEPS % RAW_SLAB == 0) // groups begin alike
#define RAW_ABREAST (RAW_WAVES / RAW_SPLIT)        // tiles of a block at once
#define RAW_OUT (16 / (1 + RAW_GATED))             // outputs of a tile
#define RAW_PAIRS (RAW_ROWS * 128)                 // bytes of a step's x of one group, behind which are pairs
#define RAW_CHUNK (RAW_PAIRS + RAW_ROWS * 32)
#define RAW_CHUNKS (RAW_SLAB * RAW_SPLIT)          // of a slab
#define RAW_X (RAW_SLABS * RAW_CHUNKS * RAW_CHUNK)
#define RAW_VALUES (RAW_EIGHTS * 4)                // sums of a lane
#define RAW_SUMS (RAW_VALUES * NSTF_WAVE * 4)      // bytes of a tile's
#define RAW_WAITING (RAW_GROUPS == 8 ? 3 : RAW_GROUPS == 4 ? 2 : 1) // of them, at most
#define RAW_ROOM (RAW_DEPTH * 1024 + 512 + RAW_WAITING * RAW_SUMS) // of a wave

static_assert(NSTF_MATRIX == NSTF_MATRIX_MMA && Weights::unit == 32 && Weights::group == 32 && Weights::mins && Weights::zero == 0, "q4_k");
static_assert(RAW_TURNS % RAW_SLAB == 0 && RAW_THREADS % (8 * RAW_CHUNKS) == 0, "a tile is whole slabs, and threads bring whole rows");
static_assert(RAW_DEPTH >= 2 && RAW_SLABS == 1 + (RAW_DEPTH - 1 + RAW_SLAB - 1) / RAW_SLAB, "a slab has come when its first weights have");

NSTF_DEVICE u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
NSTF_DEVICE void copy16(u32 to, const void *from) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory"); }
NSTF_DEVICE void copy8(u32 to, const void *from) { asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory"); }
NSTF_DEVICE void copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Left> NSTF_DEVICE void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory"); }
NSTF_DEVICE void matrices4(u32 (&v)[4], u32 at) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(at) : "memory");
}
// The thread's number, read again where it is needed: what is worked out from it is not kept in registers.
NSTF_DEVICE u32 thread_again() {
	u32 v;
	asm volatile("mov.u32 %0, %%tid.x;" : "=r"(v));
	__builtin_assume(v < RAW_THREADS);
	return v;
}
// The lane's number, which is kept in a register: to read it again takes as long as LDS does.
NSTF_DEVICE int lane_once() {
	int v;
	asm volatile("mov.u32 %0, %%laneid;" : "=r"(v));
	return v;
}
NSTF_DEVICE void put_scales(u32 at, f32 scale, f32 min) { asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(at), "f"(scale), "f"(min) : "memory"); }
NSTF_DEVICE float4 four_at(u32 at) {
	float4 v;
	asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at) : "memory");
	return v;
}

// BYTES_MAGIC and the dot products of 16 tokens, x, and 8 rows of W: of tokens lane / 4
// and that + 8, in each of which rows lane % 4 * 2 and the next.
NSTF_DEVICE ByteSums tokens_product(const u32 (&x)[4], u32 w0, u32 w1) {
	ByteSums d;
	asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
	    : "=r"(d.v[0]), "=r"(d.v[1]), "=r"(d.v[2]), "=r"(d.v[3])
	    : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(w0), "r"(w1), "r"(BYTES_MAGIC));
	return d;
}

// A lane's sums of a tile: [eight tokens][row of two][eight rows].
typedef f32 Sums[RAW_VALUES];

NSTF_DEVICE void add_sums(Sums &to, const Sums &v) {
#pragma unroll
	for (int i = 0; i < RAW_VALUES; i++) to[i] += v[i];
}

// Where a tile lies: rows of one of the matrices that share x.
struct Place {
	const u8 *w;
	f32 *y;
	const f32 *bias, *residual;
	int n, first; // rows, and the tile's first
};

#define RAW_PRODUCT(i) const u8 *w##i, f32 *y##i, const f32 *bias##i, const f32 *residual##i, int n##i

NSTF_KERNEL void __launch_bounds__(RAW_THREADS, 1) NSTF_PASTED(NSTF_NAMED(nstf_matrowsraw), i8)(
    const u8 *x, int t, int from, RAW_PRODUCT(0)
#if RAW_MATRICES > 1
    , RAW_PRODUCT(1)
#endif
#if RAW_MATRICES > 2
    , RAW_PRODUCT(2)
#endif
) {
	extern __shared__ __align__(128) u8 lds[];
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
	const int wave = (int)wave_get((u32)threadIdx.x / NSTF_WAVE, 0), lane = lane_once();
	const int mine = wave % RAW_SPLIT, group0 = mine * RAW_GROUPS; // of the tile's waves, and its first group
	const int first_tile = blockIdx.x + wave / RAW_SPLIT * gridDim.x, next_tile = RAW_ABREAST * gridDim.x;
	const int rounds = (tiles + next_tile - 1) / next_tile;
	const u32 ring = shared_address(lds) + RAW_X + wave * RAW_ROOM, scales = ring + RAW_DEPTH * 1024;
	auto here = [=](int step, int group) { return RAW_EVEN || step * 32 + group * 4 < RAW_UNITS; };

	// What comes next of W: two pieces of codes for each lane, of the rows lane / 4 and that
	// + 8; and the head of row lane % 16. Pieces of 16 bytes from a matrix's first on.
	const u8 *codes_of[2], *heads_of;
	u32 codes[2], heads;
	auto aim = [&](int tile) {
		const Place p = place(tile);
		auto row_of = [&](int feature) {
			const int row = p.first + feature % RAW_OUT;
			return (u32)(row < p.n ? row : p.n - 1);
		};
		codes_of[0] = codes_of[1] = heads_of = p.w;
#if RAW_GATED
		codes_of[1] = w1, heads_of = lane % 16 < 8 ? w0 : w1;
#endif
#pragma unroll
		for (int i = 0; i < 2; i++) codes[i] = row_of(8 * i + lane / 4) * RAW_UNITS + group0 * 4 + lane % 4;
		heads = (u32)p.n * RAW_UNITS + row_of(lane % 16) * (RAW_UNITS / 8) + group0 / 2;
	};
	// Steps of the wave's tiles, asked for one after the other.
	int ask_tile = first_tile, ask_group = 0, ask_step = 0, ask_slot = 0;
	const u32 put = lane / 4 * 64 + ((lane % 4 ^ (lane / 8 & 3)) * 16);
	uint4 head_next = {};
	auto ask_next = [&]() {
		if (ask_tile < tiles && here(ask_step, group0 + ask_group)) {
#pragma unroll
			for (int i = 0; i < 2; i++) copy16(ring + ask_slot * 1024 + put + i * 512, codes_of[i] + (u64)(codes[i] + ask_group * 4) * 16 + ask_step * 512);
		}
		ask_slot = ask_slot + 1 < RAW_DEPTH ? ask_slot + 1 : 0;
		if (++ask_step < RAW_STEPS) return;
		ask_step = 0;
		if (++ask_group < RAW_GROUPS) return;
		ask_group = 0, ask_tile += next_tile;
		if (ask_tile < tiles) aim(ask_tile);
	};

	// Slabs of x: of each step and group pieces of 16 bytes of four units, of which eight rows'
	// are in other banks, and pairs [unit][tile][row % 8][row / 8 % 2].
	u32 x_turn = 0;
	int x_slot = 0, x_left = rounds * (RAW_TURNS / RAW_SLAB);
	auto unit_of = [=](u32 chunk, u32 turn) { // the first of a chunk's four
		const u32 b = turn + chunk / RAW_SPLIT;
		return b % RAW_STEPS * 32 + (chunk % RAW_SPLIT * RAW_GROUPS + b / RAW_STEPS) * 4;
	};
	// Pair number i of a thread: half a wave's hit 16 banks of 8 bytes. All are of one unit and row
	// where waves are whole turns of the tiles of tokens.
	struct Pair { u32 unit, row, chunk, at; };
	auto pair_of = [](u32 thread, int i) {
		const bool alike = RAW_THREADS % (64 * RAW_TILES) == 0;
		const u32 j = alike ? thread : thread + i * RAW_THREADS, more = alike ? i * (RAW_THREADS / (64 * RAW_TILES)) : 0;
		const u32 unit = j % 4, tile = j / 64 % RAW_TILES, half = j / 4 % 2, eighth = j / 8 % 8, chunk = j / 64 / RAW_TILES;
		return Pair{unit, tile * 16 + half * 8 + eighth, chunk + more, (chunk + more) * RAW_CHUNK + RAW_PAIRS + unit * (RAW_ROWS * 8) + tile * 128 + (eighth ^ unit * 2) * 16 + half * 8};
	};
#define RAW_PAIRS_OF ((RAW_CHUNKS * RAW_ROWS * 4 + RAW_THREADS - 1) / RAW_THREADS) // of a thread
	auto bring_next = [&]() {
		if (x_left == 0) return;
		const u32 thread = thread_again(), slab = shared_address(lds) + x_slot * (RAW_CHUNKS * RAW_CHUNK);
		{
			const u32 piece = thread % 8, chunk = thread / 8 % RAW_CHUNKS, row0 = thread / (8 * RAW_CHUNKS), u = unit_of(chunk, x_turn), to = slab + chunk * RAW_CHUNK;
			const u8 *const from = x + row0 * (u32)acts_row_bytes(RAW_K) + (u32)acts_piece(u * 2 + piece) * 16;
#pragma unroll
			for (int i = 0; i < RAW_ROWS; i += RAW_THREADS / (8 * RAW_CHUNKS)) {
				const u32 row = row0 + i;
				if (row < (u32)t && (RAW_EVEN || u < RAW_UNITS)) copy16(to + row * 128 + (piece ^ row % 8) * 16, from + i * acts_row_bytes(RAW_K));
			}
		}
#pragma unroll
		for (int i = 0; i < RAW_PAIRS_OF; i++) {
			const Pair p = pair_of(thread, i);
			const u32 u = unit_of(p.chunk, x_turn);
			if (p.chunk < RAW_CHUNKS && p.row < (u32)t && (RAW_EVEN || u < RAW_UNITS)) copy8(slab + p.at, x + p.row * (u32)acts_row_bytes(RAW_K) + (u32)acts_pair(RAW_K, (u + p.unit) * 8));
		}
		x_left--;
		x_turn = x_turn + RAW_SLAB < (u32)RAW_TURNS ? x_turn + RAW_SLAB : 0, x_slot = x_slot + 1 < RAW_SLABS ? x_slot + 1 : 0;
	};
	// A thread turns the pairs that it brought to scales, and these times the sums.
	auto turn_pairs = [&](int slot) {
		const u32 thread = thread_again();
#pragma unroll
		for (int i = 0; i < RAW_PAIRS_OF; i++) {
			const Pair p = pair_of(thread, i);
			if (p.chunk >= RAW_CHUNKS || p.row >= (u32)t) continue;
			u8 *const at = lds + slot * (RAW_CHUNKS * RAW_CHUNK) + p.at;
			const uint2 pair = *(const uint2 *)at;
			const f32 d = of_bits(pair.x);
			*(float2 *)at = make_float2(d, d * (f32)(pair_first(pair) + pair_last(pair)));
		}
	};

	if (first_tile < tiles) aim(first_tile);
	const u8 *head_base = heads_of;
	u32 head_at = heads;
	auto head_of = [&](int step, int group) { // of the wave's group
		const uint4 *const of_group = (const uint4 *)head_base + (head_at + (group0 % 2 + group) / 2);
		return here(step, group0 + group) ? of_group[step * 4] : uint4{};
	};
	if (first_tile < tiles) head_next = head_of(0, 0);
#pragma unroll
	for (int i = 0; i < RAW_DEPTH - 1; i++) ask_next();
	wait_for_inputs();
	x += (i64)from * acts_row_bytes(RAW_K);
#pragma unroll
	for (int i = 0; i < RAW_DEPTH - 1; i++) {
		if (i % RAW_SLAB == 0) bring_next();
		copies_end();
	}

	// Where a lane's activations, their scales, its weights and theirs lie.
	const u32 act_at = shared_address(lds) + mine * RAW_CHUNK + (lane / 8 % 2 * 8 + lane % 8) * 128, act_piece = lane / 16 ^ lane % 8;
	const u32 pair_at = shared_address(lds) + mine * RAW_CHUNK + RAW_PAIRS;
	const u32 code_at = ring + lane / 8 % 2 * 512 + lane % 8 * 64, code_piece = lane / 16 ^ (lane / 2 & 3);
	int slot = 0, slab = 0, in_slab = 0;
	for (int tile = first_tile, round = 0; round < rounds; round++, tile += next_tile) {
		const bool busy = tile < tiles;
		for (int group = 0; group < RAW_GROUPS; group++) {
			Sums sums[4] = {};
			if (RAW_WHOLE) slot = 0, in_slab = 0, ask_slot = RAW_DEPTH - 1, ask_step = (RAW_DEPTH - 1) % RAW_STEPS; // as they are, and the compiler knows
#pragma unroll(RAW_WHOLE ? RAW_STEPS : 1)
			for (int step = 0; step < RAW_STEPS; step++) {
				copies_wait<RAW_DEPTH - 2>();
				if (in_slab == 0) {
					turn_pairs(slab);
					__syncthreads();
					bring_next();
				} else {
					wave_sync();
				}
				ask_next();
				copies_end();
				const u32 x_at = (slab * RAW_CHUNKS + in_slab * RAW_SPLIT) * RAW_CHUNK;
				if (busy) { // lanes of each half have two units of a row
#pragma unroll
					for (int i = 0; i < 2; i++) {
						const int unit = lane / 16 * 2 + i;
						f32 scale, min;
						head_scales(head_next, (group0 + group) % 2 * 4 + unit, scale, min);
						put_scales(scales + unit * 128 + lane % 16 * 8, scale, min);
					}
				}
				// The head of what comes next.
				if (step + 1 < RAW_STEPS) {
					if (busy) head_next = head_of(step + 1, group);
				} else if (group + 1 < RAW_GROUPS) {
					if (busy) head_next = head_of(0, group + 1);
				} else if (tile + next_tile < tiles) {
					const Place p = place(tile + next_tile);
					const int row = p.first + lane % 16 % RAW_OUT;
					head_base = p.w;
#if RAW_GATED
					head_base = lane % 16 < 8 ? w0 : w1;
#endif
					head_at = (u32)p.n * RAW_UNITS + (u32)(row < p.n ? row : p.n - 1) * (RAW_UNITS / 8) + group0 / 2;
					head_next = head_of(0, 0);
				}
				wave_sync();
				if (busy && here(step, group0 + group)) {
					u32 raw[2][4];
#pragma unroll
					for (int u = 0; u < 4; u++) {
						if (u % 2 == 0) matrices4(raw[u / 2], code_at + slot * 1024 + (code_piece ^ u) * 16);
						f32 scale[2][2], least[2][2], off[2][2];
						u32 w[2][2];
#pragma unroll
						for (int n = 0; n < 2; n++) {
							const u32 v = raw[u / 2][u % 2 * 2 + n];
							w[n][0] = v & 0x0f0f0f0f, w[n][1] = v >> 4 & 0x0f0f0f0f;
							const float4 s = four_at(scales + u * 128 + n * 64 + lane % 4 * 16);
							scale[n][0] = s.x, least[n][0] = s.y, scale[n][1] = s.z, least[n][1] = s.w;
#pragma unroll
							for (int r = 0; r < 2; r++) off[n][r] = scale[n][r] * -BYTES_MAGIC_VALUE;
						}
#pragma unroll
						for (int m = 0; m < RAW_TILES; m++) {
							u32 a[4];
							matrices4(a, act_at + x_at + m * 2048 + (act_piece ^ u * 2) * 16);
							const float4 d = four_at(pair_at + x_at + u * (RAW_ROWS * 8) + m * 128 + (lane / 4 ^ u * 2) * 16);
							const f32 scale_of[2] = {d.x, d.z}, sum_of[2] = {d.y, d.w};
#pragma unroll
							for (int n = 0; n < 2; n++) {
								const ByteSums dots = tokens_product(a, w[n][0], w[n][1]);
#pragma unroll
								for (int i = 0; i < 4 && m * 2 + i / 2 < RAW_EIGHTS; i++) {
									f32 &s = sums[u][m * 8 + i * 2 + n];
									s = fmaf(scale_of[i / 2], fmaf(of_bits((u32)dots.v[i]), scale[n][i % 2], off[n][i % 2]), s);
									s = fmaf(-least[n][i % 2], sum_of[i / 2], s);
								}
							}
						}
					}
				}
				slot = slot + 1 < RAW_DEPTH ? slot + 1 : 0;
				if (++in_slab == RAW_SLAB) in_slab = 0, slab = slab + 1 < RAW_SLABS ? slab + 1 : 0;
			}
			// Parts next to each other are added, then groups, then waves' groups.
			add_sums(sums[0], sums[1]);
			add_sums(sums[2], sums[3]);
			add_sums(sums[0], sums[2]);
			auto waiting_at = [=](int level, int q) { return (float4 *)(lds + RAW_X + wave * RAW_ROOM + RAW_DEPTH * 1024 + 512 + level * RAW_SUMS + (q * NSTF_WAVE + lane) * 16); };
			Sums &all = sums[0];
			int level = 0;
			for (; group >> level & 1; level++) {
#pragma unroll
				for (int q = 0; q < RAW_VALUES / 4; q++) {
					const float4 v = *waiting_at(level, q);
					all[4 * q] += v.x, all[4 * q + 1] += v.y, all[4 * q + 2] += v.z, all[4 * q + 3] += v.w;
				}
			}
			if (group + 1 < RAW_GROUPS || RAW_SPLIT > 1) {
				if (group + 1 == RAW_GROUPS) level = 0; // nothing waits any more but for other waves
#pragma unroll
				for (int q = 0; q < RAW_VALUES / 4; q++) *waiting_at(level, q) = make_float4(all[4 * q], all[4 * q + 1], all[4 * q + 2], all[4 * q + 3]);
				if (group + 1 < RAW_GROUPS) continue;
			}
			const Place p = place(tile);
			// What lane's values are: v of number q.
			auto write = [&](int q, const f32 *v) {
				const int token = q / 4 * 8 + lane / 4, feature = lane % 4 * 2 + q / 2 % 2;
#pragma unroll
				for (int n = 0; n < 2 / (1 + RAW_GATED); n++) {
					const int row = p.first + n * 8 + feature;
					if (token >= t || row >= p.n) continue;
					const i64 at = (i64)token * p.n + row;
#if RAW_GATED
					p.y[at] = gated(v[0], v[1]);
#else
					const f32 bias = p.bias ? p.bias[row] : 0, residual = p.residual ? p.residual[at] : 0;
					p.y[at] = v[n] + bias + residual;
#endif
				}
			};
			if (RAW_SPLIT == 1) {
				if (busy) {
#pragma unroll
					for (int q = 0; q < RAW_VALUES; q += 2) write(q, all + q);
				}
				continue;
			}
			__syncthreads();
			if (busy) {
				for (int q = mine * 2; q < RAW_VALUES; q += RAW_SPLIT * 2) {
					f32 v[RAW_SPLIT][2];
#pragma unroll
					for (int w = 0; w < RAW_SPLIT; w++) {
						const float2 f = *(const float2 *)((const u8 *)waiting_at(0, q / 4) + (w - mine) * RAW_ROOM + q % 4 * 4);
						v[w][0] = f.x, v[w][1] = f.y;
					}
#pragma unroll
					for (int width = 1; width < RAW_SPLIT; width *= 2)
#pragma unroll
						for (int w = 0; w < RAW_SPLIT; w += 2 * width) v[w][0] += v[w + width][0], v[w][1] += v[w + width][1];
					write(q, v[0]);
				}
			}
		}
	}
}
