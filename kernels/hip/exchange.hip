// What ranks, GPUs that compute one pass together, have each a part of: sums of all
// ranks' rows in the order of ranks, or rows laid side by side.
//
//	sum:    for i < n: out[i] = (residual ? residual[i] : 0) + (part_0[i] + part_1[i] + ...)
//	gather: for t, j:  out[t*stride + first_r + j] = part_r[t*width_r + j]
//
// own f32[n] is this rank's part. inbox_r is memory of rank r that all ranks write and rank
// r alone reads, of a kind that no cache keeps between kernels: for each of two parities and
// each rank a slot. Exchanges of a pass are numbered; a line's mark is that number plus how
// many exchanges there were before, state[0], which nstf_exchange_end counts on. A slot is
// written again two exchanges later: whoever writes has seen the part of each rank for the
// exchange between, which that rank sent when it was done with this one.
//
// Few numbers (nstf_exchange): a slot is u64[slot], a number and its mark together, stored
// and loaded as one, so no fence is wanted. A thread sends its numbers to all, then waits
// for those of all; the grid is small enough that all blocks run at once on every rank. Many (nstf_exchange_send, nstf_exchange_sum): a slot is f32[slot], and
// behind all slots lies u32[2][ranks][EX_BLOCKS], the mark of the piece that each block sent;
// blocks of the first launch never wait, and the second reads what blocks of the first sent.
//
// Whoever waited for patience looks in vain says so, in state[1] and for the host in *lost
// (rank+1), and takes what is there; later launches then do not wait. Marks are u32 and come
// again after 2^32 exchanges.
//
// EX_RANKS ranks, 2 to 8. Addresses and slots at multiples of 16 bytes.
// Grid: of nstf_exchange 256 threads, two numbers at a time; of the others EX_BLOCKS at most, of
// 256 threads. No LDS. Deterministic: ranks are added in order, so all have the same bits.
// Bound: the link's latency, or 4 bytes for each number and rank.
#include "common.hip"

#define EX_BLOCKS 512

// Two numbers with a mark each.
struct Line {
	u32 a, ma, b, mb;
};

NSTF_DEVICE void send_line(u64* to, f32 a, f32 b, u32 mark) {
#if defined(NSTF_CUDA)
	asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(bits_of(a)), "r"(mark), "r"(bits_of(b)), "r"(mark) : "memory");
#else
	*(volatile u64*)to = bits_of(a) | (u64)mark << 32;
	*(volatile u64*)(to + 1) = bits_of(b) | (u64)mark << 32;
#endif
}

NSTF_DEVICE Line load_line(const u64* from) {
	Line l;
#if defined(NSTF_CUDA)
	asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(l.a), "=r"(l.ma), "=r"(l.b), "=r"(l.mb) : "l"(from) : "memory");
#else
	const u64 x = *(const volatile u64*)from, y = *(const volatile u64*)(from + 1);
	l.a = (u32)x, l.ma = (u32)(x >> 32), l.b = (u32)y, l.mb = (u32)(y >> 32);
#endif
	return l;
}

NSTF_DEVICE void pause() {
#if !defined(NSTF_CUDA)
	__builtin_amdgcn_s_sleep(1);
#endif
}

// How often a wait looks: hardly at all where a rank was given up before.
NSTF_DEVICE u32 patience_left(const u32* state, u32 patience) { return ((const volatile u32*)state)[1] ? 1 : patience; }

NSTF_DEVICE void give_up(u32* state, u32* lost, int rank) {
	((volatile u32*)state)[1] = 1;
	*(volatile u32*)lost = (u32)rank + 1;
	__threadfence_system();
}

NSTF_DEVICE Line wait_line(const u64* from, u32 mark, u32 patience, u32* state, u32* lost, int rank) {
	Line l = load_line(from);
	for (u32 left = patience_left(state, patience); l.ma != mark || l.mb != mark; l = load_line(from)) {
		if (--left == 0) {
			give_up(state, lost, rank);
			break;
		}
		pause();
	}
	return l;
}

