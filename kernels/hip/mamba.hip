// A state space: its convolution, and its steps. docs/graph.md, section 15.
//
//	nstf_mamba_select, for each row: m = silu(bias + convolution of mixed); gates = how
//	    heads fade, their steps, and b·c of each group
//	nstf_mamba_step, for each head, rows of a sequence in their order:
//	    u = step*x;  o = fade*Sᵀc + (b·c)*u + skip*x;  S = fade*S + b uᵀ;  z = o * silu(z)
//	nstf_mamba_finish: z = norm(z), each of MAMBA_GROUPS runs by itself
//
// mixed, turned f32[T][C], x of all heads, b of all groups, c of all groups, of C =
// MAMBA_HEADS*MAMBA_DIM + 2*MAMBA_GROUPS*MAMBA_STATE; conv f32[C][MAMBA_KERNEL], bias
// f32[C] where there is one; dt f32[T][MAMBA_HEADS]; gates f32[T][2*MAMBA_HEADS +
// MAMBA_GROUPS]; z f32[T][MAMBA_HEADS*MAMBA_DIM]. A sequence's memory begins at memory +
// places[owner]*apart: the columns of the convolution, then S of each head,
// f32[MAMBA_DIM][MAMBA_STATE], a column after the other. recurrent.hip says which rows
// are a sequence's.
//
// Columns of S do not depend on one another: MAMBA_LANES lanes hold one in registers,
// through all rows of the sequence, and a block has MAMBA_COLUMNS of them. o is computed
// from S before the step, so that a step waits for one exchange between lanes.
//
// Grids: select x over MAMBA_GROUPS pairs of b and c, then MAMBA_HEADS heads, MAMBA_WAVES
// to a block, one to a wave; y over rows. Step x over heads and runs of columns, y over
// sequences. Finish x over groups, y over rows. Waves of 32 or 64. LDS: a number for each
// wave of a block. Deterministic, and a row's bits do not depend on where its sequence was
// cut. Bound: bytes of S, read and written once a launch; of prompts the latency of an
// exchange a row.
// Tolerance: that of float32 sums over MAMBA_STATE numbers.
#define MAMBA_VALUES (MAMBA_HEADS * MAMBA_DIM)
#define MAMBA_SELECTED (MAMBA_GROUPS * MAMBA_STATE)
#define MAMBA_CHANNELS (MAMBA_VALUES + 2 * MAMBA_SELECTED)
#define MAMBA_GATES (2 * MAMBA_HEADS + MAMBA_GROUPS)
#define MAMBA_COLUMN_MEMORY ((i64)(MAMBA_KERNEL - 1) * MAMBA_CHANNELS)
#define MAMBA_WAVES 4
#define NET_CHANNELS MAMBA_CHANNELS
#define NET_KERNEL MAMBA_KERNEL
#include "recurrent.hip"

NSTF_KERNEL void __launch_bounds__(MAMBA_WAVES *NSTF_WAVE) nstf_mamba_select(
    const f32 *mixed, f32 *turned, f32 *gates, const f32 *dt, const f32 *conv, const f32 *bias, const f32 *decay, const f32 *dt_bias, f32 least, f32 most,
    const f32 *memory, i64 apart, const i32 *places, const i32 *positions, const i32 *owners) {
	begin_early();
	const int row = blockIdx.y, lane = threadIdx.x % NSTF_WAVE, position = positions[row];
	int unit = blockIdx.x * MAMBA_WAVES + threadIdx.x / NSTF_WAVE;
	if (position < 0 || unit >= MAMBA_GROUPS + MAMBA_HEADS) return;
	const int back = rows_before(row, positions, owners);
	const f32 *columns = memory + (i64)places[owners[row]] * apart;
	mixed += (i64)row * MAMBA_CHANNELS, turned += (i64)row * MAMBA_CHANNELS, gates += (i64)row * MAMBA_GATES;
	auto channel = [&](int at) {
#if MAMBA_BIAS
		const f32 begin = bias[at];
#else
		const f32 begin = 0.0f;
#endif
		return turned[at] = silu(convolved(at, back, position, mixed, columns, conv, begin));
	};
	if (unit < MAMBA_GROUPS) {
		f32 met = 0;
		for (int i = lane; i < MAMBA_STATE; i += NSTF_WAVE) {
			const int at = MAMBA_VALUES + unit * MAMBA_STATE + i;
			const f32 b = channel(at), c = channel(at + MAMBA_SELECTED);
			met = fmaf(b, c, met);
		}
		met = wave_sum<NSTF_WAVE>(met);
		if (lane == 0) gates[2 * MAMBA_HEADS + unit] = met;
		return;
	}
	unit -= MAMBA_GROUPS;
	for (int i = lane; i < MAMBA_DIM; i += NSTF_WAVE) channel(unit * MAMBA_DIM + i);
	if (lane > 0) return;
	f32 step = (f32)softplus_f64((f64)dt[row * MAMBA_HEADS + unit] + (f64)dt_bias[unit]);
	step = step < least ? least : step > most ? most : step;
	const f32 a = MAMBA_DECAY_LOG ? -exp_f32(decay[unit]) : decay[unit];
	gates[unit] = exp_f32(a * step);
	gates[MAMBA_HEADS + unit] = step;
}

