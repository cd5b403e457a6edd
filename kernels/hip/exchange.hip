// What ranks, GPUs that compute one pass together, have each a part of: sums of all
// ranks' rows in the order of ranks, or rows laid side by side.
//
//	sum:    for i < n: out[i] = (residual ? residual[i] : 0) + (part_0[i] + part_1[i] + ...)
//	gather: for t, j:  out[t*stride + first_r + j] = part_r[t*width_r + j]
//	send:   for i < n: own[i] = own[i] + (residual ? residual[i] : 0), which all others get
//
// own f32[n] is this rank's part. Inboxes are as inbox.hip says. What is sent is added by who
// reads it (norm.hip, matvec.hip); products send by themselves (matvec.hip, matmul.hip).
//
// Few numbers (nstf_exchange): a thread sends its numbers to all, then waits for those of
// all; the grid is small enough that all blocks run at once on every rank. Many, rows of d
// numbers (nstf_send_many, nstf_mark, nstf_exchange_sum): the first two launches never wait, and the
// third reads what the first of other ranks sent.
//
// EX_RANKS ranks, 2 to 8. Addresses and slots at multiples of 16 bytes.
// Grid: 256 threads, two numbers at a time, of few; of many four numbers a thread. No LDS. Deterministic: ranks are added in order, so all have the same bits.
// Bound: the link's latency, or 4 bytes for each number and rank.
#include "inbox.hip"

// The first of the columns of a rank, of all in units.
NSTF_DEVICE int first_column(int rank, int units, int unit) { return (int)((i64)units * rank / EX_RANKS) * unit; }

// rows > 0: rows are laid side by side, of units*unit columns in all; else they are added.
NSTF_KERNEL void __launch_bounds__(256) nstf_exchange(f32* out, const f32* residual, const f32* own, int n, int rows, int units, int unit, u64 slot, int rank, u32 number,
    u32 patience, u32* state, u32* lost, INBOXES) {
	begin_early();
	u64* const inboxes[8] = ALL_INBOXES;
	const u32 mark = mark_of(state, number);
	const Waiting waiting = {patience, state, lost};
	const u64 parity = mark & 1;
	const int start = (blockIdx.x * 256 + threadIdx.x) * 2, step = gridDim.x * 256 * 2;
	const int width = rows ? first_column(rank + 1, units, unit) - first_column(rank, units, unit) : 0;
	const int mine = rows ? rows * width : n;
	for (int i = start; i < mine; i += step) {
		const f32 a = own[i], b = i + 1 < mine ? own[i + 1] : 0.0f;
#pragma unroll
		for (int r = 0; r < EX_RANKS; r++)
			if (r != rank) send_line(inboxes[r] + (parity * EX_RANKS + rank) * slot + i, a, b, mark);
	}
	const u64* const from = inboxes[rank] + parity * EX_RANKS * slot;
	for (int i = start; !rows && i < n; i += step) {
		const int two = i + 1 < n;
		const f32 a = own[i], b = two ? own[i + 1] : 0.0f;
		const f32 xa = residual ? residual[i] : 0.0f, xb = residual && two ? residual[i + 1] : 0.0f;
		f32 sa = 0, sb = 0;
#pragma unroll
		for (int r = 0; r < EX_RANKS; r++) {
			f32 pa = a, pb = b;
			if (r != rank) {
				Line l = load_line(from + r * slot + i);
				await_line(l, from + r * slot + i, mark, waiting, r);
				pa = of_bits(l.a), pb = of_bits(l.b);
			}
			sa = r == 0 ? pa : sa + pa;
			sb = r == 0 ? pb : sb + pb;
		}
		out[i] = residual ? xa + sa : sa;
		if (two) out[i + 1] = residual ? xb + sb : sb;
	}
	if (!rows) return;
#pragma unroll
	for (int r = 0; r < EX_RANKS; r++) {
		const int first = first_column(r, units, unit), wide = first_column(r + 1, units, unit) - first, count = rows * wide;
		for (int i = start; i < count; i += step) {
			f32 part[2];
			if (r == rank) {
				part[0] = own[i], part[1] = i + 1 < count ? own[i + 1] : 0.0f;
			} else {
				Line l = load_line(from + r * slot + i);
				await_line(l, from + r * slot + i, mark, waiting, r);
				part[0] = of_bits(l.a), part[1] = of_bits(l.b);
			}
#pragma unroll
			for (int k = 0; k < 2; k++)
				if (i + k < count) out[(i64)((i + k) / wide) * ((i64)units * unit) + first + (i + k) % wide] = part[k];
		}
	}
}

