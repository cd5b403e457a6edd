// Sums of products of pairs of features over rows: what calibration keeps of what a
// matrix reads.
//
// Reference:
//   for r < T: for j <= i < K: sums[i (i + 1) / 2 + j] += x[r][i] * x[r][j]
//   for r < T: for i < K: if x[r][i] is finite: top[i] = max(top[i], |x[r][i]|), else odd[0] = 1
//   GRAM_EXPERTS, for each expert e: rows r = slots[s] / share, first[e] <= s < first[e + 1];
//                 sums, top, odd and counts[e] += first[e + 1] - first[e] are the expert's own
//
// x f32[..][K], at a multiple of 16 bytes where GRAM_RUN is 4, K then a multiple of 4;
// sums f64[experts][K (K + 1) / 2]; top f32[experts][K]; odd i32[experts]; counts
// i64[experts].
//
// Grid: x counts the tiles on and below the diagonal, row after row; z the experts. A
// block is (GRAM_TILE / 8)^2 threads with 8 by 8 sums each; any wave size. LDS:
// GRAM_STEP rows of both sides of a tile, 4 or 8 KiB; registers: 64 sums, 16 factors,
// GRAM_STEP * GRAM_TILE / 32 or 64 numbers on their way.
// Phases: rows are asked for; per step: barrier, to LDS, barrier, the next rows are asked
// for, multiplied. Blocks on the diagonal look at the values that they bring.
// Deterministic: a sum is of one thread, in the order of rows: GRAM_ROWS of them fused
// in float32, which are then added in float64.
// Bound: operations, K (K + 1) for a row; 16 bytes of sums are read and written for
// GRAM_ROWS of them. Tolerance: that of a float32 sum of GRAM_ROWS products.
#include "common.hip"

#define GRAM_SIDE (GRAM_TILE / 8) // threads of a side
#define GRAM_THREADS (GRAM_SIDE * GRAM_SIDE)
#define GRAM_LOADS (GRAM_STEP * GRAM_TILE / GRAM_RUN / GRAM_THREADS) // of a thread, of one side
#define GRAM_EACH (GRAM_TILE / GRAM_RUN)                             // loads of a row
static_assert(GRAM_LOADS > 0 && GRAM_THREADS % GRAM_EACH == 0, "a thread brings the same features of every step");

typedef pack<f32, GRAM_RUN> GramRun;

struct GramRows {
	const f32 *x;
	const i32 *slots; // null: rows are x's
	int share, k;
	// The run of features from column on of row r; zeros beyond the end.
	NSTF_MEMBER GramRun run(int r, int end, int column) const {
		GramRun v = {};
		if (r < end && column < k) v = *(const GramRun *)(x + (i64)(slots ? slots[r] / share : r) * k + column);
		return v;
	}
};

// What a thread brings of a step: rows threadIdx.x / GRAM_EACH and on, GRAM_THREADS /
// GRAM_EACH apart, of one run of features.
struct GramStep {
	GramRun v[GRAM_LOADS];
	NSTF_MEMBER void ask(const GramRows &rows, int from, int end, int column) {
#pragma unroll
		for (int i = 0; i < GRAM_LOADS; i++) v[i] = rows.run(from + place(i), end, column);
	}
	NSTF_MEMBER void put(f32 (&to)[GRAM_STEP][GRAM_TILE]) const {
#pragma unroll
		for (int i = 0; i < GRAM_LOADS; i++) *(GramRun *)&to[place(i)][feature()] = v[i];
	}
	static NSTF_MEMBER int place(int i) { return threadIdx.x / GRAM_EACH + i * (GRAM_THREADS / GRAM_EACH); }
	static NSTF_MEMBER int feature() { return threadIdx.x % GRAM_EACH * GRAM_RUN; }
};

// The eight features of a thread within a side: two runs of four, half a tile apart, so
// that the threads of a wave read neighbouring words of LDS.
NSTF_DEVICE int gram_feature(int place, int i) { return i / 4 * (GRAM_TILE / 2) + place * 4 + i % 4; }

NSTF_DEVICE void gram_take(f32 (&to)[8], const f32 (&from)[GRAM_TILE], int place) {
#pragma unroll
	for (int h = 0; h < 2; h++) {
		const pack<f32, 4> v = *(const pack<f32, 4> *)&from[gram_feature(place, 4 * h)];
#pragma unroll
		for (int i = 0; i < 4; i++) to[4 * h + i] = v.v[i];
	}
}

