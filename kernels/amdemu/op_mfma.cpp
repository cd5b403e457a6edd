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

// Row and block of the M values that lie in M lanes from lane on of register r of C and D.
struct Row {
	int block, i;
};
static inline Row row_of(int M, int r, int lane) {
	switch (M) {
	case 32: return {r / 16, 8 * (r % 16 / 4) + 4 * (lane / 32) + r % 4};
	case 16: return {r / 4, 4 * (lane / 16) + r % 4};
	default: return {lane / 4, r};
	}
}

// Tiles of all blocks: A as [k][row], B as [k][column].
template <class T> struct Tiles {
	alignas(64) T a[16][64][32], b[16][64][32], c[16][32][32];
};

static void read_elements(Wave& w, Element type, const u32* s, int shift, float* out) {
	const int bits = bits_of(type);
	if (type == E_F16)
		f16_lanes_to_f32(s, shift, out, 64);
	else if (bits == 32)
		memcpy(out, s, 256);
	else
		for (int l = 0; l < 64; l++) out[l] = element_to_f32(w, type, (s[l] >> shift) & ((1u << bits) - 1));
}
static void read_elements(Wave&, Element, const u32* s, int shift, i32* out) {
	for (int l = 0; l < 64; l++) out[l] = (i8)(s[l] >> shift);
}

template <int M, class T> static void read_operand(Wave& w, const Mfma& f, Element type, u32 r, T (*t)[64][32]) {
	const int bits = bits_of(type);
	alignas(64) T lanes[64];
	for (int e = 0; e < f.per_lane; e++) {
		read_elements(w, type, vgpr(w, r + e * bits / 32), e * bits % 32, lanes);
		for (int part = 0; part < 64 / M; part++) {
			const bool one = f.blocks == 1;
			memcpy(t[one ? 0 : part][one ? part * f.per_lane + e : e], lanes + part * M, M * sizeof(T));
		}
	}
}

template <int M, class T> static void run(Wave& w, const Instruction& I, const Mfma& f) {
	static thread_local Tiles<T> t;
	read_operand<M>(w, f, f.a, I.op[1].idx, t.a);
	read_operand<M>(w, f, f.b, I.op[2].idx, t.b);
	const Operand& oc = I.op[3];
	const int registers = M * M * f.blocks / 64;
	for (int r = 0; r < registers; r++)
		for (int lane = 0; lane < 64; lane += M) {
			Row at = row_of(M, r, lane);
			T* c = t.c[at.block][at.i];
			const u32 same = oc.kind == K_V ? 0 : scalar(w, oc);
			if (oc.kind == K_V)
				memcpy(c, vgpr(w, oc.idx + r) + lane, M * 4);
			else
				for (int j = 0; j < M; j++) memcpy(c + j, &same, 4);
		}
	for (int block = 0; block < f.blocks; block++) multiply_add<M>(t.a[block], t.b[block], t.c[block], f.K);
	for (int r = 0; r < registers; r++)
		for (int lane = 0; lane < 64; lane += M) {
			Row at = row_of(M, r, lane);
			memcpy(vgpr(w, I.op[0].idx + r) + lane, t.c[at.block][at.i], M * 4);
		}
}

template <class T> static void run_any(Wave& w, const Instruction& I, const Mfma& f) {
	switch (f.M) {
	case 32: return run<32, T>(w, I, f);
	case 16: return run<16, T>(w, I, f);
	case 4: return run<4, T>(w, I, f);
	}
	fault(w, 801, "MFMA shape not supported: %s", I.name.c_str());
}

void mfma(Wave& w, const Instruction& I) {
	need_all_lanes(w, I);
	if (w.width != 64) fault(w, 1, "MFMA needs wave64");
	if (I.cbsz || I.abid || I.blgp) fault(w, 1, "MFMA broadcast modifiers not supported");
	const Mfma& f = describe(w, I.name);
	if (f.K > 64 || f.blocks > 16 || f.per_lane < 1) fault(w, 801, "MFMA shape not supported: %s", I.name.c_str());
	if (f.integer)
		run_any<i32>(w, I, f);
	else
		run_any<float>(w, I, f);
}
