// Residual additions and normalisation of rows.
//
//	for t: a = post_a(A[t]); b = post_b(B[t]); X[t] = (X[t] + a + b) * scale; Out[t] = next(X[t])
//	rms(x)   = x * float32(1 / sqrt(mean(x^2) + eps)) * weight
//	layer(x) = (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight + bias
//
// X, A, B, Out f32[T][d], rows without gaps; weights and biases f32[d]. NORM_VEC
// numbers lie together at a multiple of their size. A null A, B or next weight
// leaves that part out; a null post weight adds the branch as it is. Out may be
// X. scale is *factor with NORM_SCALE 1, else 1. NORM_KIND: 0 rms, 1 layer.
//
// NORM_FROM: ranks sent parts of A, which are added in their order (inbox.hip): 1 few numbers,
// A being this rank's, 2 many; NORM_VEC is 4. With NORM_WHOLE their sum is X already, as one of
// them added it to its part.
//
// NORM_HALVES: out is not written; rows go to `tiles` and `rescale` as halve.hip brings them there.
// NORM_VEC is 4.
//
// Grid: a row a block of NORM_THREADS threads, which have NORM_STEPS times
// NORM_VEC numbers each; any wave size; LDS for a sum of each wave and
// NORM_HALVES' row. A row is
// read once and stays in registers. Phases: a barrier or two
// for each normalisation's sums. Deterministic: sums in one fixed order.
// Bound: 4 bytes read and written for each number of X and Out, 4 read for A, B.
// Tolerance: means and sums are float64, as on the processor, and so is all of
// layer(): rms differs from the processor's by the order of float64 sums. NORM_RUNS 1:
// the last rms adds its squares as matvec.hip does, to the same bits (reduce.hip), in
// float32; 2: in float64.
#include "reduce.hip"
#if NORM_FROM
#include "inbox.hip"
#define NORM_INBOX , u64 slot, int rank, u32 number, u32 patience, u32* state, u32* lost, const u64* inbox
#else
#define NORM_INBOX
#endif

#if NORM_HALVES
#include "matrix.hip"
#include "halverow.hip"
#define NORM_TILES , u8* tiles, f32* rescale, int stride
#else
#define NORM_TILES
#endif

#if NORM_SCALE
#define NORM_FACTOR , const f32* factor
#define NORM_TIMES * *factor
#else
#define NORM_FACTOR
#define NORM_TIMES
#endif

// One thread's part of a row: runs of NORM_VEC numbers, NORM_THREADS runs apart.
struct part {
	f32 v[NORM_STEPS][NORM_VEC];
};

// The run that a thread has in a step, and whether it lies in the row.
NSTF_DEVICE int run_of(int step) { return (step * NORM_THREADS + (int)threadIdx.x) * NORM_VEC; }

NSTF_DEVICE void load(part& p, const f32* row, int d) {
#pragma unroll
	for (int s = 0; s < NORM_STEPS; s++) {
		pack<f32, NORM_VEC> r = {};
		if (run_of(s) < d) r = *(const pack<f32, NORM_VEC>*)(row + run_of(s));
#pragma unroll
		for (int i = 0; i < NORM_VEC; i++) p.v[s][i] = r.v[i];
	}
}

NSTF_DEVICE void store(f32* row, const part& p, int d) {
#pragma unroll
	for (int s = 0; s < NORM_STEPS; s++) {
		pack<f32, NORM_VEC> r;
#pragma unroll
		for (int i = 0; i < NORM_VEC; i++) r.v[i] = p.v[s][i];
		if (run_of(s) < d) *(pack<f32, NORM_VEC>*)(row + run_of(s)) = r;
	}
}

