// Loads and stores of vectors: global, flat, scratch and buffer, under the names
// of all generations, and the loads that go straight to LDS.
#include "address.h"
#include "optable.h"

// at() for a LaneAddress.
#define LOADING(address) [&](int l, u32 size) -> const u8* { return address(l, size, false); }
#define STORING(address) [&](int l, u32 size) -> u8* { return address(l, size, true); }

// Each active lane's value goes to LDS at M0 + offset, lane after lane.
static void load_to_lds(Wave& w, const Instruction& I, LaneAddress at, int type) {
	u32 size = transfer_size[type], step = size < 4 ? 4 : size;
	FOR_LANES(l, w.active) {
		u8* from = at((int)l, size, false);
		u8* to = lds_address(w, (w.sgpr[SG_M0] & 0xffff) + I.offset + (u32)l * step, step, (int)l);
		u32 x[4] = {0};
		if (from && size < 4)
			put_loaded(x, type, from);
		else if (from)
			memcpy(x, from, size);
		memcpy(to, x, step);
	}
}

template <int TYPE, Segment S, int VA, int SA> static void load(Wave& w, const Instruction& I) {
	LaneAddress at(w, I, S, VA, SA);
	load_lanes<TYPE>(w, I.op[0].idx, LOADING(at));
}
template <int TYPE, Segment S, int VA, int SA, int DATA> static void store(Wave& w, const Instruction& I) {
	LaneAddress at(w, I, S, VA, SA);
	store_lanes<TYPE>(w, I.op[DATA].idx, STORING(at));
}
template <int TYPE> static void load_buffer(Wave& w, const Instruction& I) {
	if (I.to_lds)
		load_to_lds(w, I, LaneAddress(w, I, BUFFER, 0, 1), TYPE);
	else
		load<TYPE, BUFFER, 1, 2>(w, I);
}

template <int TYPE> static void add_loads(OpTable& m, std::initializer_list<const char*> names) {
	for (std::string n : names) {
		m["global_load_" + n] = load<TYPE, GLOBAL, 1, 2>;
		m["flat_load_" + n] = load<TYPE, FLAT, 1, -1>;
		m["scratch_load_" + n] = load<TYPE, SCRATCH, 1, 2>;
		m["buffer_load_" + n] = load_buffer<TYPE>;
		OP("global_load_lds_" + n, load_to_lds(w, I, LaneAddress(w, I, GLOBAL, 0, 1), TYPE));
		OP("buffer_load_lds_" + n, load_to_lds(w, I, LaneAddress(w, I, BUFFER, 0, 1), TYPE));
	}
}
template <int TYPE> static void add_stores(OpTable& m, std::initializer_list<const char*> names) {
	for (std::string n : names) {
		m["global_store_" + n] = store<TYPE, GLOBAL, 0, 2, 1>;
		m["flat_store_" + n] = store<TYPE, FLAT, 0, -1, 1>;
		m["scratch_store_" + n] = store<TYPE, SCRATCH, 0, 2, 1>;
		m["buffer_store_" + n] = store<TYPE, BUFFER, 1, 2, 0>;
	}
}

void add_memory(OpTable& m) {
	add_loads<T_U8>(m, {"u8", "ubyte"});
	add_loads<T_I8>(m, {"i8", "sbyte"});
	add_loads<T_U16>(m, {"u16", "ushort"});
	add_loads<T_I16>(m, {"i16", "sshort"});
	add_loads<T_B32>(m, {"b32", "dword"});
	add_loads<T_B64>(m, {"b64", "dwordx2"});
	add_loads<T_B96>(m, {"b96", "dwordx3"});
	add_loads<T_B128>(m, {"b128", "dwordx4"});
	add_loads<T_D16U8>(m, {"d16_u8", "ubyte_d16"});
	add_loads<T_D16I8>(m, {"d16_i8", "sbyte_d16"});
	add_loads<T_D16B16>(m, {"d16_b16", "short_d16"});
	add_loads<T_D16HU8>(m, {"d16_hi_u8", "ubyte_d16_hi"});
	add_loads<T_D16HI8>(m, {"d16_hi_i8", "sbyte_d16_hi"});
	add_loads<T_D16HB16>(m, {"d16_hi_b16", "short_d16_hi"});
	add_stores<T_U8>(m, {"b8", "byte"});
	add_stores<T_U16>(m, {"b16", "short"});
	add_stores<T_B32>(m, {"b32", "dword"});
	add_stores<T_B64>(m, {"b64", "dwordx2"});
	add_stores<T_B96>(m, {"b96", "dwordx3"});
	add_stores<T_B128>(m, {"b128", "dwordx4"});
	add_stores<T_D16HU8>(m, {"d16_hi_b8", "byte_d16_hi"});
	add_stores<T_D16HB16>(m, {"d16_hi_b16", "short_d16_hi"});
}
