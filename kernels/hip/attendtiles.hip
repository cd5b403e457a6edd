// Attention of many rows over their sequences' cached keys and values: prompts.
//
//	for t, h: z[p] = cap(scale * dot(q[t][h], key[p])) for lo <= p <= position[t]
//	          out[t][h] = sum of exp(z[p]) * value[p], over sum of exp(z[p]) (+ exp(sinks[h]))
//	cap(z) = softcap * tanh(z/softcap) with ATTEND_CAP 1; lo = position+1-window, or 0, or with ATTEND_CHUNKED 1 the window's largest multiple up to position;
//	sinks with ATTEND_SINKS 1
//
// q f32[T][heads][KV_D], out f32[T][heads][KV_VALUE]; the cache as in kv.hip. Rows of one sequence are
// neighbours, in any number; a block that has rows of several goes through their
// positions one after the other. With NSTF_EXACT everything is float32 in plain
// loops; else q, keys, weights and values are halves and sums float32.
//
// width is 4096, more than any count of tiles: as an argument it keeps products in
// basic blocks of their own (MATRIX_APART in matrix.hip).
//
// Grid: x: TILE_ROWS rows, the last first since they see most; y: heads; z:
// ATTEND_COLUMNS numbers of a head's output. Waves of any size, a wave has
// MATRIX_FEATURES rows. LDS (dynamic): a tile of MATRIX_TILE_K positions' keys,
// and of values, transposed.
//
// Phases, for each tile of positions: (1) all threads fetch keys and values,
// zeros beyond the sequence; (2) scores by the matrix unit, masked; (3) the
// running maximum, weights, and what was summed before corrected; (4) the
// weights, which stay in registers, times the values by the matrix unit.
// Deterministic.
//
// Bound: matrix products, 4*KV_D operations for each row and position.
// Tolerance: exact: float32 attention's. Else: scores within 2^-10 of the sum of
// |q||key|, weights and values within 2^-11. An infinity or a NaN among the
// values of a tile spoils all rows of the block, also those that do not see it.
//
// With ATTEND_LISTED 1 a block is the TILE_ROWS = 64 rows of one sequence whose positions are a page, and reads the
// pages of lists i32[blocks][kv_heads][list_stride] (promptpages.hip): their number, then the pages in their order.
//
// Keys and values in codes (KV_CODED) are turned: q was turned before (turnheads.hip),
// and out is what is turned back. A tile that is near for some rows (kv_is_near) and not for
// others is fetched twice, once for each.
//
// Keys and values that have scales (KV_SCALED), or lie in the host's memory (KV_HOST) where no lists say what is read,
// come spread (attendspread.hip), in pieces of sequences as there is room for: each launch takes what its pieces have, in their order. A row whose positions are in several has what
// it has summed up in out, and its maximum and each lane's share of the denominator in kept, f32[block][2 *
// MATRIX_ROWS][thread], until the next one: its bits do not depend on where pieces end.
#include "functions.hip"
#include "kv.hip"
#define TILES_SPREAD (KV_SCALED || KV_HOST && !ATTEND_LISTED)
#if TILES_SPREAD
#include "spread.hip"
#define PIECES_PARAMETERS , const spread_element *far_keys, const spread_element *far_values, f32 *kept, SPREAD_PARAMETERS
#else
#define PIECES_PARAMETERS
#endif
#if ATTEND_LISTED
#define LISTS_PARAMETERS , const i32 *lists, int list_stride
#else
#define LISTS_PARAMETERS
#endif
#include "tilequeries.hip"

#define TILE_WAVES (TILE_ROWS / MATRIX_FEATURES)
#define THREADS (TILE_WAVES * NSTF_WAVE)
#define OUTPUTS (ATTEND_COLUMNS / MATRIX_TOKENS)
#define PIECE (NSTF_EXACT ? 4 : 8) // numbers of 16 bytes
// Queries stay in registers where there are enough: WMMA11's copies take twice as many.
#define QUERIES_HELD (!MATRIX_PLAIN && KEY_TILES <= 2 && NSTF_MATRIX != NSTF_MATRIX_WMMA11)
// Else they are loaded again for each tile, and a tile at a time lest all of them are.
constexpr int UNROLL_KEYS = QUERIES_HELD ? 8 : 1;
constexpr int UNROLL_ROWS = 4, UNROLL_TURNED = 2; // pieces under way at once
#define TILE_NONE -3.4028234663852886e38f

