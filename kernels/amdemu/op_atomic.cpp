// Atomic operations on memory and LDS. Memory's are atomic between the threads
// that run blocks; a block's waves run in one thread, so LDS needs nothing.
#include "address.h"
#include "optable.h"
#include <utility>

enum Atomic {
	A_SWAP, A_COMPARE_SWAP, A_ADD, A_SUB, A_REVERSE_SUB, A_SMIN, A_UMIN, A_SMAX, A_UMAX, A_AND, A_OR, A_XOR, A_INC, A_DEC,
	A_FADD, A_FMIN, A_FMAX, A_PK_F16, A_PK_BF16, A_SUB_CLAMP, A_FCOMPARE_SWAP, A_MASK_OR, A_WRAP,
};

static inline u32 add_f16_pair(u32 a, u32 b) {
	return f32_to_f16(f16_to_f32(a) + f16_to_f32(b)) | (u32)f32_to_f16(f16_to_f32(a >> 16) + f16_to_f32(b >> 16)) << 16;
}
static inline u32 add_bf16_pair(u32 a, u32 b) {
	return f32_to_bf16(bf16_to_f32(a) + bf16_to_f32(b)) | (u32)f32_to_bf16(bf16_to_f32(a >> 16) + bf16_to_f32(b >> 16)) << 16;
}

static inline float as_float(u32 x) { return as_f32(x); }
static inline double as_float(u64 x) { return as_f64(x); }
static inline u32 bits_of(float x) { return as_u32(x); }
static inline u64 bits_of(double x) { return as_u64(x); }
static inline float minimum(float a, float b) { return min_f32(a, b); }
static inline double minimum(double a, double b) { return min_f64(a, b); }
static inline float maximum(float a, float b) { return max_f32(a, b); }
static inline double maximum(double a, double b) { return max_f64(a, b); }

// The new value for an old one, with data d and, where there are two, c.
template <class T> static inline T combine(int kind, T o, T d, T c) {
	typedef typename std::make_signed<T>::type S;
	switch (kind) {
	case A_SWAP: return d;
	case A_COMPARE_SWAP: return o == c ? d : o;
	case A_ADD: return o + d;
	case A_SUB: return o - d;
	case A_REVERSE_SUB: return d - o;
	case A_SMIN: return (S)o < (S)d ? o : d;
	case A_UMIN: return o < d ? o : d;
	case A_SMAX: return (S)o > (S)d ? o : d;
	case A_UMAX: return o > d ? o : d;
	case A_AND: return o & d;
	case A_OR: return o | d;
	case A_XOR: return o ^ d;
	case A_INC: return o >= d ? 0 : o + 1;
	case A_DEC: return (o == 0 || o > d) ? d : o - 1;
	case A_FADD: return bits_of(as_float(o) + as_float(d));
	case A_FMIN: return bits_of(minimum(as_float(o), as_float(d)));
	case A_FMAX: return bits_of(maximum(as_float(o), as_float(d)));
	case A_PK_F16: return add_f16_pair((u32)o, (u32)d);
	case A_PK_BF16: return add_bf16_pair((u32)o, (u32)d);
	case A_SUB_CLAMP: return o < d ? 0 : o - d;
	case A_FCOMPARE_SWAP: return as_float(o) == as_float(c) ? d : o;
	case A_MASK_OR: return (o & ~d) | c;
	case A_WRAP: return o >= d ? o - d : o + c;
	}
	return o;
}

