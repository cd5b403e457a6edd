// A wave and its workgroup: registers, and the ways to read and write scalars.
// In all of the core, w is the wave, I the instruction, l a lane, W the width.
#pragma once
#include "amdemu.h"
#include <cmath>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define INLINE static inline __attribute__((always_inline))

struct WorkGroup;

// RUNNING goes on; AT_BARRIER waits for s_barrier; YIELDED waits for the phase
// of a split barrier and is tried again; SLEEPING lets others run first.
enum WaveState : u8 { RUNNING, AT_BARRIER, ENDED, YIELDED, SLEEPING };

struct Wave {
	int width = 32;
	u32* vgprs = nullptr;   // register r of lane l is vgprs[r * width + l]
	u64 active = 0;         // lanes that the current instruction writes: EXEC, less what DPP leaves out
	u64 full = 0;           // all lanes
	u32 pc = 0;             // index into program->code->instructions
	bool scc = false;
	u8 state = RUNNING;
	WorkGroup* group = nullptr;
	Program* program = nullptr;
	u8* scratch = nullptr;  // lane l has scratch_size bytes from scratch + l * scratch_size
	u32 scratch_size = 0;
	u8* lds = nullptr;
	u32 lds_size = 0;
	u32 id = 0;             // number within the block
	u64 hit_lo = 1, hit_hi = 0; // the range of memory found last
	i64 hit_delta = 0;
	u64 executed = 0;
	u64* counts = nullptr;  // of each instruction of the program, where they are asked for
	bool signalled = false; // split barrier: signalled in barrier_phase
	u32 barrier_phase = 0;
	u32 mode = 0;
	const Instruction* current = nullptr;
	bool index_on = false;  // gfx9 relative register addressing
	u8 index_mode = 0;
	std::vector<u32> vgpr_store;
	std::vector<u8> scratch_store;
	alignas(64) u32 sgpr[SG_COUNT + 8];
	alignas(64) u32 tmp[10][64]; // sources as read: 0-3 by position, 8 and 9 for halves of 64-bit ones
	alignas(64) u64 t64[4][64];
	alignas(64) u32 dual[64];
	u32* redirect = nullptr; // where the first half of a dual-issue pair writes
};

struct WorkGroup {
	u32 id[3];
	std::vector<u8> lds;
	std::vector<Wave*> waves;
	u32 alive = 0, arrived = 0, phase = 0; // of the split barrier
	bool done = false;
	Kernel* k;
	const LaunchConfig* c;
};

// Ends the launch with a HIP error code and a report of the instruction at fault.
[[noreturn]] void fault(Wave& w, int code, const char* fmt, ...) __attribute__((format(printf, 3, 4)));

// Finds the range that holds an access and remembers it in w, or faults.
void find_address(Wave& w, u64 a, u32 size, bool store, int lane);

static inline u8* global_address(Wave& w, u64 a, u32 size, bool store, int lane) {
	if (unlikely(a < w.hit_lo || a + size > w.hit_hi)) find_address(w, a, size, store, lane);
	return (u8*)(a + w.hit_delta);
}

static inline u32* vgpr(Wave& w, u32 r) { return w.vgprs + (size_t)r * w.width; }

static inline u64 pair(const u32* s) { return s[0] | (u64)s[1] << 32; }
static inline void set_pair(u32* s, u64 x) { s[0] = (u32)x, s[1] = (u32)(x >> 32); }

static inline u64 exec_mask(const Wave& w) { return w.width == 32 ? w.sgpr[SG_EXEC] : pair(&w.sgpr[SG_EXEC]); }
static inline u64 vcc_mask(const Wave& w) { return w.width == 32 ? w.sgpr[SG_VCC] : pair(&w.sgpr[SG_VCC]); }

// The mask of the lanes whose c is not zero.
static inline u64 mask_of(const u32* c, int W) {
	u64 m = 0;
#if defined(__AVX512F__)
	for (int l = 0; l < W; l += 16) {
		__m512i x = _mm512_loadu_si512(c + l);
		m |= (u64)_mm512_test_epi32_mask(x, x) << l;
	}
#else
	for (int l = 0; l < W; l++) m |= (u64)(c[l] != 0) << l;
#endif
	return m;
}

// A scalar source; a vector register gives its first active lane.
static inline u32 scalar(Wave& w, const Operand& o) {
	switch (o.kind) {
	case K_S: return w.sgpr[o.idx];
	case K_LIT: return o.l32;
	case K_SCC: return w.scc;
	case K_VCCZ: return vcc_mask(w) == 0;
	case K_EXECZ: return exec_mask(w) == 0;
	case K_V: return vgpr(w, o.idx)[__builtin_ctzll(exec_mask(w) ? exec_mask(w) : 1)];
	default: return 0;
	}
}

static inline u64 scalar64(Wave& w, const Operand& o) {
	switch (o.kind) {
	case K_S: return pair(&w.sgpr[o.idx]);
	case K_LIT: return o.l64;
	case K_SCC: return w.scc;
	default: return 0;
	}
}

static inline void set_scalar(Wave& w, const Operand& o, u32 x) {
	if (o.kind == K_S) w.sgpr[o.idx] = x;
}

static inline void set_scalar64(Wave& w, const Operand& o, u64 x) {
	if (o.kind == K_S) set_pair(&w.sgpr[o.idx], x);
}

// A lane mask is as wide as the wave.
static inline u64 lane_mask(Wave& w, const Operand& o) { return w.width == 32 ? scalar(w, o) : scalar64(w, o); }
static inline void set_lane_mask(Wave& w, const Operand& o, u64 m) {
	if (w.width == 32)
		set_scalar(w, o, (u32)m);
	else
		set_scalar64(w, o, m);
}
