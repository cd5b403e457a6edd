// LDS loads and stores, and the permutations of lanes that go through LDS hardware.
#include "address.h"
#include "optable.h"

// The offset field is 16 bits, or two of 8 in units of the element.
static u32 first_offset(const Instruction& I) { return I.low16 & 255; }
static u32 second_offset(const Instruction& I) { return I.low16 >> 8; }

template <int TYPE> static void load(Wave& w, const Instruction& I) {
	const u32* a = vgpr(w, I.op[1].idx);
	const u32 offset = I.low16;
	load_lanes<TYPE>(w, I.op[0].idx, [&](int l, u32 size) -> const u8* { return lds_address(w, a[l] + offset, size, l); });
}
template <int TYPE> static void store(Wave& w, const Instruction& I) {
	const u32* a = vgpr(w, I.op[0].idx);
	const u32 offset = I.low16;
	store_lanes<TYPE>(w, I.op[1].idx, [&](int l, u32 size) { return lds_address(w, a[l] + offset, size, l); });
}

// Two elements of SIZE bytes; offsets count STRIDE elements.
template <int SIZE, int STRIDE> static void load_two(Wave& w, const Instruction& I) {
	const u32* a = vgpr(w, I.op[1].idx);
	u32* d = vgpr(w, I.op[0].idx);
	const int W = w.width;
	u32 first = first_offset(I) * SIZE * STRIDE, second = second_offset(I) * SIZE * STRIDE, buf[64][4];
	FOR_LANES(l, w.active) {
		memcpy(buf[l], lds_address(w, a[l] + first, SIZE, (int)l), SIZE);
		memcpy(buf[l] + SIZE / 4, lds_address(w, a[l] + second, SIZE, (int)l), SIZE);
	}
	FOR_LANES(l, w.active) {
		for (int k = 0; k < SIZE / 2; k++) d[k * W + l] = buf[l][k];
	}
}
template <int SIZE, int STRIDE> static void store_two(Wave& w, const Instruction& I) {
	const u32 *a = vgpr(w, I.op[0].idx), *x = vgpr(w, I.op[1].idx), *y = vgpr(w, I.op[2].idx);
	const int W = w.width;
	u32 first = first_offset(I) * SIZE * STRIDE, second = second_offset(I) * SIZE * STRIDE;
	FOR_LANES(l, w.active) {
		u8 *p = lds_address(w, a[l] + first, SIZE, (int)l), *q = lds_address(w, a[l] + second, SIZE, (int)l);
		for (int k = 0; k < SIZE / 4; k++) memcpy(p + 4 * k, x + k * W + l, 4);
		for (int k = 0; k < SIZE / 4; k++) memcpy(q + 4 * k, y + k * W + l, 4);
	}
}

// Each lane reads the lane that its address names, in bytes. In wave64 of gfx10
// and later each half of the wave keeps to itself.
static void pull(Wave& w, const Instruction& I, bool fetch_inactive) {
	const int W = w.width, reach = W == 64 && w.program->gfx >= 0x1000 ? 32 : W;
	const u32 *a = vgpr(w, I.op[1].idx), *s = vgpr(w, I.op[2].idx);
	u32 r[64];
	for (int l = 0; l < W; l++) {
		int from = (((a[l] + I.low16) >> 2) & (reach - 1)) | (l & ~(reach - 1));
		r[l] = ((w.active >> from) & 1) || fetch_inactive ? s[from] : 0;
	}
	write(w, I, LANE(r[l]));
}
// Each lane writes to the lane that its address names.
static void push(Wave& w, const Instruction& I) {
	const int W = w.width;
	const u32 *a = vgpr(w, I.op[1].idx), *s = vgpr(w, I.op[2].idx);
	u32 r[64] = {0};
	FOR_LANES(l, w.active) r[((a[l] + I.low16) >> 2) & (W - 1)] = s[l];
	write(w, I, LANE(r[l]));
}

