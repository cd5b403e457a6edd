// The products of tcqmatvec.hip on NVIDIA's matrix unit, mma.m16n8k32 of signed
// bytes: the four bytes of a state's product meet four copies of the activation.
//
// As without it, a lane takes a whole tile, so that its windows lie at places that
// the compiler knows. Lanes 4g to 4g+3 have four tiles of one strip that follow one
// another; TCQ_PARTS such fours follow one another too, and 8 / TCQ_PARTS strips are
// multiplied at once. An instruction sums over the four lanes of a g: two columns of
// two rows of each one's tile, the rows being the instruction's rows g and g + 8.
// All 16 rows take 8 sets of sums.
//
// Its 8 columns are not only rows of x. Parts have inputs of their own, and the four
// tiles of one have two scales of activations; TCQ_STEPS steps share sums. So column n
// stands for
//
//	n = (part * TCQ_PAD + t) * 2 * TCQ_STEPS + 2 * step + half
//
// and holds the inputs of its part, row, step and half, else zeros. Of the sums of row
// g only those are taken whose part is g's; what other columns get is thrown away.
//
// LDS (dynamic): for each wave TCQ_STAGES tiles of every lane and their inputs, which
// copies of 16 bytes bring; a lane reads what it has copied itself.
//
// Source: PTX ISA 8.5, 9.7.14 (fragments) and 9.7.9.25 (copies). Bound: 3.2
// instructions per weight at 2 and 4 bits for up to 4 rows. Pipes take one instruction
// in two clocks: multiplications 1.3 for each weight, shifts and masks 1.4.
#include "tcqcode.hip"
#include "acts.hip"

#define TCQ_PAD (TCQ_T > 2 ? 4 : TCQ_T) // rows of x among the columns
#define TCQ_PARTS (TCQ_LANES / 4)
#define TCQ_STEPS (4 / (TCQ_PARTS * TCQ_PAD))
#define TCQ_SHARES (TCQ_PARTS * TCQ_STEPS) // sums of one output in a wave

#define TCQ_STAGE ((TCQ_PIECES + 1) * 32)     // pieces of 16 bytes, the last ones are inputs
#define TCQ_WAVE_LDS (TCQ_STAGES * TCQ_STAGE) // pieces

// A sum of integers that starts here is the float 3 * 2^22 + sum.
#define TCQ_START 0x4b400000

NSTF_DEVICE void tcq_copy(uint4 *lds, const void *global, u32 bytes) { // the rest of 16 becomes zeros
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(lds)), "l"(global), "r"(bytes) : "memory");
}

// A wave's way through its strips: steps of TCQ_LANES tiles, TCQ_STEPS of which are a
// period.
struct TcqStrip {
	const uint4 *codes; // of the strip's first tile
	const u8 *x;
	uint4 *lds; // of this lane, the first stage
	i64 tiles;
	int k, period, step; // of what is copied next
	uint4 *stage;

	NSTF_MEMBER int first() const { return period + step * TCQ_LANES; }

	NSTF_MEMBER void copy_codes() const {
		const int u = first() + (int)threadIdx.x % TCQ_LANES;
		if (u >= k / 16) return;
#pragma unroll
		for (int p = 0; p < TCQ_PIECES; p++) tcq_copy(stage + p * 32, codes + p * tiles + u, 16);
	}

	// Copies the first tiles.
	NSTF_MEMBER void begin() const {
		TcqStrip to = *this;
#pragma unroll
		for (int i = 0; i < TCQ_STAGES - 1; i++) to.copy_codes(), to.advance();
	}

	// The lane's column of inputs, the last copy of a step: zeros where it is another
	// step's or half's.
	NSTF_MEMBER void copy_inputs() const {
		const int n = threadIdx.x % 32 / 4, four = threadIdx.x % 4, q = n % (2 * TCQ_STEPS);
		const int u = first() + n / (2 * TCQ_STEPS * TCQ_PAD) * 4 + four, t = n / (2 * TCQ_STEPS) % TCQ_PAD;
		const bool mine = q == 2 * step + four / 2 && t < TCQ_T && u < k / 16;
		tcq_copy(stage + TCQ_PIECES * 32, x + (mine ? (i64)t * acts_row_bytes(k) + acts_piece(u) * 16 : 0), mine ? 16 : 0);
		asm volatile("cp.async.commit_group;" ::: "memory");
	}

	NSTF_MEMBER void advance() {
		stage = stage + TCQ_STAGE < lds + TCQ_WAVE_LDS ? stage + TCQ_STAGE : lds;
		if (++step < TCQ_STEPS) return;
		step = 0, period += TCQ_WAVES * TCQ_STEPS * TCQ_LANES;
	}