// With STAGES 2 keys and values are copied while the tile before is worked on: halves that lie in whole pieces,
// where the machine has such copies.
#define KEY_BYTES (KEY_TILES * TILE * 128)
#define VALUE_TILES ((ATTEND_COLUMNS + TILE - 1) / TILE)
#define VALUE_BYTES (CHAIN_TURNS ? VALUE_TILES * TILE * 128 : ATTEND_COLUMNS * 128)

// Eight or four numbers as they lie in LDS.
struct alignas(16) piece {
	u32 v[4];
};

// Whether all numbers that blocks ask for lie before KV_D: of keys whole tiles, of
// values whole columns, brought by whole tiles.
constexpr bool WHOLE_KEYS = KV_D % TILE == 0;
constexpr bool WHOLE_VALUES = WHOLE_KEYS && KV_VALUE % ATTEND_COLUMNS == 0 && (!CHAIN_TURNS || ATTEND_COLUMNS % TILE == 0);

// What a tile is read of: vectors of the cache, from one on, or of what was spread; of codes
// those in half precision, of which there are no whole pieces where KV_D is odd.
struct tile_source {
	const kv_cache& cache;
#if TILES_SPREAD
	const spread_element *far_keys, *far_values;
#endif
	bool near;
	i64 first;
#if TILES_SPREAD
	template <bool Key> NSTF_MEMBER const spread_element* far(int p) const { return (Key ? far_keys : far_values) + (first + p) * SPREAD_STRIDE; }
#endif
#if STAGES == 2
	template <bool Key> NSTF_MEMBER const u16* halves(int p) const {
#if KV_CODED
		return near ? cache.near<Key>(first + p) : far<Key>(p);
#elif TILES_SPREAD
		return far<Key>(p);
#else
		return cache.vector<Key>(first + p);
#endif
	}
#endif
};

#if KV_CODED
// The same as load_piece of a vector in half precision.
NSTF_DEVICE piece near_piece(const u16* from, int d0) {
	piece p;
#if !NSTF_EXACT && KV_D % 8 == 0
	p = *(const piece*)(from + (d0 < KV_D ? d0 : 0));
#pragma unroll
	for (int i = 0; i < 4; i++) p.v[i] = d0 < KV_D ? p.v[i] : 0;
#else
	f32 x[PIECE];
#pragma unroll
	for (int i = 0; i < PIECE; i++) x[i] = d0 + i < KV_D ? half_value(from[d0 + i]) : 0.0f;
#pragma unroll
	for (int i = 0; i < 4; i++) {
#if NSTF_EXACT
		p.v[i] = bits_of(x[i]);
#else
		p.v[i] = halves_of(x[2 * i], x[2 * i + 1]);
#endif
	}
#endif
	return p;
}
#endif

// Numbers d0 .. d0+PIECE-1 of a vector, zeros behind KV_D.
template <bool Key> NSTF_DEVICE piece load_piece(const tile_source& s, int position, int d0) {
	const bool whole = Key ? WHOLE_KEYS : WHOLE_VALUES;
	piece p;
#if TILES_SPREAD
#if KV_CODED
	if (s.near) return near_piece(s.cache.near<Key>(s.first + position), d0);
#endif
	const bool inside = whole || d0 < SPREAD_STRIDE;
	p = *(const piece*)(s.far<Key>(position) + (inside ? d0 : 0));
#pragma unroll
	for (int i = 0; i < 4; i++) p.v[i] = inside ? p.v[i] : 0;
#else
	const kv_element* from = s.cache.vector<Key>(s.first + position);
#if KV_FORMAT == 1 && !NSTF_EXACT && KV_D % 8 == 0
	const bool inside = whole || d0 < KV_D;
	p = *(const piece*)(from + (inside ? d0 : 0));
#pragma unroll
	for (int i = 0; i < 4; i++) p.v[i] = inside ? p.v[i] : 0;
#else
	f32 x[PIECE];
#pragma unroll
	for (int i = 0; i < PIECE; i++) {
		const bool inside = whole || d0 + i < KV_D;
		const kv_element e = from[inside ? d0 + i : 0];
#if KV_FORMAT == 0
		x[i] = e;
#else
		x[i] = half_value(e);
#endif
		x[i] = inside ? x[i] : 0.0f;
	}
#pragma unroll
	for (int i = 0; i < 4; i++) {
#if NSTF_EXACT
		p.v[i] = bits_of(x[i]);
#else
		p.v[i] = halves_of(x[2 * i], x[2 * i + 1]);
#endif
	}
#endif
#endif
	return p;
}