#define INBOXES u64 *inbox0, u64 *inbox1, u64 *inbox2, u64 *inbox3, u64 *inbox4, u64 *inbox5, u64 *inbox6, u64 *inbox7
#define ALL_INBOXES {inbox0, inbox1, inbox2, inbox3, inbox4, inbox5, inbox6, inbox7}

// The first of the columns of a rank, of all in units.
NSTF_DEVICE int first_column(int rank, int units, int unit) { return (int)((i64)units * rank / EX_RANKS) * unit; }

// rows > 0: rows are laid side by side, of units*unit columns in all; else they are added.
NSTF_KERNEL void __launch_bounds__(256) nstf_exchange(f32* out, const f32* residual, const f32* own, int n, int rows, int units, int unit, u64 slot, int rank, u32 number,
    u32 patience, u32* state, u32* lost, INBOXES) {
	begin_early();
	u64* const inboxes[8] = ALL_INBOXES;
	const u32 mark = ((const volatile u32*)state)[0] + number;
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
				const Line l = wait_line(from + r * slot + i, mark, patience, state, lost, r);
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
				const Line l = wait_line(from + r * slot + i, mark, patience, state, lost, r);
				part[0] = of_bits(l.a), part[1] = of_bits(l.b);
			}
#pragma unroll
			for (int k = 0; k < 2; k++)
				if (i + k < count) out[(i64)((i + k) / wide) * ((i64)units * unit) + first + (i + k) % wide] = part[k];
		}
	}
}

// Of many numbers a block has a piece, of whole groups of 32: a thread takes four at a time.
NSTF_DEVICE i64 piece_of(i64 n) { return ((n + 31) / 32 + gridDim.x - 1) / gridDim.x * 32; }

NSTF_DEVICE volatile u32* marks_of(u64* inbox, u64 slot, u64 parity, int rank) {
	return (volatile u32*)((f32*)inbox + 2 * EX_RANKS * slot) + (parity * EX_RANKS + rank) * EX_BLOCKS + blockIdx.x;
}

#if EX_HALF
typedef pack<u16, 4> Sent; // f16 times a power of two of each 32 numbers, which lies in the slot's second half
#else
typedef pack<f32, 4> Sent;
#endif

// What is sent of four numbers, and the factor that it is multiplied with behind. All lanes
// of a wave come here.
NSTF_DEVICE Sent sent_of(const pack<f32, 4>& v, f32* factor) {
#if EX_HALF
	f32 most = 0;
#pragma unroll
	for (int k = 0; k < 4; k++) most = wave_max_of(most, fabsf(v.v[k]));
	u32 e = bits_of(wave_max<8>(most)) >> 23;
	e = e < 16 ? 16 : e > 254 ? 254 : e;
	const f32 up = of_bits((127 + 14 + 127 - e) << 23); // the largest becomes less than 2^15
	*factor = of_bits((e - 14) << 23);
	Sent s;
#pragma unroll
	for (int k = 0; k < 4; k++) s.v[k] = half_nearest(v.v[k] * up);
	return s;
#else
	return v;
#endif
}

NSTF_DEVICE pack<f32, 4> value_of(const Sent& s, f32 factor) {
#if EX_HALF
	pack<f32, 4> v;
#pragma unroll
	for (int k = 0; k < 4; k++) v.v[k] = rounded_product(half_value(s.v[k]), factor);
	return v;
#else
	return s;
#endif
}

NSTF_DEVICE pack<f32, 4> numbers_at(const f32* p, bool there) {
	pack<f32, 4> v;
	if (there) v = *(const pack<f32, 4>*)p;
#pragma unroll
	for (int k = 0; k < 4; k++) v.v[k] = there ? v.v[k] : 0.0f;
	return v;
}

