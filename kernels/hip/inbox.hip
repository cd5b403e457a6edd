// Inboxes of ranks, GPUs that compute one pass together: memory of a rank that all write and
// it alone reads, of a kind that no cache keeps between kernels. For each of two parities and
// each rank a slot. Exchanges of a pass are numbered; an exchange's mark is that number plus
// how many exchanges there were before, state[0], which nstf_exchange_end counts on. A slot is
// written again two exchanges later: whoever writes has seen the part of each rank for the
// exchange between, which that rank sent when it was done with this one.
//
// Few numbers: a slot is u64[slot], a number and its mark together, stored and loaded as one,
// so no fence is wanted. Many: a slot is f32[slot], or with EX_HALF f16 times a power of two
// of each 32 numbers, which lie in the slot's second half; behind all slots u32[2][ranks], a
// rank's mark, which a launch of its own sends behind those that sent the numbers: they need
// not wait until those have come. With EX_LEFT numbers are left in the rank's own inbox, from where copies
// of the driver's bring them, and nstf_meet sends the mark and waits for those of others.
//
// Whoever waited for patience looks in vain says so, in state[1] and for the host in *lost
// (rank+1), and takes what is there; later launches then do not wait. With a patience of 0
// nobody waits. Marks are u32 and come again after 2^32 exchanges.
//
// EX_RANKS ranks, 2 to 8. Addresses and slots at multiples of 16 bytes.
#include "common.hip"

#define INBOXES u64 *inbox0, u64 *inbox1, u64 *inbox2, u64 *inbox3, u64 *inbox4, u64 *inbox5, u64 *inbox6, u64 *inbox7
#define ALL_INBOXES {inbox0, inbox1, inbox2, inbox3, inbox4, inbox5, inbox6, inbox7}

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

NSTF_DEVICE void send_number(u64* to, f32 a, u32 mark) { *(volatile u64*)to = bits_of(a) | (u64)mark << 32; }

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

NSTF_DEVICE u32 mark_of(const u32* state, u32 number) { return ((const volatile u32*)state)[0] + number; }

// Who waits, and for how long.
struct Waiting {
	u32 patience;
	u32 *state, *lost;
	// How often a wait looks: hardly at all where a rank was given up before.
	__device__ __forceinline__ u32 left() const { return patience && ((const volatile u32*)state)[1] ? 1 : patience; }
	__device__ __forceinline__ void give_up(int rank) const {
		((volatile u32*)state)[1] = 1;
		*(volatile u32*)lost = (u32)rank + 1;
		__threadfence_system();
	}
};

// Waits for a line that was loaded once, and is loaded again until it has its marks.
NSTF_DEVICE void await_line(Line& l, const u64* from, u32 mark, const Waiting& w, int rank) {
	if (l.ma == mark && l.mb == mark) return;
	for (u32 left = w.left(); left && (l.ma != mark || l.mb != mark); l = load_line(from)) {
		if (--left == 0) {
			w.give_up(rank);
			break;
		}
		pause();
	}
}

// Numbers i to i+3 of few, of all ranks but this one, on their way.
struct Few {
	Line lines[EX_RANKS][2];
};

NSTF_DEVICE void load_few(Few& f, const u64* from, u64 slot, i64 i, int rank) {
#pragma unroll
	for (int r = 0; r < EX_RANKS; r++)
#pragma unroll
		for (int k = 0; k < 2; k++)
			if (r != rank) f.lines[r][k] = load_line(from + r * slot + i + 2 * k);
}

// What all ranks have of them, added in the order of ranks, once it is there.
NSTF_DEVICE pack<f32, 4> sum_of_few(Few& f, const pack<f32, 4>& own, const u64* from, u64 slot, i64 i, u32 mark, int rank, const Waiting& w) {
	pack<f32, 4> sum = own;
#pragma unroll
	for (int r = 0; r < EX_RANKS; r++) {
		pack<f32, 4> part = own;
		if (r != rank) {
#pragma unroll
			for (int k = 0; k < 2; k++) {
				Line& l = f.lines[r][k];
				await_line(l, from + r * slot + i + 2 * k, mark, w, r);
				part.v[2 * k] = of_bits(l.a), part.v[2 * k + 1] = of_bits(l.b);
			}
		}
#pragma unroll
		for (int k = 0; k < 4; k++) sum.v[k] = r == 0 ? part.v[k] : sum.v[k] + part.v[k];
	}
	return sum;
}