// The tile's positions lo <= p < hi, counted from its first, are seen by rows of
// the block. Others may hold anything: their scores are masked, their values are
// zeroed. All can be read, since pages are whole.
struct reach {
	int lo, hi;
	NSTF_MEMBER bool has(int p) const { return p >= lo && p < hi; }
};

NSTF_DEVICE piece zero_unless(bool keep, piece p) {
#pragma unroll
	for (int i = 0; i < 4; i++) p.v[i] = keep ? p.v[i] : 0;
	return p;
}

// Rows of a tile: numbers column on of each position, Tiles*TILE of them.
template <bool Key, int Tiles> NSTF_DEVICE void fetch_rows(u8* to, const tile_source& s, reach r, int column) {
	constexpr int pieces = Tiles * 8;
#pragma unroll UNROLL_ROWS
	for (int i = threadIdx.x; i < TILE * pieces; i += THREADS) {
		const int p = i / pieces, c = i % pieces, d0 = column + c * PIECE;
		u8* at = to + c / 8 * (TILE * 128) + matrix_chunk(p, c % 8);
#if STAGES == 2
		const bool inside = d0 < KV_D;
		matrix_copy(at, s.halves<Key>(p) + (inside ? d0 : 0), inside && (Key || r.has(p)));
#else
		const piece x = load_piece<Key>(s, p, d0);
		*(piece*)at = Key ? x : zero_unless(r.has(p), x);
#endif
	}
}

// Values turned: a row for each number of a head. Lanes take neighbouring
// positions, which makes their words neighbours too.
NSTF_DEVICE void fetch_turned(u8* values, const tile_source& s, reach r, int column) {
#pragma unroll UNROLL_TURNED
	for (int i = threadIdx.x; i < 32 * (ATTEND_COLUMNS / PIECE); i += THREADS) {
		const int d = i / 32 * PIECE;
		auto load = [&](int p) { return zero_unless(r.has(p), load_piece<false>(s, p, column + d)); };
#if NSTF_EXACT
		const int p = i % 32;
		const piece x = load(p);
#pragma unroll
		for (int j = 0; j < 4; j++) *(u32*)(values + matrix_chunk(d + j, p / 4) + p % 4 * 4) = x.v[j];
#else
		const int p = i % 32 * 2, place = chain_place(p);
		const piece x = load(p), y = load(p + 1);
#pragma unroll
		for (int j = 0; j < 8; j++) {
			const u32 a = j % 2 ? x.v[j / 2] >> 16 : x.v[j / 2] & 0xffff, b = j % 2 ? y.v[j / 2] & 0xffff0000 : y.v[j / 2] << 16;
			*(u32*)(values + matrix_chunk(d + j, place / 8) + place % 8 * 2) = a | b;
		}
#endif
	}
}

NSTF_DEVICE void fetch(u8* stage, const tile_source& s, reach r, int column) {
	fetch_rows<true, KEY_TILES>(stage, s, r, 0);
#if CHAIN_TURNS
	fetch_rows<false, VALUE_TILES>(stage + KEY_BYTES, s, r, column);
#else
	fetch_turned(stage + KEY_BYTES, s, r, column);
#endif
}

struct sums {
	MatrixSums acc[1][OUTPUTS];
	f32 top[MATRIX_ROWS], total[MATRIX_ROWS];
};

