// Records of a part's blocks, put together into its output (attendpages.hip with PAGES_LAST 1 or PAGES_PHASE 2).
#if PAGES_LAST || PAGES_PHASE == 2
// Records of one kind: the highest score, the sum of weights and a sum of values.
struct settled {
	f32 top, sum, value;
};

// Two of them, or one and none.
NSTF_DEVICE settled settle_two(settled a, settled b) {
	const f32 top = wave_max_of(a.top, b.top), c = exp_f32(a.top - top), d = exp_f32(b.top - top);
	return {top, fmaf(a.sum, c, b.sum * d), fmaf(a.value, c, b.value * d)};
}

// Numbers of LDS that settle takes.
constexpr int SETTLE_LDS = ATTEND_QUERIES * (3 * (PAGES_SPLITS + 2) + (KV_CODED ? KV_VALUE : 0)) + 2 * (THREADS / NSTF_WAVE);
constexpr int SETTLE_AHEAD = least(PAGES_SPLITS, 16), SETTLE_EACH = ATTEND_QUERIES * KV_VALUE > THREADS ? 2 : 1; // records, and numbers, that a thread asks for at once

// A block puts the records of its part together, of which there are so many blocks' of each kind, into
// out[query][KV_VALUE], and where all was read says the squared errors without and with means. What
// decides is the latency of loads: a thread asks for its numbers of two kinds before their factors are there.
NSTF_DEVICE void settle(f32* out, const pages_part& t, const f32* records, const follow_plan& plan, const int (&blocks)[3], const f32* sinks, f32* errors, f32* lds) {
	constexpr int waves = THREADS / NSTF_WAVE;
	f32 *factors = lds, *totals = factors + ATTEND_QUERIES * 3 * PAGES_SPLITS, *sums = totals + ATTEND_QUERIES * 3 * 2, *turned = sums + 2 * waves;
	const int lane = threadIdx.x % NSTF_WAVE, wave = threadIdx.x / NSTF_WAVE;
	auto number = [&](int kind, int j, int i) { return records[(i64)(kind * PAGES_SPLITS + j) * ATTEND_RECORD + 2 * ATTEND_QUERIES + i]; };
	f32 ahead[SETTLE_EACH][2][SETTLE_AHEAD]; // of what is read, and of means
	auto ask = [&](int from) {
#pragma unroll
		for (int e = 0; e < SETTLE_EACH; e++)
#pragma unroll
			for (int k = 0; k < 2; k++)
#pragma unroll
				for (int j = 0; j < SETTLE_AHEAD; j++) ahead[e][k][j] = from + e * THREADS < t.here * KV_VALUE && j < blocks[2 * k] ? number(2 * k, j, from + e * THREADS) : 0.0f;
	};
	ask(threadIdx.x);
	for (int i = wave; i < 3 * t.here; i += waves) {
		const int g = i % t.here, kind = i / t.here, count = kind == 0 ? blocks[0] : kind == 1 ? blocks[1] : blocks[2];
		if (count == 0) continue;
		const f32* from = records + (i64)kind * PAGES_SPLITS * ATTEND_RECORD + g;
		constexpr int rounds = (PAGES_SPLITS + NSTF_WAVE - 1) / NSTF_WAVE;
		f32 top[rounds], all[rounds], highest = FOLLOW_NONE, sum = 0;
#pragma unroll
		for (int r = 0; r < rounds; r++) {
			const int j = r * NSTF_WAVE + lane;
			top[r] = j < count ? from[(i64)j * ATTEND_RECORD] : FOLLOW_NONE;
			all[r] = j < count ? from[(i64)j * ATTEND_RECORD + ATTEND_QUERIES] : 0.0f;
			highest = wave_max_of(top[r], highest);
		}
		highest = wave_max<NSTF_WAVE>(highest);
#pragma unroll
		for (int r = 0; r < rounds; r++) {
			const int j = r * NSTF_WAVE + lane;
			const f32 c = exp_f32(top[r] - highest);
			if (j < PAGES_SPLITS) factors[(g * 3 + kind) * PAGES_SPLITS + j] = c;
			sum = fmaf(c, all[r], sum);
		}
		sum = wave_sum<NSTF_WAVE>(sum);
		if (lane == 0) totals[(g * 3 + kind) * 2] = highest, totals[(g * 3 + kind) * 2 + 1] = sum;
	}
	__syncthreads();
	f32 without_error = 0, with_error = 0;
	auto settle_one = [&](int i, const f32 (&own)[2][SETTLE_AHEAD]) {
		const int g = i / KV_VALUE;
		auto of = [&](int kind) {
			const f32 *factor = factors + (g * 3 + kind) * PAGES_SPLITS, *total = totals + (g * 3 + kind) * 2;
			f32 value = 0;
			if (kind != 1)
#pragma unroll
				for (int j = 0; j < SETTLE_AHEAD; j++) value = fmaf(factor[j], own[kind / 2][j], value); // 0 where there is none
			for (int j = kind == 1 ? 0 : SETTLE_AHEAD; j < blocks[kind]; j++) value = fmaf(factor[j], number(kind, j, i), value);
			return settled{total[0], total[1], value};
		};
		auto value_of = [](settled s) { return s.sum == 0 ? 0.0f : s.value / s.sum; };
		settled read = of(0);
#if ATTEND_SINKS
		read = settle_two(read, {sinks[g], 1, 0});
#endif
		const f32 without = value_of(read);
		f32 with = without, full = without;
		if (blocks[2] != 0) full = with = value_of(settle_two(read, of(2)));
		if (blocks[1] != 0) full = value_of(settle_two(read, of(1)));
		else if (plan.whole) full = without;
		without_error = fmaf(without - full, without - full, without_error);
		with_error = fmaf(with - full, with - full, with_error);
		(KV_CODED ? turned : out)[i] = full;
	};
	for (int from = threadIdx.x; from < t.here * KV_VALUE; from += SETTLE_EACH * THREADS) {
		if (from != (int)threadIdx.x) ask(from);
#pragma unroll
		for (int e = 0; e < SETTLE_EACH; e++)
			if (from + e * THREADS < t.here * KV_VALUE) settle_one(from + e * THREADS, ahead[e]);
	}
#if KV_CODED // what was summed of turned values is turned back
	__syncthreads();
	for (int g = wave; g < t.here; g += waves) {
		kv_turn<KV_VALUE>(turned + g * KV_VALUE);
		for (int i = lane; i < KV_VALUE; i += NSTF_WAVE) out[g * KV_VALUE + i] = turned[g * KV_VALUE + i];
	}
#endif
	if (!plan.whole) return;
	without_error = wave_sum<NSTF_WAVE>(without_error), with_error = wave_sum<NSTF_WAVE>(with_error);
	if (lane == 0) sums[2 * wave] = without_error, sums[2 * wave + 1] = with_error;
	__syncthreads();
	if (threadIdx.x >= 2) return;
	f32 sum = 0;
	for (int w = 0; w < waves; w++) sum += sums[2 * w + threadIdx.x];
	errors[threadIdx.x] = sum;
}
#endif