// The lane that lane l reads by ds_swizzle's offset: an FFT order, a rotation,
// a permutation of four, or and-or-xor masks of the lane's number.
static int swizzle_source(u32 o, int l) {
	const int i = l & 31;
	if (o >= 0xe000) {
		u32 mask = o & 31, reversed = __builtin_bitreverse32(i) >> 27;
		return (int)(reversed >> __builtin_popcount(mask)) | (i & mask) | (l & 32);
	}
	if (o >= 0xc000) {
		int distance = (o >> 5) & 31, mask = o & 31;
		bool left = (o >> 10) & 1;
		return (i & mask) | ((left ? i + distance : i - distance) & ~mask & 31) | (l & 32);
	}
	if (o & 0x8000) return (l & ~3) | ((o >> ((l & 3) * 2)) & 3);
	return (((i & (o & 31)) | ((o >> 5) & 31)) ^ ((o >> 10) & 31)) | (l & 32);
}
static void swizzle(Wave& w, const Instruction& I) {
	const u32* s = vgpr(w, I.op[1].idx);
	u32 r[64];
	for (int l = 0; l < w.width; l++) {
		int from = swizzle_source(I.low16, l);
		r[l] = ((w.active >> from) & 1) ? s[from] : 0;
	}
	write(w, I, LANE(r[l]));
}

void add_lds(OpTable& m) {
	// Every instruction has two names: that of gfx11 and later, and that of earlier ones.
	auto add = [&](const char* name, const char* older, Execute f) { m[name] = m[older] = f; };
	add("ds_load_b32", "ds_read_b32", load<T_B32>);
	add("ds_load_b64", "ds_read_b64", load<T_B64>);
	add("ds_load_b96", "ds_read_b96", load<T_B96>);
	add("ds_load_b128", "ds_read_b128", load<T_B128>);
	add("ds_load_u8", "ds_read_u8", load<T_U8>);
	add("ds_load_i8", "ds_read_i8", load<T_I8>);
	add("ds_load_u16", "ds_read_u16", load<T_U16>);
	add("ds_load_i16", "ds_read_i16", load<T_I16>);
	add("ds_load_u8_d16", "ds_read_u8_d16", load<T_D16U8>);
	add("ds_load_u8_d16_hi", "ds_read_u8_d16_hi", load<T_D16HU8>);
	add("ds_load_i8_d16", "ds_read_i8_d16", load<T_D16I8>);
	add("ds_load_i8_d16_hi", "ds_read_i8_d16_hi", load<T_D16HI8>);
	add("ds_load_u16_d16", "ds_read_u16_d16", load<T_D16B16>);
	add("ds_load_u16_d16_hi", "ds_read_u16_d16_hi", load<T_D16HB16>);
	add("ds_store_b8", "ds_write_b8", store<T_U8>);
	add("ds_store_b16", "ds_write_b16", store<T_U16>);
	add("ds_store_b32", "ds_write_b32", store<T_B32>);
	add("ds_store_b64", "ds_write_b64", store<T_B64>);
	add("ds_store_b96", "ds_write_b96", store<T_B96>);
	add("ds_store_b128", "ds_write_b128", store<T_B128>);
	add("ds_store_b8_d16_hi", "ds_write_b8_d16_hi", store<T_D16HU8>);
	add("ds_store_b16_d16_hi", "ds_write_b16_d16_hi", store<T_D16HB16>);
	add("ds_load_2addr_b32", "ds_read2_b32", load_two<4, 1>);
	add("ds_load_2addr_b64", "ds_read2_b64", load_two<8, 1>);
	add("ds_load_2addr_stride64_b32", "ds_read2st64_b32", load_two<4, 64>);
	add("ds_load_2addr_stride64_b64", "ds_read2st64_b64", load_two<8, 64>);
	add("ds_store_2addr_b32", "ds_write2_b32", store_two<4, 1>);
	add("ds_store_2addr_b64", "ds_write2_b64", store_two<8, 1>);
	add("ds_store_2addr_stride64_b32", "ds_write2st64_b32", store_two<4, 64>);
	add("ds_store_2addr_stride64_b64", "ds_write2st64_b64", store_two<8, 64>);
	OP("ds_bpermute_b32", pull(w, I, false));
	OP("ds_bpermute_fi_b32", pull(w, I, true));
	OP("ds_permute_b32", push(w, I));
	OP("ds_swizzle_b32", swizzle(w, I));
	OP("ds_nop", (void)w; (void)I);
}
