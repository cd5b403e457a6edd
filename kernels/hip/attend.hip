// Attention of single rows over their sequences' cached keys and values, the
// positions spread over waves and blocks ("decoding").
//
//	for t, h: z[p] = cap(scale * dot(q[t][h], key[p])) for lo <= p <= position[t]
//	          out[t][h] = sum of exp(z[p]) * value[p], over sum of exp(z[p]) (+ exp(sinks[h]))
//	cap(z) = softcap * tanh(z/softcap) with ATTEND_CAP 1; lo = position+1-window, or 0, or with ATTEND_CHUNKED 1 the window's largest multiple up to position;
//	sinks with ATTEND_SINKS 1
//
// With ATTEND_TURN 1 the work of rope.hip is done on the way: q, k, v are what the
// products gave, rows q_stride and k_stride apart, and the row's own key and
// value go into the cache here, unless ROPE_SHARED says that they are there. Rows are then of different sequences. ATTEND_SETTLED
// says that all else that is read of the cache, and positions, owners and pages, was
// there before the launch before this one began: it is read while that one ends.
//
// q f32[T][heads][KV_D], out f32[T][heads][KV_VALUE]; the cache as in kv.hip, of which
// latents (KV_LATENT) are read once, as keys and as values. ATTEND_GROUP query heads
// share a key-value head; a wave takes ATTEND_QUERIES of them at once, so that a
// key or value is read from memory once for all (ATTEND_PARTS times in groups
// over 8). Positions outside the reach are not read. A row that sees nothing, or
// scores of -Inf only, gives zeros; a NaN or +Inf among the scores gives NaN; a
// row whose position is negative is left alone, and with ATTEND_BELOW one at so many or more.
//
// Grid: x: blocks that share the positions of y: a key-value head's part, of z:
// a row. ATTEND_WAVES waves of any size. A block takes ATTEND_LEAST positions at
// least, and of a long sequence as many as make ATTEND_SPREAD blocks; blocks beyond the
// length end at once, so that the grid may be that of a longer sequence. LDS: what attend.go computes, and 768 bytes for each query.
//
// Phases of a wave, for each of its tiles of 16 positions or fewer: (1) scores:
// teams of LANES lanes hold a key between them, and add up their products so
// that each lane ends with another score; (2) weights, a lane a position; (3)
// values, as keys. Values are loaded before the scores, the next tile's keys
// before the weights: what decides at few positions is the latency of loads, at
// many how much is in flight. Then (4) the block's waves are put
// together in LDS, and (5) blocks through memory, by the one that counts last.
// Deterministic: everything is added in a fixed order; the counter only chooses
// who adds.
//
// Bound: the bytes of keys and values; a multiplication for each stored number
// and query, and for each key one in LANES of a butterfly exchange.
// Tolerance: that of float32 attention over the numbers as stored.
//
// Keys and values in codes (KV_CODED) are turned: queries are turned in LDS first, and
// what was summed is turned back at last. A lane takes runs of 16 codes, or 8. Tiles of
// pages in half precision (kv_is_near) are read when they are used, not a tile ahead: they
// are few, and their registers would be taken from queries.
#include "attendcore.hip"
#include "attendturn.hip"

#ifndef ATTEND_BELOW
#define ATTEND_BELOW 0
#endif
#ifndef ATTEND_RESIDENT // blocks of a unit that registers are limited for (CUDA)
#define ATTEND_RESIDENT 1
#endif

