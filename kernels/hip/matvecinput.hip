// How matvec.hip brings activations to LDS.

#if MATVEC_FROM
#define MATVEC_RECEIVES , const From &ranks
#define MATVEC_RECEIVED , ranks
#else
#define MATVEC_RECEIVES
#define MATVEC_RECEIVED
#endif

// Pieces of 16 bytes that a thread moves in a row of n bytes.
#define MATVEC_PIECES(n) (((n) / 16 + MATVEC_THREADS - 1) / MATVEC_THREADS)

#if MATVEC_SOURCE == MATVEC_ACTS
// Copies n bytes, every load before the first store.
NSTF_DEVICE void copy_rows(u8 *to, const u8 *from) {
	const int bytes = MATVEC_T * MATVEC_ROW, most = 8;
	for (int start = 0; start < MATVEC_PIECES(bytes); start += most) {
		Words4 v[most];
#pragma unroll
		for (int i = 0; i < most; i++) {
			const int at = (start + i) * MATVEC_THREADS + threadIdx.x;
			if (start + i < MATVEC_PIECES(bytes) && at < bytes / 16) v[i] = ((const Words4 *)from)[at];
		}
#pragma unroll
		for (int i = 0; i < most; i++) {
			const int at = (start + i) * MATVEC_THREADS + threadIdx.x;
			if (start + i < MATVEC_PIECES(bytes) && at < bytes / 16) ((Words4 *)to)[at] = v[i];
		}
	}
}
#endif

#if MATVEC_SOURCE != MATVEC_ACTS && MATVEC_LDS
#define MATVEC_QUADS ((MATVEC_INT ? acts_padded(MATVEC_K) : MATVEC_K) / 4)
#define MATVEC_COUNT ((MATVEC_QUADS + MATVEC_THREADS - 1) / MATVEC_THREADS) // quads of a thread
#define MATVEC_HELD (MATVEC_COUNT < 8 ? MATVEC_COUNT : 8)                  // of them in registers

// Four numbers of a row of K: the thread's quad j.
NSTF_DEVICE float4 quad_of(const float4 *row, int j) {
	const int i = j * MATVEC_THREADS + threadIdx.x;
	return i * 4 < MATVEC_K ? row[i] : make_float4(0, 0, 0, 0);
}

NSTF_DEVICE void put_quad(u8 *to, int j, float4 q) {
	const int i = j * MATVEC_THREADS + threadIdx.x;
#if MATVEC_INT
	put_acts<MATVEC_GROUP>(to, MATVEC_K, i, q, i < MATVEC_QUADS); // whole groups of 8 lanes are in or out
#else
	if (i < MATVEC_QUADS) ((float4 *)to)[i] = q;
#endif
}

#if MATVEC_FROM
// What all ranks have of the rows of x: see inbox.hip.
struct From {
	f32 *settled; // where the sums go
	u64 slot;
	int rank;
	u32 number;
	Waiting waiting;
	const u64 *inbox;
};

// A row of theirs, quads of which a thread asks for before it waits for the first.
struct Row {
	const float4 *own;
	float4 *settled;
	const u64 *from;
	u64 slot;
	i64 first;
	u32 mark;
	int rank;
	Waiting waiting;
	struct Quad {
		float4 own;
		Few few;
	};
	static __device__ __forceinline__ int place(int j) { return j * MATVEC_THREADS + threadIdx.x; }
	__device__ __forceinline__ void ask(Quad &q, int j, const u64 *at) const {
		if (place(j) * 4 >= MATVEC_K) return;
		q.own = own[place(j)];
		load_few(q.few, at, slot, first + place(j) * 4, rank);
	}
	__device__ __forceinline__ float4 sum(Quad &q, int j) const {
		const int i = place(j);
		if (i * 4 >= MATVEC_K) return make_float4(0, 0, 0, 0);
		const pack<f32, 4> s = sum_of_few(q.few, {{q.own.x, q.own.y, q.own.z, q.own.w}}, from, slot, first + i * 4, mark, rank, waiting);
		const float4 all = make_float4(s.v[0], s.v[1], s.v[2], s.v[3]);
		if (blockIdx.x == 0) settled[i] = all;
		return all;
	}
	__device__ __forceinline__ float4 at(int j) const {
		Quad q;
		ask(q, j, from);
		return sum(q, j);
	}
};
#endif