// Turns scores into weights: lo and hi are what the lane's rows see, counted
// from the tile's first position.
NSTF_DEVICE void weigh(MatrixSums (&s)[1][SCORES], sums& all, const int (&lo)[MATRIX_ROWS], const int (&hi)[MATRIX_ROWS], f32 scale, f32 softcap) {
	f32 top[MATRIX_ROWS];
#pragma unroll
	for (int r = 0; r < MATRIX_ROWS; r++) top[r] = all.top[r];
#pragma unroll
	for (int n = 0; n < SCORES; n++) {
#pragma unroll
		for (int i = 0; i < MATRIX_SUMS; i++) {
			const int r = chain_row(i), p = n * MATRIX_TOKENS + matrix_token(i);
			f32 z = s[0][n].v[i];
			if (NSTF_EXACT) z *= scale;
			if (ATTEND_CAP) z = TILE_BASE * softcap * tanh_f32(z / softcap);
			z = p >= lo[r] && p < hi[r] ? z : -NSTF_INFINITY;
			s[0][n].v[i] = z;
			top[r] = wave_max_of(z, top[r]);
		}
	}
	f32 correction[MATRIX_ROWS];
#pragma unroll
	for (int r = 0; r < MATRIX_ROWS; r++) {
		top[r] = chain_max(top[r]);
		correction[r] = weight_of(all.top[r] - top[r]);
		all.top[r] = top[r];
		all.total[r] *= correction[r];
	}
#pragma unroll
	for (int n = 0; n < SCORES; n++) {
#pragma unroll
		for (int i = 0; i < MATRIX_SUMS; i++) {
			const f32 w = weight_of(s[0][n].v[i] - top[chain_row(i)]);
			s[0][n].v[i] = w;
			all.total[chain_row(i)] += w;
		}
	}
#pragma unroll
	for (int n = 0; n < OUTPUTS; n++) {
#pragma unroll
		for (int i = 0; i < MATRIX_SUMS; i++) all.acc[0][n].v[i] *= correction[chain_row(i)];
	}
}

// The least or the greatest of a wave's numbers.
NSTF_DEVICE int wave_extreme(int v, bool greatest) {
#pragma unroll
	for (int m = NSTF_WAVE / 2; m > 0; m /= 2) {
		const int other = wave_xor(v, m);
		if (greatest ? other > v : other < v) v = other;
	}
	return v;
}

