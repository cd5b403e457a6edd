// Which pages blocks of a prompt's queries read: docs/attention.md. A block is the 64 rows of one sequence whose
// positions are a page, which is `page`; known = page - 1 pages are behind those that it reads in any case, the first
// and the newest two. With room = max(ceil(share * (page + 1)), least), of all of them:
//
//	weigh, head h: log[t][p] = ln 64 + cap(scale * dot(q, mean)) + 0.35 * scale^2 * dot(q^2, spread), 1 <= p < known
//	               weights[h][p] = sum over rows t of exp(log[t][p]) / (what is read in any case + sum of exp(log[t]) + sink)
//	choose, key-value head: the room - 3 pages of the most weight, summed over its query heads; of equal ones the first
//
// Pages without a finite summary, or weight, are read beyond the room if need be. What is read is listed in lists
// i32[blocks][kv_heads][stride + 1], for attendtiles.hip: how many pages, then they in their order; all where there is
// room for all, which weigh then leaves alone. weights f32[blocks][heads][stride], shares f64[kv_heads]. q f32[T][heads]
// [KV_D], finished, and its rows' keys are in the cache; summaries, of all known pages, as follow.hip's.
//
// Grid of weigh: x: blocks, the last first since they see most; y: heads. Waves of any size, a wave has MATRIX_FEATURES
// rows. LDS (dynamic): a tile of MATRIX_TILE_K pages' means, then their spreads, or of positions' keys. Summaries are
// read twice, as weights need the sum of all. Grid of choose: x: key-value heads, y: blocks; CHOOSE_WAVES waves.
// Deterministic: what is counted by atomics are whole numbers. Bound: matrix products, 8*KV_D operations for each row and page.
// Tolerance: exact: float32 attention's. Else scores within 2^-10 of the sum of |q||mean| and of |q^2||spread|.
#include "kv.hip"
#include "follow.hip"
#include "pagekeys.hip"
#include "tilequeries.hip"

#define BLOCK_ROWS 64
#define TILE_WAVES (BLOCK_ROWS / MATRIX_FEATURES)
#define THREADS (TILE_WAVES * NSTF_WAVE)
#define PIECE (NSTF_EXACT ? 4 : 8) // numbers of 16 bytes

// How many pages a block reads of a head, those that it reads in any case included.
NSTF_DEVICE int block_room(f64 share, int pages, int least_pages) {
	const int room = (int)ceil(share * pages);
	return room > least_pages ? room : least_pages;
}

// Sixteen bytes of a row of Count numbers, from number d0 on; zeros behind it.
NSTF_DEVICE f32 number_of(f32 x) { return x; }
NSTF_DEVICE f32 number_of(u16 x) { return half_value(x); }
template <int Count, typename E> NSTF_DEVICE Words4 row_piece(const E* row, int d0) {
	const bool inside = d0 < Count;
	if (Count % 8 == 0 && sizeof(E) * PIECE == 16) {
		const Words4 w = *(const Words4*)(row + (inside ? d0 : 0));
		return inside ? w : Words4{};
	}
	f32 x[PIECE];
#pragma unroll
	for (int i = 0; i < PIECE; i++) x[i] = d0 + i < Count ? number_of(row[d0 + i]) : 0.0f;
#if NSTF_EXACT
	return {bits_of(x[0]), bits_of(x[1]), bits_of(x[2]), bits_of(x[3])};
#else
	return {halves_of(x[0], x[1]), halves_of(x[2], x[3]), halves_of(x[4], x[5]), halves_of(x[6], x[7])};
#endif
}

// A tile of tokens, whose rows are row(token): nullptr where there is none.
template <int Count, typename Row> NSTF_DEVICE void fetch(u8* lds, Row row) {
	constexpr int pieces = KEY_TILES * 8;
	__syncthreads();
#pragma unroll 4
	for (int i = threadIdx.x; i < TILE * pieces; i += THREADS) {
		const int token = i / pieces, c = i % pieces;
		const auto* from = row(token);
		*(Words4*)(lds + c / 8 * (TILE * 128) + matrix_chunk(token, c % 8)) = from ? row_piece<Count>(from, c * PIECE) : Words4{};
	}
	__syncthreads();
}

// Adds the products of a wave's queries, or of their squares, times `by`, with the tile in LDS.
template <bool Squares> NSTF_DEVICE void multiply(MatrixSums (&s)[1][SCORES], const f32* const (&query)[MATRIX_ROWS], const u8* lds, f32 by, int width) {
#pragma unroll 1
	for (int j = 0; j < KEY_TILES; j++) {
#pragma unroll 1
		for (int b = 0; b < MATRIX_BLOCKS; b++) {
			const MatrixRuns w[1] = {query_runs<Squares>(query, j, b, by)};
			products(s, w, lds + j * (TILE * 128), b, width);
		}
	}
}

// f(score, row of the lane, token) for all that a lane has.
template <typename F> NSTF_DEVICE void each(MatrixSums (&s)[1][SCORES], F f) {
#pragma unroll
	for (int n = 0; n < SCORES; n++) {
#pragma unroll
		for (int i = 0; i < MATRIX_SUMS; i++) f(s[0][n].v[i], chain_row(i), n * MATRIX_TOKENS + matrix_token(i));
	}
}