// Brings rows of x to LDS, normalised and rounded. Of a row and of the norm's
// weights, the first part stays in registers; weights are no launch's output and
// come before those have ended.
NSTF_DEVICE void bring_rows(u8 *to, const float4 *x, const float4 *weight, f32 eps MATVEC_RECEIVES) {
#if MATVEC_SOURCE == MATVEC_NORM
	float4 w[MATVEC_HELD];
#pragma unroll
	for (int j = 0; j < MATVEC_HELD; j++) w[j] = quad_of(weight, j);
#endif
#if MATVEC_FROM
	const u32 guess = mark_of(ranks.waiting.state, ranks.number); // another's if launches of the pass before still run
	wait_for_inputs();
	const u32 mark = mark_of(ranks.waiting.state, ranks.number);
	auto inbox_of = [&](u32 mark) { return ranks.inbox + (mark & 1) * EX_RANKS * ranks.slot; };
#else
	wait_for_inputs();
#endif
	for (int t = 0; t < MATVEC_T; t++, x += MATVEC_K / 4, to += MATVEC_INT ? MATVEC_ROW : MATVEC_K * 4) {
		float4 v[MATVEC_HELD];
#if MATVEC_FROM
		const Row row = {x, (float4 *)ranks.settled + (i64)t * (MATVEC_K / 4), inbox_of(mark), ranks.slot, (i64)t * MATVEC_K, mark, ranks.rank, ranks.waiting};
		auto quad = [&](int j) { return row.at(j); };
#pragma unroll
		for (int j = 0; j < MATVEC_HELD; j += 2) {
			Row::Quad one, two;
			row.ask(one, j, inbox_of(guess));
			if (j + 1 < MATVEC_HELD) row.ask(two, j + 1, inbox_of(guess));
			v[j] = row.sum(one, j);
			if (j + 1 < MATVEC_HELD) v[j + 1] = row.sum(two, j + 1);
		}
#else
		auto quad = [&](int j) { return quad_of(x, j); };
#pragma unroll
		for (int j = 0; j < MATVEC_HELD; j++) v[j] = quad(j);
#endif
#if MATVEC_SOURCE == MATVEC_NORM
#if MATVEC_EXACT_NORM
		typedef f64 square;
		auto squares = [](float4 q) { return run_squares((f64)q.x, (f64)q.y, (f64)q.z, (f64)q.w); };
#else
		typedef f32 square;
		auto squares = [](float4 q) { return run_squares(q); };
#endif
		__shared__ square parts[MATVEC_COUNT * MATVEC_WAVES];
		if (t > 0) __syncthreads(); // those of the row before have been read
#pragma unroll
		for (int j = 0; j < MATVEC_HELD; j++) keep_runs<MATVEC_WAVES>(squares(v[j]), j, parts);
		for (int j = MATVEC_HELD; j < MATVEC_COUNT; j++) keep_runs<MATVEC_WAVES>(squares(quad(j)), j, parts);
		__syncthreads();
		const square mean = sum_runs<MATVEC_COUNT * MATVEC_WAVES>(parts) / MATVEC_K;
		const f32 r = (f32)(1 / sqrt(mean + (square)eps));
		auto scaled = [&](float4 q, float4 w) { return make_float4(q.x * r * w.x, q.y * r * w.y, q.z * r * w.z, q.w * r * w.w); };
#pragma unroll
		for (int j = 0; j < MATVEC_HELD; j++) put_quad(to, j, scaled(v[j], w[j]));
		for (int j = MATVEC_HELD; j < MATVEC_COUNT; j++) put_quad(to, j, scaled(quad(j), quad_of(weight, j)));
#else
#pragma unroll
		for (int j = 0; j < MATVEC_HELD; j++) put_quad(to, j, v[j]);
		for (int j = MATVEC_HELD; j < MATVEC_COUNT; j++) put_quad(to, j, quad(j));
#endif
	}
}
#endif

// Brings the T rows of x from `first` on to LDS, or says where they are, once
// they have been written.
NSTF_DEVICE void bring(Input &in, const u8 *x, const f32 *weight, f32 eps, int first MATVEC_RECEIVES) {
#if MATVEC_SOURCE != MATVEC_ACTS && MATVEC_LDS
	bring_rows((u8 *)in.rows, (const float4 *)x + (i64)first * (MATVEC_K / 4), (const float4 *)weight, eps MATVEC_RECEIVED);
#else
	wait_for_inputs();
	const u8 *from = x + (i64)first * (MATVEC_SOURCE == MATVEC_ACTS ? MATVEC_ROW : MATVEC_K * 4);
#if MATVEC_LDS
	copy_rows((u8 *)in.rows, from);
#else
	in.rows = from;
#endif
#endif
}