#if NORM_FROM
// What all ranks have of a row.
NSTF_DEVICE void receive(part& p, const f32* own, int row, int d, u64 slot, int rank, u32 number, const Waiting& waiting, const u64* inbox) {
	static_assert(NORM_VEC == 4, "ranks send fours");
	const u32 mark = mark_of(waiting.state, number);
	const u64 parity = mark & 1;
#if NORM_FROM == 2 && !EX_LEFT
	await_many((u64*)inbox, slot, mark, rank, waiting);
#endif
#pragma unroll
	for (int s = 0; s < NORM_STEPS; s++) {
		pack<f32, NORM_VEC> sum = {};
		if (run_of(s) < d) {
			const i64 i = (i64)row * d + run_of(s);
#if NORM_FROM == 2
			sum = sum_of_many(inbox, slot, parity, i);
#else
			const u64* const from = inbox + parity * EX_RANKS * slot;
			Few f;
			load_few(f, from, slot, i, rank);
			sum = sum_of_few(f, *(const pack<f32, NORM_VEC>*)(own + i), from, slot, i, mark, rank, waiting);
#endif
		}
#pragma unroll
		for (int i = 0; i < NORM_VEC; i++) p.v[s][i] = sum.v[i];
	}
}
#endif

// The sum of (x - mean) or of its square.
template <int Square> NSTF_DEVICE f64 moment(const part& p, int d, f64 mean, f64* lds) {
	f64 sum = 0;
#pragma unroll
	for (int s = 0; s < NORM_STEPS; s++) {
		if (run_of(s) >= d) continue;
#pragma unroll
		for (int i = 0; i < NORM_VEC; i++) {
			const f64 x = (f64)p.v[s][i] - mean;
			sum += Square ? x * x : x;
		}
	}
	return block_sum<NORM_THREADS>(sum, lds);
}

#if NORM_RUNS
// The last rms.
NSTF_DEVICE void normalize_runs(part& p, int d, const f32* weight, f32 eps) {
#if NORM_RUNS == 2
	typedef f64 square;
	auto squares = [](const f32 (&v)[NORM_VEC]) { return run_squares((f64)v[0], (f64)v[1], (f64)v[2], (f64)v[3]); };
#else
	typedef f32 square;
	auto squares = [](const f32 (&v)[NORM_VEC]) { return run_squares(make_float4(v[0], v[1], v[2], v[3])); };
#endif
	const int waves = NORM_THREADS / NSTF_WAVE;
	__shared__ square parts[NORM_STEPS * waves];
#pragma unroll
	for (int s = 0; s < NORM_STEPS; s++) keep_runs<waves>(squares(p.v[s]), s, parts); // zeros beyond the row
	__syncthreads();
	const square mean = sum_runs<NORM_STEPS * waves>(parts) / d;
	const f32 r = (f32)(1 / sqrt(mean + (square)eps));
	part w;
	load(w, weight, d);
#pragma unroll
	for (int s = 0; s < NORM_STEPS; s++)
#pragma unroll
		for (int i = 0; i < NORM_VEC; i++) p.v[s][i] = p.v[s][i] * r * w.v[s][i];
}
#endif

NSTF_DEVICE void normalize(part& p, int d, const f32* weight, const f32* bias, f32 eps, f64* lds) {
	f64 mean = 0;
	if (NORM_KIND == 1) mean = moment<0>(p, d, 0, lds) / d;
	const f64 r = 1 / sqrt(moment<1>(p, d, mean, lds) / d + (f64)eps);
	part w, b;
	load(w, weight, d);
	if (NORM_KIND == 1 && bias) load(b, bias, d);
#pragma unroll
	for (int s = 0; s < NORM_STEPS; s++) {
#pragma unroll
		for (int i = 0; i < NORM_VEC; i++) {
			if (NORM_KIND == 0) {
				p.v[s][i] = p.v[s][i] * (f32)r * w.v[s][i];
				continue;
			}
			f64 y = ((f64)p.v[s][i] - mean) * r * (f64)w.v[s][i];
			if (bias) y += (f64)b.v[s][i];
			p.v[s][i] = (f32)y;
		}
	}
}