NSTF_KERNEL void __launch_bounds__(256) nstf_exchange_send(const f32* own, i64 n, u64 slot, int rank, u32 number, const u32* state, INBOXES) {
	begin_early();
	u64* const inboxes[8] = ALL_INBOXES;
	const u32 mark = ((const volatile u32*)state)[0] + number;
	const u64 parity = mark & 1;
	const i64 piece = piece_of(n), end = min(n, (i64)(blockIdx.x + 1) * piece);
	for (i64 at = (i64)blockIdx.x * piece; at < end; at += 4 * 256) {
		const i64 i = at + 4 * threadIdx.x;
		f32 factor = 1;
		const Sent s = sent_of(numbers_at(own + i, i < end), &factor);
		if (i >= end) continue;
#pragma unroll
		for (int r = 0; r < EX_RANKS; r++) {
			if (r == rank) continue;
			f32* to = (f32*)inboxes[r] + (parity * EX_RANKS + rank) * slot;
			((Sent*)to)[i / 4] = s;
#if EX_HALF
			if (threadIdx.x % 8 == 0) to[slot / 2 + i / 32] = factor;
#endif
		}
	}
	__threadfence_system();
	__syncthreads();
	if (threadIdx.x < EX_RANKS && (int)threadIdx.x != rank) *marks_of(inboxes[threadIdx.x], slot, parity, rank) = mark;
}

NSTF_KERNEL void __launch_bounds__(256) nstf_exchange_sum(f32* out, const f32* residual, const f32* own, i64 n, u64 slot, int rank, u32 number, u32 patience, u32* state, u32* lost,
    INBOXES) {
	begin_early();
	u64* const inboxes[8] = ALL_INBOXES;
	const u32 mark = ((const volatile u32*)state)[0] + number;
	const u64 parity = mark & 1;
	if (threadIdx.x < EX_RANKS && (int)threadIdx.x != rank) {
		const volatile u32* m = marks_of(inboxes[rank], slot, parity, threadIdx.x);
		for (u32 left = patience_left(state, patience); *m != mark;) {
			if (--left == 0) {
				give_up(state, lost, threadIdx.x);
				break;
			}
			pause();
		}
		__threadfence_system();
	}
	__syncthreads();
	const i64 piece = piece_of(n), end = min(n, (i64)(blockIdx.x + 1) * piece);
	for (i64 at = (i64)blockIdx.x * piece; at < end; at += 4 * 256) {
		const i64 i = at + 4 * threadIdx.x;
		f32 factor = 1;
		const Sent s = sent_of(numbers_at(own + i, i < end), &factor);
		if (i >= end) continue;
		const pack<f32, 4> mine = value_of(s, factor); // as the others have it
		pack<f32, 4> sum;
#pragma unroll
		for (int r = 0; r < EX_RANKS; r++) {
			pack<f32, 4> part = mine;
			if (r != rank) {
				const f32* from = (const f32*)inboxes[rank] + (parity * EX_RANKS + r) * slot;
				f32 its = 1;
#if EX_HALF
				its = load_settled(from + slot / 2 + i / 32);
#endif
				part = value_of(load_settled((const Sent*)from + i / 4), its);
			}
#pragma unroll
			for (int k = 0; k < 4; k++) sum.v[k] = r == 0 ? part.v[k] : sum.v[k] + part.v[k];
		}
		if (residual) {
			const pack<f32, 4> x = *(const pack<f32, 4>*)(residual + i);
#pragma unroll
			for (int k = 0; k < 4; k++) sum.v[k] = x.v[k] + sum.v[k];
		}
		*(pack<f32, 4>*)(out + i) = sum;
	}
}

// The end of a pass of so many exchanges.
NSTF_KERNEL void __launch_bounds__(64) nstf_exchange_end(u32* state, u32 count) {
	begin_early();
	if (threadIdx.x == 0) state[0] += count;
}