NSTF_KERNEL void __launch_bounds__(THREADS)
nstf_attend_tiles(const f32* q, f32* out, SINK_PARAMETER int width, int rows, int heads, int kv_heads, int window, f32 scale, f32 softcap, KV_PARAMETERS, ROWS_PARAMETERS PIECES_PARAMETERS LISTS_PARAMETERS) {
	extern __shared__ __align__(1024) u8 lds[];
	begin_early();
	const kv_cache cache = KV_CACHE;
	const int head = blockIdx.x, kv_head = head / (heads / kv_heads), column = blockIdx.z * ATTEND_COLUMNS;
	const int first_row = (gridDim.y - 1 - blockIdx.y) * TILE_ROWS, stop = first_row + TILE_ROWS < rows ? first_row + TILE_ROWS : rows;
	const f32 factor = NSTF_EXACT ? 1.0f : ATTEND_CAP ? scale : scale * TILE_BASE;

	const f32* query[MATRIX_ROWS];
	int row[MATRIX_ROWS], position[MATRIX_ROWS];
#if TILES_SPREAD
	const spread_piece pieces[SPREAD_PIECES] = SPREAD_GIVEN;
	bool begun[MATRIX_ROWS], ends[MATRIX_ROWS];
	kept += (((i64)blockIdx.z * gridDim.x + head) * gridDim.y + blockIdx.y) * (2 * MATRIX_ROWS * THREADS) + threadIdx.x;
#endif
#pragma unroll
	for (int r = 0; r < MATRIX_ROWS; r++) {
		row[r] = first_row + (int)(threadIdx.x / NSTF_WAVE) * MATRIX_FEATURES + matrix_row(r);
		position[r] = row[r] < rows ? positions[row[r]] : -1;
#if TILES_SPREAD
		const spread_piece mine = piece_of(pieces, position[r] >= 0 ? owners[row[r]] : -2);
		const int seen = first_seen(position[r] + 1, window);
		begun[r] = seen < mine.from, ends[r] = position[r] < mine.to;
		if (seen >= mine.to || position[r] < mine.from) position[r] = -1; // in another launch
#endif
		query[r] = position[r] >= 0 ? q + ((i64)row[r] * heads + head) * KV_D : nullptr;
	}
#if QUERIES_HELD
	MatrixRuns held[KEY_TILES][MATRIX_BLOCKS];
#pragma unroll
	for (int j = 0; j < KEY_TILES; j++) {
#pragma unroll
		for (int b = 0; b < MATRIX_BLOCKS; b++) held[j][b] = query_runs(query, j, b, factor);
	}
#endif
	sums all;
#pragma unroll
	for (int r = 0; r < MATRIX_ROWS; r++) all.top[r] = TILE_NONE, all.total[r] = 0;
#pragma unroll
	for (int n = 0; n < OUTPUTS; n++) all.acc[0][n] = MatrixSums{};
#if TILES_SPREAD
#pragma unroll
	for (int r = 0; r < MATRIX_ROWS; r++) {
		if (position[r] < 0 || !begun[r]) continue;
		all.top[r] = kept[2 * r * THREADS], all.total[r] = kept[(2 * r + 1) * THREADS];
		const f32* was = out + ((i64)row[r] * heads + head) * KV_VALUE + column;
#pragma unroll
		for (int n = 0; n < OUTPUTS; n++) {
#pragma unroll
			for (int i = 0; i < MATRIX_SUMS; i++) {
				const int d = n * MATRIX_TOKENS + matrix_token(i);
				if (chain_row(i) == r && column + d < KV_VALUE) all.acc[0][n].v[i] = was[d];
			}
		}
	}
#endif

	for (int from = first_row, to; from < stop; from = to) {
		const int owner = owners[from];
		int first = 0x7fffffff, last = 0, least = 0x7fffffff; // that any row of the sequence sees, and their first position
		for (to = from; to < stop && owners[to] == owner; to++) {
			const int hi = positions[to] + 1, lo = first_seen(hi, window);
			if (hi <= 0) continue;
			first = lo < first ? lo : first;
			last = hi > last ? hi : last;
			least = hi - 1 < least ? hi - 1 : least;
		}
		int lo[MATRIX_ROWS], hi[MATRIX_ROWS], low = 0x7fffffff, high = 0;
#pragma unroll
		for (int r = 0; r < MATRIX_ROWS; r++) {
			hi[r] = row[r] >= from && row[r] < to ? position[r] + 1 : 0;
			lo[r] = first_seen(hi[r], window);
			if (hi[r] == 0) continue;
			low = lo[r] < low ? lo[r] : low;
			high = hi[r] > high ? hi[r] : high;
		}
		low = wave_extreme(low, false);
		high = wave_extreme(high, true);
		const i32* table = pages + owner * (i64)max_pages;
#if TILES_SPREAD
		const spread_piece mine = piece_of(pieces, owner);
		const int end = last < mine.to ? last : mine.to;
		first = first > mine.from ? first : mine.from;
#elif ATTEND_LISTED
		const i32* list = lists + ((i64)(gridDim.y - 1 - blockIdx.y) * kv_heads + kv_head) * list_stride;
		const int end = 64 * list[0];
#else
		const int end = last;
#endif
		first = first < end ? first : end; // none may have been used
		// Of codes each tile comes twice, for rows that see it in half precision and for others.
#if ATTEND_LISTED
		auto tile_of = [&](int i) { return 64 * list[1 + i / 64] + i % 64; };
#else
		auto tile_of = [](int i) { return KV_CODED ? i / (2 * TILE) * TILE : i; };
#endif
		auto is_near = [](int i) { return KV_CODED && i / TILE % 2 == 0; };
#if KV_CODED
		auto near_end_of = [](int p) { return p < 64 * KV_FIRST ? 0x7fffffff : kv_near_end(p); };
#endif
		// The first from i on that a row wants.
		auto wanted = [&](int i) {
#if KV_CODED
			for (; i < end * 2; i += TILE)
				if (is_near(i) ? least < near_end_of(tile_of(i)) : last > near_end_of(tile_of(i))) break;
#endif
			return i;
		};
		auto bring = [&](int i, int stage) {
			if (i >= end * (KV_CODED + 1)) return;
			const int p = tile_of(i);
			const bool near = is_near(i);
#if TILES_SPREAD
			const tile_source s = {cache, far_keys, far_values, near, kv_vector(near ? table[kv_place(p, max_pages, true)] : p / 64 + mine.base, kv_heads, kv_head, p)};
#else
			const tile_source s = {cache, near, kv_vector(table[p / 64], kv_heads, kv_head, p)};
#endif
			fetch(lds + stage * (KEY_BYTES + VALUE_BYTES), s, ATTEND_LISTED ? reach{0, TILE} : reach{first - p, end - p}, column);
		};
		int stage = 0, i = wanted(first / TILE * TILE * (KV_CODED + 1));
		__syncthreads();
		if (STAGES == 2) bring(i, 0);
		for (int after; i < end * (KV_CODED + 1); i = after, stage ^= STAGES - 1) {
			after = wanted(i + TILE);
			const int p = tile_of(i);
#if KV_CODED
			const int near_end = near_end_of(p);
			const bool near = is_near(i);
#endif
#if STAGES == 2
			matrix_copy_end();
			bring(after, stage ^ 1);
			matrix_copy_end();
			matrix_copy_wait<1>();
#else
			bring(i, 0);
#endif
			__syncthreads();
			const u8 *keys = lds + stage * (KEY_BYTES + VALUE_BYTES), *values = keys + KEY_BYTES;
			if (p < high && p + TILE > low) { // for the whole wave
				MatrixSums s[1][SCORES] = {};
#pragma unroll UNROLL_KEYS
				for (int j = 0; j < KEY_TILES; j++) {
#pragma unroll UNROLL_KEYS
					for (int b = 0; b < MATRIX_BLOCKS; b++) {
#if QUERIES_HELD
						const MatrixRuns w[1] = {held[j][b]};
#else
						const MatrixRuns w[1] = {query_runs(query, j, b, factor)};
#endif
						products(s, w, keys + j * (TILE * 128), b, width);
					}
				}
				int a[MATRIX_ROWS], e[MATRIX_ROWS];
#pragma unroll
				for (int r = 0; r < MATRIX_ROWS; r++) {
					a[r] = lo[r] - p, e[r] = hi[r] - p;
#if KV_CODED
					if ((hi[r] <= near_end) != near) e[r] = 0;
#endif
				}
				weigh(s, all, a, e, scale, softcap);
#pragma unroll
				for (int b = 0; b < MATRIX_BLOCKS; b++) {
					const MatrixRuns w[1] = {chain_weights(s[0], b)};
#if CHAIN_TURNS
					chain_products(all.acc, w, values, b);
#else
					products(all.acc, w, values, b, width);
#endif
				}
			}
			__syncthreads();
		}
	}
#pragma unroll
	for (int r = 0; r < MATRIX_ROWS; r++) {
#if ATTEND_SINKS
		const f32 sink = sinks[head] * TILE_BASE, most = wave_max_of(all.top[r], sink), c = weight_of(all.top[r] - most);
		const f32 inverse = c / fmaf(c, chain_sum(all.total[r]), weight_of(sink - most));
#else
		const f32 total = chain_sum(all.total[r]), inverse = total == 0 ? 0.0f : 1.0f / total;
#endif
		if (position[r] < 0) continue;
#if TILES_SPREAD
		if (!ends[r]) kept[2 * r * THREADS] = all.top[r], kept[(2 * r + 1) * THREADS] = all.total[r];
		const f32 factor = ends[r] ? inverse : 1.0f;
#else
		const f32 factor = inverse;
#endif
		f32* to = out + ((i64)row[r] * heads + head) * KV_VALUE + column;
#pragma unroll
		for (int n = 0; n < OUTPUTS; n++) {
#pragma unroll
			for (int i = 0; i < MATRIX_SUMS; i++) {
				const int d = n * MATRIX_TOKENS + matrix_token(i);
				if (chain_row(i) == r && column + d < KV_VALUE) to[d] = all.acc[0][n].v[i] * factor;
			}
		}
	}
}