template <class T> static inline T update(u8* p, int kind, T d, T c) {
	T *q = (T*)p, o = __atomic_load_n(q, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(q, &o, combine(kind, o, d, c), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {}
	return o;
}

// The value of lane l in register s and, if it is 64 bits wide, the one behind it.
template <class T> static inline T lane_value(const u32* s, int W, int l) {
	return sizeof(T) == 4 ? (T)s[l] : (T)(s[l] | (u64)s[W + l] << 32);
}

template <class T> static void return_old(Wave& w, const Instruction& I, const T* old) {
	u32* d = vgpr(w, I.op[0].idx);
	FOR_LANES(l, w.active) {
		d[l] = (u32)old[l];
		if (sizeof(T) == 8) d[w.width + l] = (u32)((u64)old[l] >> 32);
	}
}

// A compare-and-swap's data is the new value, then the one to compare with.
template <class T, Segment S, int KIND> static void on_memory(Wave& w, const Instruction& I) {
	constexpr bool compares = KIND == A_COMPARE_SWAP || KIND == A_FCOMPARE_SWAP;
	const bool returns = S == BUFFER ? I.glc : S == FLAT ? I.n == 3 : I.n == 4;
	const int va = S == BUFFER ? 1 : returns, data = S == BUFFER ? 0 : va + 1, sa = S == BUFFER ? 2 : S == FLAT ? -1 : data + 1;
	LaneAddress at(w, I, S, va, sa);
	const int W = w.width;
	const u32* s = vgpr(w, I.op[data].idx);
	T old[64];
	FOR_LANES(l, w.active) {
		u8* p = at((int)l, sizeof(T), true);
		old[l] = 0;
		if (!p) continue;
		if ((u64)p & (sizeof(T) - 1)) fault(w, 700, "misaligned atomic at %p", p);
		old[l] = update<T>(p, KIND, lane_value<T>(s, W, (int)l), compares ? lane_value<T>(s + sizeof(T) / 4 * W, W, (int)l) : 0);
	}
	if (returns) return_old(w, I, old);
}

// TWO: a second data operand; SWAPPED: the older compare-and-store has its two the other way round.
template <class T, int KIND, bool RETURNS, bool TWO, bool SWAPPED> static void on_lds(Wave& w, const Instruction& I) {
	const u32 *a = vgpr(w, I.op[RETURNS].idx), *s = vgpr(w, I.op[RETURNS + 1].idx), *s2 = TWO ? vgpr(w, I.op[RETURNS + 2].idx) : nullptr;
	const int W = w.width;
	T old[64];
	FOR_LANES(l, w.active) {
		T d = lane_value<T>(s, W, (int)l), c = TWO ? lane_value<T>(s2, W, (int)l) : 0;
		if (SWAPPED) std::swap(d, c);
		u8* p = lds_address(w, a[l] + I.low16, sizeof(T), (int)l);
		memcpy(&old[l], p, sizeof(T));
		T x = combine<T>(KIND, old[l], d, c);
		memcpy(p, &x, sizeof(T));
	}
	if (RETURNS) return_old(w, I, old);
}

template <class T, int KIND> static void add_to_memory(OpTable& m, std::initializer_list<const char*> names) {
	for (std::string n : names) {
		m["global_atomic_" + n] = on_memory<T, GLOBAL, KIND>;
		m["flat_atomic_" + n] = on_memory<T, FLAT, KIND>;
		m["buffer_atomic_" + n] = on_memory<T, BUFFER, KIND>;
	}
}
template <class T, int KIND, bool TWO = false, bool SWAPPED = false> static void add_to_lds(OpTable& m, const std::string& name, const char* type) {
	m["ds_" + name + "_" + type] = on_lds<T, KIND, false, TWO, SWAPPED>;
	m["ds_" + name + "_rtn_" + type] = on_lds<T, KIND, true, TWO, SWAPPED>;
}
template <int KIND> static void add_to_lds(OpTable& m, const char* name, const char* type32, const char* type64) {
	add_to_lds<u32, KIND>(m, name, type32);
	add_to_lds<u64, KIND>(m, name, type64);
}

static void add_lds_atomics(OpTable& m) {
	add_to_lds<A_ADD>(m, "add", "u32", "u64");
	add_to_lds<A_SUB>(m, "sub", "u32", "u64");
	add_to_lds<A_REVERSE_SUB>(m, "rsub", "u32", "u64");
	add_to_lds<A_INC>(m, "inc", "u32", "u64");
	add_to_lds<A_DEC>(m, "dec", "u32", "u64");
	add_to_lds<A_SMIN>(m, "min", "i32", "i64");
	add_to_lds<A_SMAX>(m, "max", "i32", "i64");
	add_to_lds<A_UMIN>(m, "min", "u32", "u64");
	add_to_lds<A_UMAX>(m, "max", "u32", "u64");
	add_to_lds<A_AND>(m, "and", "b32", "b64");
	add_to_lds<A_OR>(m, "or", "b32", "b64");
	add_to_lds<A_XOR>(m, "xor", "b32", "b64");
	add_to_lds<A_FADD>(m, "add", "f32", "f64");
	for (const char* n : {"min", "min_num"}) add_to_lds<A_FMIN>(m, n, "f32", "f64");
	for (const char* n : {"max", "max_num"}) add_to_lds<A_FMAX>(m, n, "f32", "f64");
	for (const char* n : {"storexchg", "wrxchg"}) add_to_lds<A_SWAP>(m, n, "b32", "b64");
	add_to_lds<u32, A_PK_F16>(m, "pk_add", "f16");
	add_to_lds<u32, A_PK_BF16>(m, "pk_add", "bf16");
	add_to_lds<u32, A_COMPARE_SWAP, true>(m, "cmpstore", "b32");
	add_to_lds<u64, A_COMPARE_SWAP, true>(m, "cmpstore", "b64");
	add_to_lds<u32, A_COMPARE_SWAP, true, true>(m, "cmpst", "b32");
	add_to_lds<u64, A_COMPARE_SWAP, true, true>(m, "cmpst", "b64");
	add_to_lds<u32, A_FCOMPARE_SWAP, true>(m, "cmpstore", "f32");
	add_to_lds<u32, A_MASK_OR, true>(m, "mskor", "b32");
	m["ds_wrap_rtn_b32"] = on_lds<u32, A_WRAP, true, true, false>;
}

void add_atomics(OpTable& m) {
	add_lds_atomics(m);
	add_to_memory<u32, A_SWAP>(m, {"swap", "swap_b32"});
	add_to_memory<u64, A_SWAP>(m, {"swap_x2", "swap_b64"});
	add_to_memory<u32, A_COMPARE_SWAP>(m, {"cmpswap", "cmpswap_b32"});
	add_to_memory<u64, A_COMPARE_SWAP>(m, {"cmpswap_x2", "cmpswap_b64"});
	add_to_memory<u32, A_ADD>(m, {"add", "add_u32"});
	add_to_memory<u64, A_ADD>(m, {"add_x2", "add_u64"});
	add_to_memory<u32, A_SUB>(m, {"sub", "sub_u32"});
	add_to_memory<u64, A_SUB>(m, {"sub_x2", "sub_u64"});
	add_to_memory<u32, A_SMIN>(m, {"smin", "min_i32"});
	add_to_memory<u64, A_SMIN>(m, {"smin_x2", "min_i64"});
	add_to_memory<u32, A_UMIN>(m, {"umin", "min_u32"});
	add_to_memory<u64, A_UMIN>(m, {"umin_x2", "min_u64"});
	add_to_memory<u32, A_SMAX>(m, {"smax", "max_i32"});
	add_to_memory<u64, A_SMAX>(m, {"smax_x2", "max_i64"});
	add_to_memory<u32, A_UMAX>(m, {"umax", "max_u32"});
	add_to_memory<u64, A_UMAX>(m, {"umax_x2", "max_u64"});
	add_to_memory<u32, A_AND>(m, {"and", "and_b32"});
	add_to_memory<u64, A_AND>(m, {"and_x2", "and_b64"});
	add_to_memory<u32, A_OR>(m, {"or", "or_b32"});
	add_to_memory<u64, A_OR>(m, {"or_x2", "or_b64"});
	add_to_memory<u32, A_XOR>(m, {"xor", "xor_b32"});
	add_to_memory<u64, A_XOR>(m, {"xor_x2", "xor_b64"});
	add_to_memory<u32, A_INC>(m, {"inc", "inc_u32"});
	add_to_memory<u64, A_INC>(m, {"inc_x2", "inc_u64"});
	add_to_memory<u32, A_DEC>(m, {"dec", "dec_u32"});
	add_to_memory<u64, A_DEC>(m, {"dec_x2", "dec_u64"});
	add_to_memory<u32, A_FADD>(m, {"add_f32"});
	add_to_memory<u64, A_FADD>(m, {"add_f64"});
	add_to_memory<u32, A_FMIN>(m, {"fmin", "min_f32", "min_num_f32"});
	add_to_memory<u32, A_FMAX>(m, {"fmax", "max_f32", "max_num_f32"});
	add_to_memory<u64, A_FMIN>(m, {"fmin_x2", "min_f64"});
	add_to_memory<u64, A_FMAX>(m, {"fmax_x2", "max_f64"});
	add_to_memory<u32, A_PK_F16>(m, {"pk_add_f16"});
	add_to_memory<u32, A_PK_BF16>(m, {"pk_add_bf16"});
	add_to_memory<u32, A_SUB_CLAMP>(m, {"csub", "csub_u32", "sub_clamp_u32", "cond_sub_u32"});
	add_to_memory<u32, A_FCOMPARE_SWAP>(m, {"fcmpswap", "cmpswap_f32"});
}
