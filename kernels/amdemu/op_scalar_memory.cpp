// Loads of the scalar unit. A buffer's loads past its end give zero.
#include "optable.h"

static u64 scalar_offset(Wave& w, const Instruction& I) {
	u64 offset = (u64)(i64)I.offset;
	if (I.n > 2) offset += I.op[2].kind == K_LIT ? (u64)(i64)(i32)I.op[2].l32 : scalar(w, I.op[2]);
	return offset;
}

template <int DWORDS> static void load(Wave& w, const Instruction& I, u64 base, u64 limit) {
	u64 offset = scalar_offset(w, I), a = (base + offset) & ~3ull;
	for (int i = 0; i < DWORDS; i++) {
		u32 x = 0;
		if (limit == ~0ull || (offset & ~3ull) + 4 * i + 4 <= limit) memcpy(&x, global_address(w, a + 4 * i, 4, false, -1), 4);
		if (I.op[0].kind == K_S) w.sgpr[I.op[0].idx + i] = x;
	}
}
template <int DWORDS> static void load_global(Wave& w, const Instruction& I) { load<DWORDS>(w, I, scalar64(w, I.op[1]), ~0ull); }
template <int DWORDS> static void load_buffer(Wave& w, const Instruction& I) {
	const u32* r = &w.sgpr[I.op[1].idx]; // the buffer's descriptor
	u64 base = r[0] | (u64)(r[1] & 0xffff) << 32, stride = (r[1] >> 16) & 0x3fff;
	load<DWORDS>(w, I, base, stride ? stride * r[2] : r[2]);
}
template <class T> static void load_small(Wave& w, const Instruction& I) {
	T x;
	memcpy(&x, global_address(w, scalar64(w, I.op[1]) + scalar_offset(w, I), sizeof x, false, -1), sizeof x);
	set_scalar(w, I.op[0], (u32)(i32)x);
}

template <int DWORDS> static void add_loads(OpTable& m, std::initializer_list<const char*> names) {
	for (std::string n : names) {
		m["s_load_" + n] = load_global<DWORDS>;
		m["s_buffer_load_" + n] = load_buffer<DWORDS>;
	}
}

void add_scalar_memory(OpTable& m) {
	add_loads<1>(m, {"b32", "dword"});
	add_loads<2>(m, {"b64", "dwordx2"});
	add_loads<3>(m, {"b96", "dwordx3"});
	add_loads<4>(m, {"b128", "dwordx4"});
	add_loads<8>(m, {"b256", "dwordx8"});
	add_loads<16>(m, {"b512", "dwordx16"});
	m["s_load_i8"] = load_small<i8>;
	m["s_load_u8"] = load_small<u8>;
	m["s_load_i16"] = load_small<i16>;
	m["s_load_u16"] = load_small<u16>;
}