NSTF_KERNEL void __launch_bounds__(THREADS)
nstf_weigh_pages(const f32* q, SINK_PARAMETER int width, int heads, int kv_heads, f32 scale, f32 softcap, KV_PARAMETERS, ROWS_PARAMETERS, const u16* summaries, const f64* shares, int least_pages, f32* weights, int stride) {
	extern __shared__ __align__(1024) u8 lds[];
	__shared__ f32 columns[TILE_WAVES][TILE];
	begin_early();
	const kv_cache cache = KV_CACHE;
	const int block = gridDim.x - 1 - blockIdx.x, head = blockIdx.y, kv_head = head / (heads / kv_heads), wave = threadIdx.x / NSTF_WAVE;
	const int page = positions[block * BLOCK_ROWS] / 64, known = page + 1 - FOLLOW_RECENT;
	if (block_room(shares[kv_head], page + 1, least_pages) - FOLLOW_RECENT >= known) return;
	const i32* table = pages + owners[block * BLOCK_ROWS] * (i64)max_pages;
	const f32 factor = ATTEND_CAP ? scale : scale * TILE_BASE;
	const f32* query[MATRIX_ROWS];
	int row[MATRIX_ROWS]; // of the block
	f32 top[MATRIX_ROWS], total[MATRIX_ROWS];
#pragma unroll
	for (int r = 0; r < MATRIX_ROWS; r++) {
		row[r] = wave * MATRIX_FEATURES + matrix_row(r);
		query[r] = q + ((i64)(block * BLOCK_ROWS + row[r]) * heads + head) * KV_D;
		top[r] = FOLLOW_NONE, total[r] = 0;
	}
	auto cap = [&](f32 z) { return ATTEND_CAP ? TILE_BASE * softcap * tanh_f32(z / softcap) : z; };
	// What a tile of pages is foretold to add up to.
	auto foretell = [&](MatrixSums (&s)[1][SCORES], int first) {
		auto summary = [&](int token, int at) -> const u16* {
			return first + token < known ? summaries + ((i64)table[first + token] * kv_heads + kv_head) * FOLLOW_SUMMARY + at : nullptr;
		};
		fetch<FOLLOW_D>(lds, [&](int token) { return summary(token, 0); });
		multiply<false>(s, query, lds, factor, width);
		if (ATTEND_CAP) each(s, [&](f32& z, int, int) { z = cap(z); });
		fetch<FOLLOW_D>(lds, [&](int token) { return summary(token, FOLLOW_D); });
		multiply<true>(s, query, lds, 0.35f * TILE_BASE * scale * scale, width);
		each(s, [&](f32& z, int, int token) { z = token < known - first ? z + 4.158883083f * TILE_BASE : -NSTF_INFINITY; });
	};
	// Adds what a tile weighs to the rows' totals.
	auto add = [&](MatrixSums (&s)[1][SCORES]) {
		f32 most[MATRIX_ROWS];
#pragma unroll
		for (int r = 0; r < MATRIX_ROWS; r++) most[r] = top[r];
		each(s, [&](f32 z, int r, int) { most[r] = wave_max_of(z, most[r]); });
#pragma unroll
		for (int r = 0; r < MATRIX_ROWS; r++) {
			most[r] = chain_max(most[r]);
			total[r] *= weight_of(top[r] - most[r]);
			top[r] = most[r];
		}
		each(s, [&](f32 z, int r, int) { total[r] += weight_of(z - top[r]); });
	};
	for (int i = 0; i < (1 + FOLLOW_RECENT) * (64 / TILE); i++) {
		const int n = i / (64 / TILE), of = n == 0 ? 0 : known + n - 1, first = i % (64 / TILE) * TILE;
		const i64 vector = kv_vector(table[of], kv_heads, kv_head, first);
		MatrixSums s[1][SCORES] = {};
		fetch<KV_D>(lds, [&](int token) { return (const kv_element*)cache.vector<true>(vector + token); });
		multiply<false>(s, query, lds, factor, width);
		each(s, [&](f32& z, int r, int token) { z = token <= row[r] - first + (of < page ? 64 : 0) ? cap(z) : -NSTF_INFINITY; });
		add(s);
	}
	for (int first = 1; first < known; first += TILE) {
		MatrixSums s[1][SCORES] = {};
		foretell(s, first);
		add(s);
	}
#pragma unroll
	for (int r = 0; r < MATRIX_ROWS; r++) {
		total[r] = chain_sum(total[r]);
#if ATTEND_SINKS
		const f32 sink = sinks[head] * TILE_BASE, most = wave_max_of(top[r], sink);
		total[r] = fmaf(weight_of(top[r] - most), total[r], weight_of(sink - most)), top[r] = most;
#endif
		total[r] = 1.0f / total[r];
	}
	weights += ((i64)block * heads + head) * stride;
	for (int first = 1; first < known; first += TILE) {
		MatrixSums s[1][SCORES] = {};
		foretell(s, first);
		each(s, [&](f32& z, int r, int) { z = weight_of(z - top[r]) * total[r]; });
		constexpr int each_row = MATRIX_SUMS / MATRIX_ROWS;
#pragma unroll
		for (int n = 0; n < SCORES; n++) {
#pragma unroll
			for (int i = 0; i < each_row; i++) {
				f32 sum = 0;
#pragma unroll
				for (int r = 0; r < MATRIX_ROWS; r++) sum += s[0][n].v[r * each_row + i];
				sum = chain_rows_sum(sum);
				if (matrix_row(0) == 0) columns[wave][n * MATRIX_TOKENS + matrix_token(i)] = sum;
			}
		}
		__syncthreads();
		for (int i = threadIdx.x; i < TILE; i += THREADS) {
			f32 sum = 0;
#pragma unroll
			for (int w = 0; w < TILE_WAVES; w++) sum += columns[w][i];
			if (first + i < known) weights[first + i] = sum;
		}
	}
}