// Where a rank's mark of many numbers lies.
NSTF_DEVICE u32* mark_at(u64* inbox, u64 slot, u64 parity, int rank) { return (u32*)((f32*)inbox + 2 * EX_RANKS * slot) + parity * EX_RANKS + rank; }

// A load behind which everything is seen that came before what it reads was stored.
NSTF_DEVICE u32 load_acquired(const u32* p) {
#if defined(NSTF_CUDA)
	u32 v;
	asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
#else
	const u32 v = *(const volatile u32*)p;
	__threadfence_system();
	return v;
#endif
}

// Waits until all ranks have sent many numbers. All threads of a block come here.
NSTF_DEVICE void await_many(u64* inbox, u64 slot, u32 mark, int rank, const Waiting& w) {
	const int r = threadIdx.x;
	if (r < EX_RANKS && r != rank) {
		const u32* at = mark_at(inbox, slot, mark & 1, r);
		for (u32 left = w.left(); load_acquired(at) != mark && left;) {
			if (--left == 0) {
				w.give_up(r);
				break;
			}
			pause();
		}
	}
	__syncthreads();
}

#ifndef EX_HALF
#define EX_HALF 0
#endif
#ifndef EX_LEFT
#define EX_LEFT 0
#endif

#if EX_HALF
typedef u16 Sent; // f16 times a power of two of each 32 numbers
#else
typedef f32 Sent;
#endif

// The power of two that halves are multiplied with behind, and the one that numbers, of which the
// largest is given, are multiplied with before.
NSTF_DEVICE f32 sent_factor(f32 most, f32* up) {
	u32 e = bits_of(most) >> 23;
	e = e < 16 ? 16 : e > 254 ? 254 : e;
	*up = of_bits((127 + 14 + 127 - e) << 23); // the largest becomes less than 2^15
	return of_bits((e - 14) << 23);
}

// Writes numbers i to i+Run-1 of a rank's slots, Run*Lanes being the 32 that share a power of
// two, which Lanes lanes beside one another have. All lanes of a wave come here.
template <int Run> NSTF_DEVICE void send_many(u64* const (&inboxes)[8], u64 slot, u64 parity, int rank, i64 i, const pack<f32, Run>& v, bool there) {
	pack<Sent, Run> s;
#if EX_HALF
	f32 most = 0, up;
#pragma unroll
	for (int k = 0; k < Run; k++) most = wave_max_of(most, fabsf(v.v[k]));
	const f32 factor = sent_factor(wave_max<32 / Run>(most), &up);
#pragma unroll
	for (int k = 0; k < Run; k++) s.v[k] = half_nearest(v.v[k] * up);
#else
	s = v;
#endif
	if (!there) return;
#pragma unroll
	for (int r = 0; r < EX_RANKS; r++) {
		if (EX_LEFT && r != rank) continue;
		f32* to = (f32*)inboxes[r] + (parity * EX_RANKS + rank) * slot;
		((pack<Sent, Run>*)to)[i / Run] = s;
#if EX_HALF
		if (i % 32 == 0) to[slot / 2 + i / 32] = factor;
#endif
	}
}

// Numbers i to i+3 of many: all ranks' parts, added in the order of ranks.
NSTF_DEVICE pack<f32, 4> sum_of_many(const u64* inbox, u64 slot, u64 parity, i64 i) {
	pack<f32, 4> sum;
#pragma unroll
	for (int r = 0; r < EX_RANKS; r++) {
		const f32* from = (const f32*)inbox + (parity * EX_RANKS + r) * slot;
		const pack<Sent, 4> s = load_settled((const pack<Sent, 4>*)from + i / 4);
#if EX_HALF
		const f32 factor = load_settled(from + slot / 2 + i / 32);
#endif
#pragma unroll
		for (int k = 0; k < 4; k++) {
#if EX_HALF
			const f32 part = rounded_product(half_value(s.v[k]), factor);
#else
			const f32 part = s.v[k];
#endif
			sum.v[k] = r == 0 ? part : sum.v[k] + part;
		}
	}
	return sum;
}
