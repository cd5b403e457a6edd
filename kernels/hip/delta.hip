// A gated delta net: its convolution, and its steps. docs/graph.md, section 11.
//
//	nstf_delta_convolve, for each row: c = silu(convolution of mixed); q, k = heads of c
//	    by their length, q / sqrt(DELTA_DK); gates = how heads fade, learn, and q·k
//	nstf_delta_step, for each head, rows of a sequence in their order:
//	    u = rate*(v - fade*Sᵀk);  o = fade*Sᵀq + (k·q)*u;  S = fade*S + k uᵀ
//	nstf_delta_finish: z = norm(o) * silu(z), head by head
//
// With DELTA_BY_CHANNEL each row of S fades by a number of its own, which convolve leaves
// in alpha: S = diag(fade)*S first, and the fades above are 1. With DELTA_SIGMOID sigmoid
// stands for silu in finish.
//
// mixed, turned f32[T][C], queries, keys and values of C = 2*DELTA_KEYS*DELTA_DK +
// DELTA_HEADS*DELTA_DV; conv f32[C][DELTA_KERNEL]; beta f32[T][DELTA_HEADS]; alpha
// f32[T][DELTA_FADES], DELTA_HEADS or, by channel, DELTA_HEADS*DELTA_DK; gates f32[T][2*DELTA_HEADS + DELTA_KEYS]; o, z f32[T][DELTA_HEADS*DELTA_DV]. A sequence's
// memory begins at memory + places[owner]*apart: the columns of the convolution,
// f32[DELTA_KERNEL-1][C], the oldest position first, then S of each head,
// f32[DELTA_DV][DELTA_DK], a column after the other. Where a sequence begins (position 0)
// it is not read. Rows of a sequence are neighbours at positions in order, and those at
// negative positions are left out. DELTA_TILED: head h reads key head h % DELTA_KEYS.
//
// Columns of S do not depend on one another: DELTA_LANES lanes hold one in registers,
// through all rows of the sequence, and a block has DELTA_COLUMNS of them. A step waits
// for one exchange between lanes, for o is computed from S before the step. With
// DELTA_FUSED a block has all of a head and does what finish does.
//
// With DELTA_SETTLED there is one row, and positions, owners, places and memory were there before
// the launch before step's began: they are read while that one ends.
//
// Grids: convolve x over DELTA_KEYS pairs of queries and keys, then DELTA_HEADS values, what fades
// them and what they learn, DELTA_WAVES to a block, one to a wave; y over rows. Step x over heads and runs of
// columns, y over sequences. Finish x over heads, y over rows. Waves of 32 or 64.
// LDS: a number for each wave of a block. Deterministic, and a row's bits do not depend
// on where its sequence was cut. Bound: bytes of S, read and written once a launch; of
// prompts the latency of an exchange a row.
// Tolerance: that of float32 sums over DELTA_DK numbers.
#define DELTA_QUERIES (DELTA_KEYS * DELTA_DK)
#define DELTA_VALUES (DELTA_HEADS * DELTA_DV)
#define DELTA_CHANNELS (2 * DELTA_QUERIES + DELTA_VALUES)
#define DELTA_FADES (DELTA_BY_CHANNEL ? DELTA_HEADS * DELTA_DK : DELTA_HEADS)
#define DELTA_GATES (2 * DELTA_HEADS + DELTA_KEYS)
#define DELTA_COLUMN_MEMORY ((i64)(DELTA_KERNEL - 1) * DELTA_CHANNELS)
#define DELTA_WAVES 4
#define NET_CHANNELS DELTA_CHANNELS
#define NET_KERNEL DELTA_KERNEL
#include "recurrent.hip"

NSTF_DEVICE int key_head(int head) { return DELTA_TILED ? head % DELTA_KEYS : head / (DELTA_HEADS / DELTA_KEYS); }

// What lets o through.
NSTF_DEVICE f32 gated(f32 o, f32 z) { return DELTA_SIGMOID ? o / (1.0f + exp_f32(-z)) : o * silu(z); }