	// The scales of the lane's two columns of sums, in the period that begins at tile u.
	NSTF_MEMBER void scales(f32 (&d)[2], int u) const {
		const int four = threadIdx.x % 4, t = four / TCQ_STEPS % TCQ_PAD;
		u += four % TCQ_STEPS * TCQ_LANES + four / (TCQ_STEPS * TCQ_PAD) * 4;
		d[0] = d[1] = 0;
		if (t >= TCQ_T || u >= k / 16) return;
		const uint4 pairs = *(const uint4 *)(x + (i64)t * acts_row_bytes(k) + acts_padded(k) + u / 2 * 8);
		d[0] = of_bits(pairs.x);
		if (u + 2 < k / 16) d[1] = of_bits(pairs.z);
	}
};

// The two rows of a tile whose sums are set i: where it can be, their states are
// the halves of one word.
NSTF_DEVICE constexpr int tcq_row(int i, int half) { return TCQ_BITS == 4 ? i % 4 + i / 4 * 8 + half * 4 : i + half * 8; }

// The bytes of both rows of a set in column c.
NSTF_DEVICE void tcq_rows(const u32 *ring, int c, int i, u32 &a, u32 &b) {
	const int at = (16 * c + tcq_row(i, 0)) * TCQ_BITS, bit = at % 32;
	if (TCQ_BITS == 2 || TCQ_BITS == 4) {
		const u32 w = bit ? tcq_window(ring[at / 32], ring[at / 32 + 1], bit) : ring[at / 32];
		b = tcq_bytes(w >> 16);
		if (TCQ_PAIRED)
			a = tcq_bytes(w);
		else if (i % 2)
			a = product_of(b, 0xffff0000, tcq_bytes(w)); // less what the upper half adds, by the other pipe
		else
			a = tcq_bytes(w & 0xffff);
		return;
	}
	a = tcq_bytes(tcq_state(ring, c, tcq_row(i, 0)));
	b = tcq_bytes(tcq_state(ring, c, tcq_row(i, 1)));
}

// Copies of byte i of v, as many as a state's product has bytes.
NSTF_DEVICE u32 tcq_copies(u32 v, int i) { return choose_bytes(v, 0, TCQ_PAIRED ? 0x4400 + i * 0x11 : i * 0x1111); }

NSTF_DEVICE void tcq_mma(i32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, bool begin) {
	if (begin) {
		asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
		    : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
		    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(TCQ_START));
		return;
	}
	asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
	    : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
	    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Multiplies the lane's tile. Sums begin anew where `begin` says so.
NSTF_DEVICE void multiply(i32 (&dots)[8][4], const uint4 *lds, bool begin) {
	u32 ring[TCQ_WORDS + 1];
#pragma unroll
	for (int p = 0; p < TCQ_PIECES; p++) {
		const uint4 v = lds[p * 32];
		ring[4 * p] = v.x, ring[4 * p + 1] = v.y, ring[4 * p + 2] = v.z, ring[4 * p + 3] = v.w;
	}
	ring[TCQ_WORDS] = ring[0];
	const uint4 in = lds[TCQ_PIECES * 32];
	const u32 inputs[4] = {in.x, in.y, in.z, in.w};
#pragma unroll
	for (int c = 0; c < 16; c += 2) {
		const u32 v = inputs[c / 4], b0 = tcq_copies(v, c % 4), b1 = tcq_copies(v, c % 4 + 1);
#pragma unroll
		for (int i = 0; i < 8; i++) {
			u32 w[4];
			tcq_rows(ring, c, i, w[0], w[1]);
			tcq_rows(ring, c + 1, i, w[2], w[3]);
			tcq_mma(dots[i], w, b0, b1, begin && c == 0);
		}
	}
}

// Multiplies a wave's share of its strips. sums are those of the lane's strip and row
// of x.
NSTF_DEVICE void multiply(f32 (&sums)[16], TcqStrip &strip) {
	const uint4 *lds = strip.lds;
#pragma unroll
	for (int i = 0; i < TCQ_STAGES - 1; i++) {
		strip.copy_inputs();
		strip.advance();
	}
	const uint4 *now = lds;
	for (int u = threadIdx.x / 32 * (TCQ_STEPS * TCQ_LANES); u < strip.k / 16; u += TCQ_WAVES * TCQ_STEPS * TCQ_LANES) {
		f32 d[2];
		strip.scales(d, u);
		i32 dots[8][4];
#pragma unroll
		for (int s = 0; s < TCQ_STEPS; s++) {
			strip.copy_codes();
			strip.copy_inputs();
			strip.advance();
			asm volatile("cp.async.wait_group %0;" ::"n"(TCQ_STAGES - 1) : "memory");
			multiply(dots, now, s == 0);
			now = now + TCQ_STAGE < lds + TCQ_WAVE_LDS ? now + TCQ_STAGE : lds;
		}
#pragma unroll
		for (int i = 0; i < 8; i++)
#pragma unroll
			for (int j = 0; j < 4; j++) {
				f32 &sum = sums[tcq_row(i, j / 2)];
				sum = fmaf(d[j % 2], of_bits((u32)dots[i][j]) - of_bits(TCQ_START), sum);
			}
	}
}