// Sends few numbers, and leaves them where they are.
NSTF_KERNEL void __launch_bounds__(256) nstf_send(f32* own, const f32* residual, int n, u64 slot, int rank, u32 number, const u32* state, INBOXES) {
	begin_early();
	u64* const inboxes[8] = ALL_INBOXES;
	const u32 mark = mark_of(state, number);
	const u64 parity = mark & 1;
	for (int i = (blockIdx.x * 256 + threadIdx.x) * 2; i < n; i += gridDim.x * 256 * 2) {
		const int two = i + 1 < n;
		f32 a = own[i], b = two ? own[i + 1] : 0.0f;
		if (residual) {
			a += residual[i], own[i] = a;
			if (two) b += residual[i + 1], own[i + 1] = b;
		}
#pragma unroll
		for (int r = 0; r < EX_RANKS; r++)
			if (r != rank) send_line(inboxes[r] + (parity * EX_RANKS + rank) * slot + i, a, b, mark);
	}
}

NSTF_KERNEL void __launch_bounds__(256) nstf_send_many(const f32* own, i64 n, u64 slot, int rank, u32 number, const u32* state, INBOXES) {
	begin_early();
	u64* const inboxes[8] = ALL_INBOXES;
	const i64 i = ((i64)blockIdx.x * 256 + threadIdx.x) * 4;
	pack<f32, 4> v = {};
	if (i < n) v = *(const pack<f32, 4>*)(own + i);
	send_many<4>(inboxes, slot, mark_of(state, number) & 1, rank, i, v, i < n);
}

// Tells the others that many numbers were sent by the launches before.
NSTF_KERNEL void __launch_bounds__(64) nstf_mark(u64 slot, int rank, u32 number, const u32* state, INBOXES) {
	begin_early();
	u64* const inboxes[8] = ALL_INBOXES;
	const u32 mark = mark_of(state, number);
	__threadfence_system();
	if (threadIdx.x < EX_RANKS && (int)threadIdx.x != rank) *(volatile u32*)mark_at(inboxes[threadIdx.x], slot, mark & 1, rank) = mark;
}

// Both: tells the others, and waits until they have told.
NSTF_KERNEL void __launch_bounds__(64) nstf_meet(u64 slot, int rank, u32 number, u32 patience, u32* state, u32* lost, INBOXES) {
	begin_early();
	u64* const inboxes[8] = ALL_INBOXES;
	const u32 mark = mark_of(state, number);
	__threadfence_system();
	if (threadIdx.x < EX_RANKS && (int)threadIdx.x != rank) *(volatile u32*)mark_at(inboxes[threadIdx.x], slot, mark & 1, rank) = mark;
	await_many(inboxes[rank], slot, mark, rank, {patience, state, lost});
}

NSTF_KERNEL void __launch_bounds__(256) nstf_exchange_sum(f32* out, const f32* residual, i64 n, u64 slot, int rank, u32 number, u32 patience, u32* state, u32* lost, u64* inbox) {
	begin_early();
	const u32 mark = mark_of(state, number);
	await_many(inbox, slot, mark, rank, {patience, state, lost});
	const i64 i = ((i64)blockIdx.x * 256 + threadIdx.x) * 4;
	if (i >= n) return;
	pack<f32, 4> sum = sum_of_many(inbox, slot, mark & 1, i);
	if (residual) {
		const pack<f32, 4> x = *(const pack<f32, 4>*)(residual + i);
#pragma unroll
		for (int k = 0; k < 4; k++) sum.v[k] = x.v[k] + sum.v[k];
	}
	*(pack<f32, 4>*)(out + i) = sum;
}

// The end of a pass of so many exchanges.
NSTF_KERNEL void __launch_bounds__(64) nstf_exchange_end(u32* state, u32 count) {
	begin_early();
	if (threadIdx.x == 0) state[0] += count;
}