#define MAMBA_THREADS (MAMBA_LANES * MAMBA_COLUMNS)
#define MAMBA_SPLITS ((MAMBA_DIM + MAMBA_COLUMNS - 1) / MAMBA_COLUMNS)

NSTF_KERNEL void __launch_bounds__(MAMBA_THREADS) nstf_mamba_step(
    const f32 *mixed, const f32 *turned, const f32 *gates, f32 *z, const f32 *skip,
    f32 *memory, i64 apart, const i32 *places, const i32 *positions, const i32 *owners, int rows) {
	begin_early();
	int row = first_row(blockIdx.y, rows, positions, owners);
	if (row < 0) return;
	const int head = blockIdx.x / MAMBA_SPLITS, group = head / (MAMBA_HEADS / MAMBA_GROUPS), lane = threadIdx.x % MAMBA_LANES, first = row;
	const int column = blockIdx.x % MAMBA_SPLITS * MAMBA_COLUMNS + threadIdx.x / MAMBA_LANES;
	const bool here = column < MAMBA_DIM;
	memory += (i64)places[owners[row]] * apart;
	f32 *own = memory + MAMBA_COLUMN_MEMORY + ((i64)head * MAMBA_DIM + (here ? column : 0)) * MAMBA_STATE;
	const f32 through = skip[head];
	spread<MAMBA_STATE, MAMBA_LANES, MAMBA_VEC> s, b, c;
	s.zero();
	if (positions[row] > 0 && here) s.load(own, lane);
	do {
		const f32 *m = turned + (i64)row * MAMBA_CHANNELS, *gate = gates + (i64)row * MAMBA_GATES;
		b.load(m + MAMBA_VALUES + group * MAMBA_STATE, lane);
		c.load(m + MAMBA_VALUES + MAMBA_SELECTED + group * MAMBA_STATE, lane);
		const f32 x = here ? m[head * MAMBA_DIM + column] : 0.0f;
		const f32 fade = gate[head], u = gate[MAMBA_HEADS + head] * x;
		const f32 out = fmaf(through, x, fmaf(gate[2 * MAMBA_HEADS + group], u, fade * s.dot(c)));
#pragma unroll
		for (int i = 0; i < s.count; i++) s.v[i] = fmaf(b.v[i], u, fade * s.v[i]);
		const i64 at = (i64)row * MAMBA_VALUES + head * MAMBA_DIM + column;
		if (here && lane == 0) z[at] = out * silu(z[at]);
		row++;
	} while (row < rows && follows(row, positions, owners));
	if (here) s.store(own, lane);
	for (int channel = blockIdx.x * MAMBA_THREADS + threadIdx.x; channel < MAMBA_CHANNELS; channel += gridDim.x * MAMBA_THREADS)
		keep_columns(channel, memory, mixed + (i64)first * MAMBA_CHANNELS, row - first);
}

#define MAMBA_RUN (MAMBA_VALUES / MAMBA_GROUPS)
#define MAMBA_FINISH 256

NSTF_KERNEL void __launch_bounds__(MAMBA_FINISH) nstf_mamba_finish(f32 *z, const f32 *weight, f32 eps) {
	__shared__ f32 lds[MAMBA_FINISH / NSTF_WAVE];
	begin_early();
	const int run = blockIdx.x * MAMBA_RUN;
	z += (i64)blockIdx.y * MAMBA_VALUES + run, weight += run;
	f32 squares = 0;
	for (int i = threadIdx.x; i < MAMBA_RUN; i += MAMBA_FINISH) squares = fmaf(z[i], z[i], squares);
	const f32 root = sqrtf(block_sum<MAMBA_FINISH>(squares, lds) / MAMBA_RUN + eps);
	for (int i = threadIdx.x; i < MAMBA_RUN; i += MAMBA_FINISH) z[i] = z[i] / root * weight[i];
}