// A number that the compiler knows nothing about from here on: it else keeps which of a
// thread's 64 sums lie in the triangle, in more scalar registers than there are.
NSTF_DEVICE int gram_fresh(int v) {
#if defined(NSTF_CUDA)
	asm volatile("" : "+r"(v));
#else
	asm volatile("" : "+v"(v));
#endif
	return v;
}

// Notes the largest magnitudes of the values that pass by, and what is none.
struct GramLook {
	f32 top[GRAM_RUN];
	bool odd;
	NSTF_MEMBER void see(const GramStep &s) {
#pragma unroll
		for (int i = 0; i < GRAM_LOADS; i++)
#pragma unroll
			for (int j = 0; j < GRAM_RUN; j++) {
				const f32 v = fabsf(s.v[i].v[j]);
				odd = odd || !(v < NSTF_INFINITY);
				top[j] = v < NSTF_INFINITY && v > top[j] ? v : top[j];
			}
	}
};

NSTF_KERNEL void __launch_bounds__(GRAM_THREADS) nstf_gram(const f32 *__restrict__ x, int t, int k, const i32 *__restrict__ first,
    const i32 *__restrict__ slots, int share, f64 *sums, f32 *top, i32 *odd, i64 *counts) {
	__shared__ __align__(16) f32 left[GRAM_STEP][GRAM_TILE];
	__shared__ __align__(16) f32 right[GRAM_STEP][GRAM_TILE];
	begin_early();
	int row = 0, column = blockIdx.x; // of tiles
	while (column > row) column -= ++row;
	const bool diagonal = row == column;
	GramRows rows = {x, nullptr, 1, k};
	int from = 0, end = t;
#if GRAM_EXPERTS
	const int e = blockIdx.z;
	from = first[e], end = first[e + 1];
	rows.slots = slots, rows.share = share;
	sums += (i64)e * k * (k + 1) / 2, top += (i64)e * k, odd += e;
	if (blockIdx.x == 0 && threadIdx.x == 0) counts[e] += end - from;
#endif
	row *= GRAM_TILE, column *= GRAM_TILE;
	const int x_place = threadIdx.x % GRAM_SIDE, y_place = threadIdx.x / GRAM_SIDE;
	GramLook look = {};
	for (; from < end; from += GRAM_ROWS) {
		const int last = from + GRAM_ROWS < end ? from + GRAM_ROWS : end;
		f32 sum[8][8] = {};
		GramStep a, b;
		a.ask(rows, from, last, row + GramStep::feature());
		b.ask(rows, from, last, column + GramStep::feature());
		for (int r = from; r < last; r += GRAM_STEP) {
			if (diagonal) look.see(a);
			__syncthreads();
			a.put(left);
			b.put(right);
			__syncthreads();
			a.ask(rows, r + GRAM_STEP, last, row + GramStep::feature());
			b.ask(rows, r + GRAM_STEP, last, column + GramStep::feature());
#pragma unroll
			for (int s = 0; s < GRAM_STEP; s++) {
				f32 u[8], v[8];
				gram_take(u, left[s], y_place);
				gram_take(v, right[s], x_place);
#pragma unroll
				for (int i = 0; i < 8; i++)
#pragma unroll
					for (int j = 0; j < 8; j++) sum[i][j] = fmaf(u[i], v[j], sum[i][j]);
			}
		}
#pragma unroll
		for (int i = 0; i < 8; i++) {
			const int at = gram_fresh(row + gram_feature(y_place, i));
			f64 *to = sums + (i64)at * (at + 1) / 2 + column;
#pragma unroll
			for (int j = 0; j < 8; j++) {
				const int c = gram_feature(x_place, j);
				if (at < k && column + c <= at) to[c] += (f64)sum[i][j];
			}
		}
	}
	if (!diagonal) return;
	// Of the threads that brought the same features the first collects what they saw.
	__syncthreads();
	f32(&seen)[GRAM_STEP][GRAM_TILE] = left;
	const int group = threadIdx.x / GRAM_EACH;
	if (group < GRAM_STEP) {
#pragma unroll
		for (int j = 0; j < GRAM_RUN; j++) seen[group][GramStep::feature() + j] = look.top[j];
	}
	if (look.odd) odd[0] = 1; // whoever writes it writes the same
	__syncthreads();
	const int groups = GRAM_THREADS / GRAM_EACH;
	for (int i = threadIdx.x; i < GRAM_TILE; i += GRAM_THREADS) {
		if (row + i >= k) continue;
		f32 most = top[row + i];
#pragma unroll
		for (int g = 0; g < groups; g++) most = wave_max_of(most, seen[g][i]);
		top[row + i] = most;
	}
}