NSTF_KERNEL void __launch_bounds__(DELTA_WAVES *NSTF_WAVE) nstf_delta_convolve(
    const f32 *mixed, f32 *turned, f32 *gates, const f32 *beta, f32 *alpha, const f32 *conv, const f32 *decay, const f32 *dt_bias, f32 eps,
    const f32 *memory, i64 apart, const i32 *places, const i32 *positions, const i32 *owners) {
	begin_early();
	const int row = blockIdx.y, lane = threadIdx.x % NSTF_WAVE, position = positions[row];
	int unit = blockIdx.x * DELTA_WAVES + threadIdx.x / NSTF_WAVE;
	if (position < 0 || unit >= DELTA_KEYS + 3 * DELTA_HEADS) return;
	const int back = rows_before(row, positions, owners);
	const f32 *columns = memory + (i64)places[owners[row]] * apart;
	mixed += (i64)row * DELTA_CHANNELS, turned += (i64)row * DELTA_CHANNELS, gates += (i64)row * DELTA_GATES;
	if (unit < DELTA_KEYS) {
		constexpr int rounds = (DELTA_DK + NSTF_WAVE - 1) / NSTF_WAVE;
		f32 q[rounds], k[rounds], qq = 0, kk = 0, qk = 0;
#pragma unroll
		for (int r = 0; r < rounds; r++) {
			const int i = r * NSTF_WAVE + lane, at = unit * DELTA_DK + i;
			q[r] = i < DELTA_DK ? convolved(at, back, position, mixed, columns, conv, 0.0f) : 0.0f;
			k[r] = i < DELTA_DK ? convolved(DELTA_QUERIES + at, back, position, mixed, columns, conv, 0.0f) : 0.0f;
		}
#pragma unroll
		for (int r = 0; r < rounds; r++) { // silu(0) is 0; divisions have branches, which loads would wait for
			q[r] = silu(q[r]), k[r] = silu(k[r]);
			qq = fmaf(q[r], q[r], qq), kk = fmaf(k[r], k[r], kk), qk = fmaf(q[r], k[r], qk);
		}
		const f32 to_q = 1.0f / (sqrtf(wave_sum<NSTF_WAVE>(qq) + eps) * sqrtf((f32)DELTA_DK)), to_k = 1.0f / sqrtf(wave_sum<NSTF_WAVE>(kk) + eps);
		qk = wave_sum<NSTF_WAVE>(qk);
#pragma unroll
		for (int r = 0; r < rounds; r++) {
			const int i = r * NSTF_WAVE + lane, at = unit * DELTA_DK + i;
			if (i < DELTA_DK) turned[at] = q[r] * to_q, turned[DELTA_QUERIES + at] = k[r] * to_k;
		}
		if (lane == 0) gates[2 * DELTA_HEADS + unit] = qk * to_q * to_k;
		return;
	}
	unit -= DELTA_KEYS;
	const int kind = unit / DELTA_HEADS, head = unit % DELTA_HEADS, at = row * DELTA_HEADS + head;
	if (kind == 0) {
		constexpr int rounds = (DELTA_DV + NSTF_WAVE - 1) / NSTF_WAVE;
		const int channel = 2 * DELTA_QUERIES + head * DELTA_DV + lane;
		f32 v[rounds];
#pragma unroll
		for (int r = 0; r < rounds; r++)
			v[r] = r * NSTF_WAVE + lane < DELTA_DV ? convolved(channel + r * NSTF_WAVE, back, position, mixed, columns, conv, 0.0f) : 0.0f;
#pragma unroll
		for (int r = 0; r < rounds; r++)
			if (r * NSTF_WAVE + lane < DELTA_DV) turned[channel + r * NSTF_WAVE] = silu(v[r]);
		return;
	}
	if (kind == 2) {
		if (lane == 0) gates[DELTA_HEADS + head] = (f32)sigmoid_f64((f64)beta[at]);
		return;
	}
	const f32 a = DELTA_DECAY_LOG ? -exp_f32(decay[head]) : decay[head];
#if DELTA_BY_CHANNEL
	f32 *fades = alpha + (i64)at * DELTA_DK;
	for (int i = lane; i < DELTA_DK; i += NSTF_WAVE) fades[i] = exp_f32(a * (f32)softplus_f64((f64)fades[i] + (f64)dt_bias[head * DELTA_DK + i]));
#else
	if (lane == 0) gates[head] = exp_f32(a * (f32)softplus_f64((f64)alpha[at] + (f64)dt_bias[head]));
#endif
}

#define DELTA_THREADS ((DELTA_LANES * DELTA_COLUMNS + NSTF_WAVE - 1) / NSTF_WAVE * NSTF_WAVE)
#define DELTA_SPLITS ((DELTA_DV + DELTA_COLUMNS - 1) / DELTA_COLUMNS)

