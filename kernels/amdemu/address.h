// Where a lane's memory instruction goes: global, flat, scratch, LDS and buffer
// addressing, each checked to the byte.
#pragma once
#include "lanes.h"

enum Segment { GLOBAL, FLAT, SCRATCH, BUFFER };

// What moves between memory and a register: its size, and how a register takes it.
// D16 types fill the lower half of a register, D16H the upper.
enum Transfer { T_U8, T_I8, T_U16, T_I16, T_B32, T_B64, T_B96, T_B128, T_D16U8, T_D16I8, T_D16B16, T_D16HU8, T_D16HI8, T_D16HB16 };
static constexpr u32 transfer_size[] = {1, 1, 2, 2, 4, 8, 12, 16, 1, 1, 2, 1, 1, 2};
static constexpr bool is_wide(int t) { return t >= T_B32 && t <= T_B128; }
static constexpr int registers_of(int t) { return t == T_B64 ? 2 : t == T_B96 ? 3 : t == T_B128 ? 4 : 1; }

// Upper halves of flat addresses that mean LDS and scratch.
static constexpr u64 SHARED_HIGH = 0x00010000, PRIVATE_HIGH = 0x00020000;
// Base of the buffer through which gfx9 and gfx10 reach scratch.
static constexpr u64 SCRATCH_MARK = 0xA5C300000000ull;

static inline u8* lds_address(Wave& w, u32 off, u32 size, int lane) {
	if (unlikely((u64)off + size > w.lds_size))
		fault(w, 700, "LDS access out of bounds: offset %u size %u, group segment is %u bytes (lane %d)", off, size, w.lds_size, lane);
	return w.lds + off;
}

static inline u8* scratch_address(Wave& w, i64 off, u32 size, int lane) {
	if (unlikely(off < 0 || (u64)off + size > w.scratch_size))
		fault(w, 700, "scratch access out of bounds: offset %lld size %u, private segment is %u bytes (lane %d)", (long long)off, size, w.scratch_size, lane);
	return w.scratch + (size_t)lane * w.scratch_size + off;
}

static inline u8* flat_address(Wave& w, u64 a, u32 size, bool store, int lane) {
	u32 high = (u32)(a >> 32);
	if (unlikely(high == SHARED_HIGH)) return lds_address(w, (u32)a, size, lane);
	if (unlikely(high == PRIVATE_HIGH)) return scratch_address(w, (u32)a, size, lane);
	return global_address(w, a, size, store, lane);
}

// The addresses of one instruction, lane by lane.
struct LaneAddress {
	Wave& w;
	const Instruction& I;
	Segment segment;
	const u32 *lo = nullptr, *hi = nullptr; // per lane, 32 or 64 bits
	u64 base = 0;                           // for all lanes
	i64 imm;
	// Buffers only.
	bool to_scratch = false;
	u32 records = ~0u, stride = 0, soffset = 0;
	const u32* index = nullptr;

	// va is the operand of the vector address, sa of the scalar one (-1: none);
	// of a buffer, sa is the descriptor and the offset follows it.
	LaneAddress(Wave& w_, const Instruction& I_, Segment s, int va, int sa) : w(w_), I(I_), segment(s), imm(I_.offset) {
		const Operand& v = I.op[va];
		const Operand* scalar_part = sa >= 0 && sa < I.n ? &I.op[sa] : nullptr;
		switch (s) {
		case GLOBAL:
			if (scalar_part && scalar_part->kind == K_S) {
				base = scalar64(w, *scalar_part);
				if (v.kind == K_V) lo = vgpr(w, v.idx);
			} else if (v.kind == K_V) {
				lo = vgpr(w, v.idx), hi = vgpr(w, v.idx + 1);
			}
			break;
		case SCRATCH:
			if (scalar_part) base = scalar(w, *scalar_part);
			if (v.kind == K_V) lo = vgpr(w, v.idx);
			break;
		case FLAT: lo = vgpr(w, v.idx), hi = vgpr(w, v.idx + 1); break;
		case BUFFER: describe_buffer(v, &w.sgpr[I.op[sa].idx], scalar(w, I.op[sa + 1])); break;
		}
	}

