// What recurrent mixers share. Whoever includes it defines NET_CHANNELS and NET_KERNEL:
// those of a causal convolution whose inputs are mixed f32[T][NET_CHANNELS] and, before
// them, the columns f32[NET_KERNEL-1][NET_CHANNELS] of a sequence's memory, the oldest
// position first. Where a sequence begins (position 0) they are not read. Rows of a
// sequence are neighbours at positions in order; those at negative positions are left out.
#include "functions.hip"
#include "reduce.hip"

NSTF_DEVICE f32 silu(f32 x) { return x / (1.0f + exp_f32(-x)); }

// Whether a row goes on where the one before it ended.
NSTF_DEVICE bool follows(int row, const i32 *positions, const i32 *owners) {
	return row > 0 && owners[row - 1] == owners[row] && positions[row - 1] >= 0 && positions[row - 1] + 1 == positions[row];
}

// The rows before a row of its own sequence, as far as the convolution sees.
NSTF_DEVICE int rows_before(int row, const i32 *positions, const i32 *owners) {
	int back = 0;
	while (back < NET_KERNEL - 1 && follows(row - back, positions, owners)) back++;
	return back;
}

// The row with which the n-th sequence begins, -1 where there are fewer.
NSTF_DEVICE int first_row(int n, int rows, const i32 *positions, const i32 *owners) {
	for (int base = 0; base < rows; base += NSTF_WAVE) {
		const int row = base + threadIdx.x % NSTF_WAVE;
		u64 begins = wave_ballot(row < rows && positions[row < rows ? row : 0] >= 0 && !follows(row < rows ? row : 0, positions, owners));
		const int count = __popcll(begins);
		if (n >= count) {
			n -= count;
			continue;
		}
		for (; n > 0; n--) begins &= begins - 1;
		return base + __ffsll(begins) - 1;
	}
	return -1;
}

// One channel of a row behind the convolution, added to sum; mixed is the row's. Columns before
// position 0 are loaded too, so that no load waits for a condition, and count as zeros.
NSTF_DEVICE f32 convolved(int channel, int back, int position, const f32 *mixed, const f32 *columns, const f32 *conv, f32 sum) {
#pragma unroll
	for (int j = 0; j < NET_KERNEL; j++) {
		const int d = NET_KERNEL - 1 - j; // positions before
		const f32 *from = d <= back ? mixed + channel - (i64)d * NET_CHANNELS : columns + (i64)(NET_KERNEL - 1 - d + back) * NET_CHANNELS + channel;
		const f32 x = *from;
		sum = fmaf(conv[channel * NET_KERNEL + j], d <= position ? x : 0.0f, sum);
	}
	return sum;
}

// Keeps the columns of a channel that the next rows' convolution needs, behind so many
// rows of the sequence.
NSTF_DEVICE void keep_columns(int channel, f32 *columns, const f32 *mixed, int count) {
#pragma unroll
	for (int j = 0; j < NET_KERNEL - 1; j++) {
		const int from = count - (NET_KERNEL - 1) + j; // in these rows
		columns[(i64)j * NET_CHANNELS + channel] = from >= 0 ? mixed[(i64)from * NET_CHANNELS + channel] : columns[(i64)(count + j) * NET_CHANNELS + channel];
	}
}

// A lane's numbers of a vector of N that LANES lanes share: runs of VEC, a run a lane in
// turn.
template <int N, int LANES, int VEC> struct spread {
	static constexpr int runs = (N + LANES * VEC - 1) / (LANES * VEC), count = runs * VEC;
	f32 v[count];
	NSTF_MEMBER void zero() {
#pragma unroll
		for (int i = 0; i < count; i++) v[i] = 0;
	}
	template <bool Settled = false> NSTF_MEMBER void load(const f32 *from, int lane) {
#pragma unroll
		for (int r = 0; r < runs; r++) {
			const int i = (r * LANES + lane) * VEC;
			pack<f32, VEC> p = {};
			if (i < N) p = Settled ? load_settled((const pack<f32, VEC> *)(from + i)) : *(const pack<f32, VEC> *)(from + i);
#pragma unroll
			for (int c = 0; c < VEC; c++) v[r * VEC + c] = p.v[c];
		}
	}
	NSTF_MEMBER void store(f32 *to, int lane) const {
#pragma unroll
		for (int r = 0; r < runs; r++) {
			const int i = (r * LANES + lane) * VEC;
			pack<f32, VEC> p;
#pragma unroll
			for (int c = 0; c < VEC; c++) p.v[c] = v[r * VEC + c];
			if (i < N) *(pack<f32, VEC> *)(to + i) = p;
		}
	}
	NSTF_MEMBER f32 dot(const spread &x) const {
		f32 sum = 0;
#pragma unroll
		for (int i = 0; i < count; i++) sum = fmaf(v[i], x.v[i], sum);
		return wave_sum<LANES>(sum);
	}
};