#if NORM_HALVES
// Brings a row to the order of tiles, as nstf_halve does.
NSTF_DEVICE void halve(const part& p, int d, u8* to, f32* rescale, int stride) {
	extern __shared__ __align__(16) u32 pairs[];
	const int waves = NORM_THREADS / NSTF_WAVE;
	__shared__ f32 tops[waves];
	f32 m = 0;
	bool odd = false;
#pragma unroll
	for (int s = 0; s < NORM_STEPS; s++)
#pragma unroll
		for (int i = 0; i < NORM_VEC; i++) {
			const f32 v = run_of(s) < d ? fabsf(p.v[s][i]) : 0;
			odd = odd || !(v < NSTF_INFINITY);
			m = wave_max_of(m, v);
		}
	m = wave_max<NSTF_WAVE>(odd ? NSTF_INFINITY : m);
	if (threadIdx.x % NSTF_WAVE == 0) tops[threadIdx.x / NSTF_WAVE] = m;
	__syncthreads();
	for (int i = 0; i < waves; i++) m = wave_max_of(m, tops[i]);
	const int e = halve_exponent(m);
	const f32 scale = power_of_two(e);
	if (threadIdx.x == 0) *rescale = power_of_two(-e);
#pragma unroll
	for (int s = 0; s < NORM_STEPS; s++) {
		if (run_of(s) >= d) continue;
#pragma unroll
		for (int i = 0; i < NORM_VEC; i += 2) pairs[(run_of(s) + i) / 2] = halves_of(p.v[s][i] * scale, p.v[s][i + 1] * scale);
	}
	for (int i = d / 2 + threadIdx.x; i < stride / 4; i += NORM_THREADS) pairs[i] = 0;
	__syncthreads();
	for (int i = threadIdx.x; i < stride / 16; i += NORM_THREADS) {
		u32 v[4];
#pragma unroll
		for (int j = 0; j < 4; j++) v[j] = pairs[matrix_source(8 * i + 2 * j) / 2];
		Words4 w;
		w.x = v[0], w.y = v[1], w.z = v[2], w.w = v[3];
		((Words4*)to)[i] = w;
	}
}
#endif

NSTF_KERNEL void __launch_bounds__(NORM_THREADS)
nstf_norm(int d, f32* x, const f32* a, const f32* a_weight, const f32* a_bias, f32 a_eps, const f32* b, const f32* b_weight,
	const f32* b_bias, f32 b_eps, const f32* weight, const f32* bias, f32 eps, f32* out NORM_FACTOR NORM_INBOX NORM_TILES) {
	__shared__ f64 lds[NORM_THREADS / NSTF_WAVE];
	begin_early();
	const i64 row = (i64)blockIdx.x * d;
	part h;
	if (!NORM_WHOLE) load(h, x + row, d);
	if (NORM_FROM || a) {
		part sum;
#if NORM_FROM
		receive(sum, a, blockIdx.x, d, slot, rank, number, {patience, state, lost}, inbox);
#else
		load(sum, a + row, d);
#endif
		if (a_weight) normalize(sum, d, a_weight, a_bias, a_eps, lds);
		if (b) {
			part other;
			load(other, b + row, d);
			if (b_weight) normalize(other, d, b_weight, b_bias, b_eps, lds);
#pragma unroll
			for (int s = 0; s < NORM_STEPS; s++)
#pragma unroll
				for (int i = 0; i < NORM_VEC; i++) sum.v[s][i] += other.v[s][i];
		}
#pragma unroll
		for (int s = 0; s < NORM_STEPS; s++)
#pragma unroll
			for (int i = 0; i < NORM_VEC; i++) h.v[s][i] = (NORM_WHOLE ? sum.v[s][i] : h.v[s][i] + sum.v[s][i]) NORM_TIMES;
		store(x + row, h, d);
	}
	if (weight) {
#if NORM_RUNS
		normalize_runs(h, d, weight, eps);
#else
		normalize(h, d, weight, bias, eps, lds);
#endif
#if NORM_HALVES
		halve(h, d, tiles + (i64)blockIdx.x * stride, rescale + blockIdx.x, stride);
#else
		store(out + row, h, d);
#endif
	}
}