NSTF_KERNEL void __launch_bounds__(THREADS, ATTEND_RESIDENT)
nstf_attend(const f32* q, f32* out, TURN_PARAMETERS SINK_PARAMETER int heads, int kv_heads, int window, f32 scale, f32 softcap, KV_PARAMETERS, ROWS_PARAMETERS, u32* counters, f32* records) {
	alignas(16) __shared__ f32 lds[most(ATTEND_WAVES * LDS_WAVE, most(ATTEND_WAVES * ATTEND_RECORD, (ATTEND_TURN || KV_CODED) * (ATTEND_QUERIES + 2) * KV_D))];
	__shared__ stored_pair newest;
	__shared__ merging merge;
	__shared__ bool last;
	let_next_begin();
	if (!ATTEND_SETTLED) wait_for_inputs();
	const kv_cache cache = KV_CACHE;
	const int row = blockIdx.z, position = load_from(positions + row), head = blockIdx.y / ATTEND_PARTS, part = blockIdx.y % ATTEND_PARTS;
	const int lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	if (position < 0 || ATTEND_BELOW && position >= ATTEND_BELOW) return;
	const int lo = first_seen(position + 1, window);
	const int first_tile = lo / TILE, tiles = position / TILE + 1 - first_tile;
	const int each = most(ATTEND_LEAST / TILE, (tiles + ATTEND_SPREAD - 1) / ATTEND_SPREAD), blocks = (tiles + each - 1) / each;
	if (blockIdx.x >= blocks) return;
	const int end = first_tile + least(tiles, (blockIdx.x + 1) * each);
	int at = first_tile + blockIdx.x * each + wave;
	pages += load_from(owners + row) * (i64)max_pages;
	const i64 first_head = (i64)row * heads + head * ATTEND_GROUP + part * ATTEND_QUERIES, first_query = first_head * KV_D;
	const int here = least(ATTEND_QUERIES, ATTEND_GROUP - part * ATTEND_QUERIES); // queries of this part

	f32* own = lds + wave * LDS_WAVE;
	keys_loaded key;
	values_loaded value;
	scored s;
	tile now, next;
	// The page of a tile is looked up a tile ahead of its use.
#if KV_CODED
	auto near_of = [&](int i) { return kv_is_near(position, i * TILE); };
#else
	auto near_of = [&](int) { return false; };
#endif
	auto page_of = [&](int i) { return i < end ? load_from(pages + kv_place(i * TILE, max_pages, near_of(i))) : 0; };
	auto tile_of = [&](int i, int page) {
		tile t = {0, 0, 0, -1, false};
		if (i < end) t = {kv_vector(page, kv_heads, head, i * TILE), most(lo - i * TILE, 0), least(position + 1 - i * TILE, TILE), ATTEND_OWN ? position - i * TILE : -1, near_of(i)};
		return t;
	};
	now = tile_of(at, page_of(at));
	int page = page_of(at + ATTEND_WAVES);
#if ATTEND_SETTLED
	load_cached<true>(key, cache, now, lane);
	load_cached<false>(value, cache, now, lane);
	wait_for_inputs();
#endif
#if ATTEND_TURN
	const turning how = TURNING;
	turn_heads(lds, newest, how, q + (i64)row * q_stride + (head * ATTEND_GROUP + part * ATTEND_QUERIES) * KV_D, row, head, here,
		!ROPE_SHARED && blockIdx.x + 1 == blocks, part == 0, cache, kv_vector(pages[kv_place(position, max_pages, false)], kv_heads, head, position), kv_vector(pages[kv_place(position, max_pages, KV_CODED)], kv_heads, head, position));
	const f32* from = lds;
#elif KV_CODED
	for (int h = wave; h < here; h += ATTEND_WAVES) {
		for (int i = lane; i < KV_D; i += NSTF_WAVE) lds[h * KV_D + i] = q[first_query + h * KV_D + i];
		kv_turn<KV_D>(lds + h * KV_D);
	}
	__syncthreads();
	const f32* from = lds;
#else
	const f32* from = q + first_query;
#endif
	if (ATTEND_SETTLED) {
		load_newest<true>(key, newest, now, lane);
		load_newest<false>(value, newest, now, lane);
	} else {
		load<true>(key, cache, newest, now, lane);
	}
	queries query;
	value_sums sum;
	load_queries(query, sum, from, here, lane);
	if (ATTEND_TURN || KV_CODED) __syncthreads(); // the queries' room is used again
	totals all;
	clear_totals(all);

	for (bool loaded = ATTEND_SETTLED; at < end; at += ATTEND_WAVES, loaded = false) {
#if KV_LATENT
		value = key;
#else
		if (!loaded) load<false>(value, cache, newest, now, lane);
#endif
		score_tile(s, own, key, cache, newest, now, query, lane);
		next = tile_of(at + ATTEND_WAVES, page);
		page = page_of(at + 2 * ATTEND_WAVES);
		load<true>(key, cache, newest, next, lane);
		wave_sync();
		weigh(s, own, all, cache, newest, now, lane, scale, softcap);
		accumulate_tile(s, sum, value, cache, newest, now, own, lane);
		wave_sync();
		now = next;
	}

	__syncthreads();
	put_record(lds, sum, all, wave, lane);
	auto answer = [&](int g, int d, f32 acc, f32 top, f32 s) {
#if ATTEND_SINKS
		const f32 sink = sinks[head * ATTEND_GROUP + part * ATTEND_QUERIES + least(g, here - 1)], most = wave_max_of(top, sink), c = exp_f32(top - most);
		acc *= c;
		s = fmaf(c, s, exp_f32(sink - most));
#endif
		if (g < here) out[first_head * KV_VALUE + g * KV_VALUE + d] = s == 0 ? 0.0f : acc / s;
	};
	// What was summed of turned values is turned back.
	auto turn_back = [&] {
#if KV_CODED
		__threadfence();
		__syncthreads();
		for (int h = wave; h < here; h += ATTEND_WAVES) {
			f32 *room = lds + h * KV_VALUE, *to = out + (first_head + h) * KV_VALUE;
			for (int i = lane; i < KV_VALUE; i += NSTF_WAVE) room[i] = to[i];
			kv_turn<KV_VALUE>(room);
			for (int i = lane; i < KV_VALUE; i += NSTF_WAVE) to[i] = room[i];
		}
#endif
	};
	__syncthreads();
	if (blocks == 1) {
		few_together<ATTEND_WAVES>(lds, ATTEND_WAVES, answer);
		turn_back();
		return;
	}
	const i64 share = (i64)row * gridDim.y + blockIdx.y;
	records += share * gridDim.x * ATTEND_RECORD;
	f32* mine = records + (i64)blockIdx.x * ATTEND_RECORD;
	few_together<ATTEND_WAVES>(lds, ATTEND_WAVES, [&](int g, int d, f32 acc, f32 top, f32 s) {
		mine[2 * ATTEND_QUERIES + g * KV_VALUE + d] = acc;
		if (d == 0) mine[g] = top, mine[ATTEND_QUERIES + g] = s;
	});
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0) {
		last = atomicAdd(counters + share, 1u) == (u32)blocks - 1;
		if (last) counters[share] = 0;
	}
	__syncthreads();
	if (!last) return;
	__threadfence();
	if (blocks <= ATTEND_FEW) few_together<ATTEND_FEW>(records, blocks, answer);
	else together(records, blocks, merge, answer);
	turn_back();
}