NSTF_KERNEL void __launch_bounds__(DELTA_THREADS) nstf_delta_step(
    const f32 *mixed, const f32 *turned, const f32 *gates, const f32 *alpha, f32 *o, f32 *z, const f32 *weight, f32 norm_eps,
    f32 *memory, i64 apart, const i32 *places, const i32 *positions, const i32 *owners, int rows) {
	__shared__ f32 lds[DELTA_THREADS / NSTF_WAVE];
	let_next_begin();
#if DELTA_SETTLED
	int row = 0;
	const int position = load_settled(positions), place = load_settled(places + load_settled(owners));
	if (position < 0) return;
#else
	wait_for_inputs();
	int row = first_row(blockIdx.y, rows, positions, owners);
	if (row < 0) return;
	const int position = positions[row], place = places[owners[row]];
#endif
	const int head = blockIdx.x / DELTA_SPLITS, lane = threadIdx.x % DELTA_LANES, first = row;
	const int column = blockIdx.x % DELTA_SPLITS * DELTA_COLUMNS + threadIdx.x / DELTA_LANES;
	const bool here = threadIdx.x / DELTA_LANES < DELTA_COLUMNS && column < DELTA_DV;
	memory += (i64)place * apart;
	f32 *own = memory + DELTA_COLUMN_MEMORY + ((i64)head * DELTA_DV + (here ? column : 0)) * DELTA_DK;
	const int query = key_head(head) * DELTA_DK;
	spread<DELTA_DK, DELTA_LANES, DELTA_VEC> s, k, q;
	s.zero();
	if (position > 0 && here) s.load<DELTA_SETTLED>(own, lane);
#if DELTA_FUSED
	const f32 through = here ? weight[column] : 0.0f;
#endif
#if DELTA_SETTLED
	wait_for_inputs();
#endif
	do {
		const f32 *x = turned + (i64)row * DELTA_CHANNELS, *gate = gates + (i64)row * DELTA_GATES;
#if DELTA_BY_CHANNEL
		k.load(alpha + (i64)row * DELTA_FADES + head * DELTA_DK, lane);
#pragma unroll
		for (int i = 0; i < s.count; i++) s.v[i] *= k.v[i];
		const f32 fade = 1.0f;
#else
		const f32 fade = gate[head];
#endif
		k.load(x + DELTA_QUERIES + query, lane);
		q.load(x + query, lane);
		const f32 v = here ? x[2 * DELTA_QUERIES + head * DELTA_DV + column] : 0.0f;
		const f32 rate = gate[DELTA_HEADS + head], qk = gate[2 * DELTA_HEADS + key_head(head)];
		const i64 at = (i64)row * DELTA_VALUES + head * DELTA_DV + column;
#if DELTA_FUSED
		const f32 opens = here && lane == 0 ? z[at] : 0.0f;
#endif
		const f32 told = s.dot(k), read = s.dot(q);
		const f32 u = rate * (v - fade * told), out = fmaf(qk, u, fade * read);
#pragma unroll
		for (int i = 0; i < s.count; i++) s.v[i] = fmaf(k.v[i], u, fade * s.v[i]);
#if DELTA_FUSED
		const f32 squares = block_sum<DELTA_THREADS>(here && lane == 0 ? out * out : 0.0f, lds);
		if (here && lane == 0) z[at] = gated(out / sqrtf(squares / DELTA_DV + norm_eps) * through, opens);
#else
		if (here && lane == 0) o[at] = out;
#endif
		row++;
	} while (row < rows && follows(row, positions, owners));
	if (here) s.store(own, lane);
	for (int channel = blockIdx.x * DELTA_THREADS + threadIdx.x; channel < DELTA_CHANNELS; channel += gridDim.x * DELTA_THREADS)
		keep_columns(channel, memory, mixed + (i64)first * DELTA_CHANNELS, row - first);
}

NSTF_KERNEL void __launch_bounds__(DELTA_WAVES *NSTF_WAVE) nstf_delta_finish(const f32 *o, f32 *z, const f32 *weight, f32 norm_eps) {
	begin_early();
	const int head = blockIdx.x * DELTA_WAVES + threadIdx.x / NSTF_WAVE, lane = threadIdx.x % NSTF_WAVE;
	if (head >= DELTA_HEADS) return;
	const i64 at = (i64)blockIdx.y * DELTA_VALUES + head * DELTA_DV;
	f32 squares = 0;
	for (int i = lane; i < DELTA_DV; i += NSTF_WAVE) squares = fmaf(o[at + i], o[at + i], squares);
	const f32 root = sqrtf(wave_sum<NSTF_WAVE>(squares) / DELTA_DV + norm_eps);
	for (int i = lane; i < DELTA_DV; i += NSTF_WAVE) z[at + i] = gated(o[at + i] / root * weight[i], z[at + i]);
}
