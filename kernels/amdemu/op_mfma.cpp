// MFMA of CDNA, wave64: D = A B + C for one or several MxM tiles.
//
// Which instruction it is can be read from its name: type of D, MxMxK, perhaps the
// number of blocks, type of A and B. Lane l holds, of row (column) l%M, the next
// elements of K (one block) or all of block l/M. Row i, column j of C and D: for
// M = 32 register 4*(i/8) + i%4 of the block's, lane j + 32*(i/4%2); for 16
// register i%4, lane j + 16*(i/4); for 4 register i, lane 4*block + j.
// Source: the matrix chapter of AMD's CDNA3 ISA guide.
#include "matrix.h"
#include <mutex>

struct Mfma {
	int M, K, blocks;
	int per_lane; // elements of A or B in a lane
	Element a, b;
	bool integer;
};

static bool starts_with(const std::string& s, const char* with) { return s.compare(0, strlen(with), with) == 0; }

// The types behind the dimensions; per_lane is set where the name gives no number of blocks.
static bool parse_types(const std::string& t, Mfma& f) {
	f.per_lane = 4;
	if (t.find("fp8") != std::string::npos || t.find("bf8") != std::string::npos) {
		f.a = starts_with(t, "bf8") ? E_BF8 : E_FP8;
		f.b = t.size() > 4 && t.substr(4) == "bf8" ? E_BF8 : E_FP8;
	} else if (starts_with(t, "bf16")) {
		f.a = f.b = E_BF16;
		if (t.find("1k") == std::string::npos) f.per_lane = 2;
	} else if (t == "f32" || t == "xf32") {
		f.a = f.b = E_F32;
		f.per_lane = 1;
	} else if (starts_with(t, "i8")) {
		f.a = f.b = E_I8;
	} else if (t == "f16") {
		f.a = f.b = E_F16;
	} else {
		return false;
	}
	return true;
}

// v_mfma_f32_32x32x8f16 (up to gfx90a), v_mfma_f32_32x32x8_f16, v_mfma_f32_32x32x4_2b_f16.
static Mfma parse(Wave& w, const std::string& name) {
	Mfma f{};
	f.integer = starts_with(name, "v_mfma_i32");
	size_t p = name.find('_', 7) + 1;
	int columns;
	if (sscanf(name.c_str() + p, "%dx%dx%d", &f.M, &columns, &f.K) != 3) fault(w, 1, "cannot parse %s", name.c_str());
	std::string types = name.substr(p);
	types = types.substr(types.find_first_not_of("0123456789x"));
	if (types[0] == '_') {
		types.erase(0, 1);
		f.blocks = 1;
		size_t b = types.find("b_");
		if (b != std::string::npos && isdigit((unsigned char)types[0])) {
			f.blocks = atoi(types.c_str());
			types.erase(0, b + 2);
		}
	}
	if (!parse_types(types, f)) fault(w, 1, "MFMA type not supported: %s", name.c_str());
	if (!f.blocks) f.blocks = 64 * f.per_lane / (f.M * f.K);
	f.per_lane = f.M * f.K * f.blocks / 64;
	return f;
}

static const Mfma& describe(Wave& w, const std::string& name) {
	static std::mutex lock;
	static std::map<std::string, Mfma> known;
	std::lock_guard<std::mutex> guard(lock);
	auto it = known.find(name);
	if (it == known.end()) it = known.emplace(name, parse(w, name)).first;
	return it->second;
}

struct Cell {
	int block, i, j;
};
static inline Cell cell_of(int M, int r, int lane) {
	switch (M) {
	case 32: return {r / 16, 8 * (r % 16 / 4) + 4 * (lane / 32) + r % 4, lane % 32};
	case 16: return {r / 4, 4 * (lane / 16) + r % 4, lane % 16};
	default: return {lane / 4, r, lane % 4};
	}
}

// Tiles of all blocks: A as [row][k], B as [k][column].
template <class T> struct Tiles {
	T a[16][32][64], b[16][64][32], c[16][32][32];
};

template <class T> static void read_operand(Wave& w, const Instruction& I, const Mfma& f, int operand, Tiles<T>& t) {
	const Element type = operand ? f.b : f.a;
	const u32 r = I.op[1 + operand].idx;
	const int bits = bits_of(type);
	for (int e = 0; e < f.per_lane; e++) {
		const u32* s = vgpr(w, r + e * bits / 32);
		const int shift = e * bits % 32;
		for (int l = 0; l < 64; l++) {
			u32 x = bits == 32 ? s[l] : (s[l] >> shift) & ((1u << bits) - 1);
			int i = l % f.M, block = f.blocks > 1 ? l / f.M : 0, k = f.blocks > 1 ? e : l / f.M * f.per_lane + e;
			(operand ? t.b[block][k][i] : t.a[block][i][k]) = (T)element_to_f32(w, type, x);
		}
	}
}

static inline float from_bits(u32 x, float) { return as_f32(x); }
static inline i32 from_bits(u32 x, i32) { return (i32)x; }
static inline u32 to_bits(float x) { return as_u32(x); }
static inline u32 to_bits(i32 x) { return (u32)x; }

template <class T> static void run(Wave& w, const Instruction& I, const Mfma& f) {
	static thread_local Tiles<T> t;
	read_operand(w, I, f, 0, t);
	read_operand(w, I, f, 1, t);
	const Operand& oc = I.op[3];
	const int registers = f.M * f.M * f.blocks / 64;
	for (int r = 0; r < registers; r++)
		for (int l = 0; l < 64; l++) {
			Cell at = cell_of(f.M, r, l);
			t.c[at.block][at.i][at.j] = from_bits(oc.kind == K_V ? vgpr(w, oc.idx + r)[l] : scalar(w, oc), T());
		}
	for (int block = 0; block < f.blocks; block++) multiply_add<T, 64, 32>(t.a[block], t.b[block], t.c[block], f.M, f.M, f.K);
	for (int r = 0; r < registers; r++)
		for (int l = 0; l < 64; l++) {
			Cell at = cell_of(f.M, r, l);
			vgpr(w, I.op[0].idx + r)[l] = to_bits(t.c[at.block][at.i][at.j]);
		}
}

void mfma(Wave& w, const Instruction& I) {
	need_all_lanes(w, I);
	if (w.width != 64) fault(w, 1, "MFMA needs wave64");
	if (I.cbsz || I.abid || I.blgp) fault(w, 1, "MFMA broadcast modifiers not supported");
	const Mfma& f = describe(w, I.name);
	if (f.integer)
		run<i32>(w, I, f);
	else
		run<float>(w, I, f);
}