NSTF_KERNEL void __launch_bounds__(CHOOSE_THREADS)
nstf_choose_block(int heads, int kv_heads, ROWS_PARAMETERS, const u16* summaries, const f64* shares, int least_pages, f32* weights, int stride, i32* lists, u64* counts) {
	__shared__ int ints[CHOOSE_WAVES];
	__shared__ u32 near[CHOOSE_KEPT];
	__shared__ choose_bins bins;
	bins.clear();
	begin_early();
	const int block = blockIdx.y, head = blockIdx.x, group = heads / kv_heads, lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	const int page = positions[block * BLOCK_ROWS] / 64, known = page + 1 - FOLLOW_RECENT;
	const i32* table = pages + owners[block * BLOCK_ROWS] * (i64)max_pages;
	weights += ((i64)block * heads + head * group) * stride;
	lists += ((i64)block * kv_heads + head) * (stride + 1);
	const int all = block_room(shares[head], page + 1, least_pages) - FOLLOW_RECENT, n = known - 1;
	__syncthreads();
	if (all >= known) {
		for (int i = threadIdx.x; i <= page; i += CHOOSE_THREADS) lists[1 + i] = i;
		if (threadIdx.x == 0) lists[0] = page + 1, atomicAdd(counts, (u64)(BLOCK_ROWS * (page + 1))), atomicAdd(counts + 1, (u64)(BLOCK_ROWS * (page + 1)));
		return;
	}
	for (int i = threadIdx.x; i < n; i += CHOOSE_THREADS) {
		f64 sum = 0;
		for (int g = 0; g < group; g++) sum += (f64)weights[(i64)g * stride + 1 + i];
		f32 w = (f32)(sum / (BLOCK_ROWS * group));
		if (summaries[((i64)table[1 + i] * kv_heads + head) * FOLLOW_SUMMARY + 3 * FOLLOW_D] != 0) w = NSTF_NAN;
		const u32 key = key_of(w);
		if (i < CHOOSE_KEPT) near[i] = key;
		else weights[1 + i] = w;
		if (key == CHOOSE_ODD) atomicAdd(&bins.odds, 1);
		else bins.add(0, key >> CHOOSE_FIRST & 255, key);
	}
	const kept_keys keys = {near, weights + 1};
	__syncthreads();
	const int odds = bins.odds, room = all - 1 < n ? all - 1 : n;
	choice_end end = {CHOOSE_ODD, odds};
	if (room > odds) end = choice_of(bins, keys, n, room, 0);

	// Equal keys by their order. Counts of keys above in the upper half of a word, of equal ones in the lower.
	int above = 0, equal = 0;
	for (int base = 0; base < n; base += CHOOSE_THREADS) {
		const int i = base + (int)threadIdx.x;
		const u32 key = i < n ? keys[i] : 0;
		const bool higher = i < n && key > end.key, same = i < n && key == end.key;
		const u64 lower = (1ull << lane) - 1, highers = wave_ballot(higher), sames = wave_ballot(same);
		__syncthreads();
		if (lane == 0) ints[wave] = __popcll(highers) << 16 | __popcll(sames);
		__syncthreads();
		int before = __popcll(highers & lower) << 16 | __popcll(sames & lower), through = 0;
#pragma unroll
		for (int w = 0; w < CHOOSE_WAVES; w++) {
			before += w < wave ? ints[w] : 0;
			through += ints[w];
		}
		const int rank = equal + (before & 0xffff);
		if (higher || same && rank < end.some) lists[2 + above + (before >> 16) + (rank < end.some ? rank : end.some)] = 1 + i;
		above += through >> 16, equal += through & 0xffff;
	}
	const int chosen = above + (equal < end.some ? equal : end.some);
	if (threadIdx.x != 0) return;
	const int read = 1 + chosen + FOLLOW_RECENT;
	lists[0] = read, lists[1] = 0;
	for (int i = 0; i < FOLLOW_RECENT; i++) lists[2 + chosen + i] = known + i;
	atomicAdd(counts, (u64)(BLOCK_ROWS * read)), atomicAdd(counts + 1, (u64)(BLOCK_ROWS * (page + 1)));
}