	// The address of lane l; nullptr beyond a buffer's end, where loads give zero and stores do nothing.
	inline u8* operator()(int l, u32 size, bool store) {
		switch (segment) {
		case GLOBAL: {
			u64 a = base + imm;
			if (lo) a += hi ? (lo[l] | (u64)hi[l] << 32) : (u64)lo[l];
			return global_address(w, a, size, store, l);
		}
		case FLAT: return flat_address(w, (lo[l] | (u64)hi[l] << 32) + imm, size, store, l);
		case SCRATCH: return scratch_address(w, (i32)(u32)(base + (lo ? lo[l] : 0) + imm), size, l);
		case BUFFER: return buffer_address(l, size, store);
		}
		return nullptr;
	}

private:
	void describe_buffer(const Operand& v, const u32* descriptor, u32 offset) {
		u64 b = descriptor[0] | (u64)(descriptor[1] & 0xffff) << 32;
		soffset = offset;
		if ((b & ~0xffffffffull) == SCRATCH_MARK) {
			to_scratch = true;
			base = (b & 0xffffffff) / w.width + soffset / w.width; // they count for the whole wave
			if (I.offen) lo = vgpr(w, v.idx);
			return;
		}
		base = b;
		records = descriptor[2];
		stride = (descriptor[1] >> 16) & 0x3fff;
		if (I.idxen) index = vgpr(w, v.idx);
		if (I.offen) lo = vgpr(w, v.idx + (I.idxen ? 1 : 0));
	}

	u8* buffer_address(int l, u32 size, bool store) {
		if (to_scratch) return scratch_address(w, (i32)(u32)(base + (lo ? lo[l] : 0) + imm), size, l);
		u64 off = (u64)(lo ? lo[l] : 0) + imm, i = index ? index[l] : 0;
		if (stride) { // records counts elements
			if (i >= records) return nullptr;
			off += i * stride;
		} else if (i + off + size > records) { // or bytes, the scalar offset left out
			return nullptr;
		}
		return global_address(w, base + off + soffset, size, store, l);
	}
};

// Puts what lies at p, or zero, into a register.
static inline void put_loaded(u32* d, int type, const u8* p) {
	static const u8 zero[16] = {0};
	if (!p) p = zero;
	u32 old = *d;
	u16 h;
	switch (type) {
	case T_U8: *d = *p; break;
	case T_I8: *d = (u32)(i32)(i8)*p; break;
	case T_U16: memcpy(&h, p, 2), *d = h; break;
	case T_I16: memcpy(&h, p, 2), *d = (u32)(i32)(i16)h; break;
	case T_D16U8: *d = (old & 0xffff0000) | *p; break;
	case T_D16I8: *d = (old & 0xffff0000) | (u16)(i16)(i8)*p; break;
	case T_D16B16: memcpy(&h, p, 2), *d = (old & 0xffff0000) | h; break;
	case T_D16HU8: *d = (old & 0xffff) | (u32)*p << 16; break;
	case T_D16HI8: *d = (old & 0xffff) | (u32)(u16)(i16)(i8)*p << 16; break;
	case T_D16HB16: memcpy(&h, p, 2), *d = (old & 0xffff) | (u32)h << 16; break;
	default: memcpy(d, p, 4);
	}
}

// Lanes of a mask, lowest first.
#define FOR_LANES(l, mask) for (u64 e_ = (mask), l = 0; e_ && (l = __builtin_ctzll(e_), true); e_ &= e_ - 1)

// Loads into registers from dst on. All lanes are read before a register is
// written, since the address may lie in the destination.
template <int TYPE, class At> INLINE void load_lanes(Wave& w, u32 dst, At at) {
	constexpr u32 size = transfer_size[TYPE];
	constexpr int n = registers_of(TYPE);
	const int W = w.width;
	u32* d = vgpr(w, dst);
	if (!is_wide(TYPE)) {
		FOR_LANES(l, w.active) put_loaded(d + l, TYPE, at((int)l, size));
		return;
	}
	alignas(16) u32 buf[64][4];
	FOR_LANES(l, w.active) {
		const u8* p = at((int)l, size);
		if (p)
			memcpy(buf[l], p, size);
		else
			memset(buf[l], 0, 16);
	}
	FOR_LANES(l, w.active) {
		for (int k = 0; k < n; k++) d[k * W + l] = buf[l][k];
	}
}

// Stores from registers from src on.
template <int TYPE, class At> INLINE void store_lanes(Wave& w, u32 src, At at) {
	constexpr u32 size = transfer_size[TYPE];
	constexpr int n = registers_of(TYPE);
	const int W = w.width;
	const u32* s = vgpr(w, src);
	FOR_LANES(l, w.active) {
		u8* p = at((int)l, size);
		if (!p) continue;
		u32 b[4];
		for (int k = 0; k < n; k++) b[k] = s[k * W + l];
		if (TYPE == T_D16HU8 || TYPE == T_D16HB16) b[0] >>= 16;
		memcpy(p, b, size);
	}
}
