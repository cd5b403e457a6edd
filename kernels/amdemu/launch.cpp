// Running a grid: blocks on the processor's threads, a block's waves in turn on
// one of them, each instruction through its function.
#include "settings.h"
#include "wave.h"
#include <algorithm>
#include <cstdio>
#include <mutex>
#include <random>
#include <thread>
#include <xmmintrin.h>

namespace {
typedef unsigned long long ull;

// Kernel descriptor: which scalar registers a wave starts with, by bit of props.
enum {
	PRIVATE_BUFFER = 1, DISPATCH_PACKET = 2, QUEUE = 4, KERNARG = 8, DISPATCH_ID = 16, FLAT_SCRATCH = 32, PRIVATE_SIZE = 64,
};
enum { SLICE = 1000000, COOPERATIVE_SLICE = 2000 };

// Executes w until it stops or has run for slice instructions. PROFILE counts each
// instruction of the program in w.counts.
template <bool PROFILE> void execute(Wave& w, u64 slice) {
	const Instruction* code = w.program->code->instructions.data();
	const size_t end = w.program->code->instructions.size();
	const u64 limit = settings().max_instructions;
	slice = std::min(slice, limit - w.executed + 1); // stops an endless loop inside one slice
	u64 n = 0;
	w.state = RUNNING;
	while (w.state == RUNNING && n < slice) {
		if (unlikely(w.pc >= end)) fault(w, 700, "pc ran past the end of code");
		const Instruction& I = code[w.pc++];
		w.current = &I;
		w.active = exec_mask(w);
		if (PROFILE) w.counts[&I - code]++;
		I.fn(w, I);
		n++;
	}
	w.executed += n;
	if (w.state == SLEEPING) std::this_thread::yield(); // what it waits for may be another device's to do
	if (unlikely(w.executed > limit)) fault(w, 702, "instruction limit per wave exceeded (AMDEMU_MAX_INST=%llu): endless loop?", (ull)limit);
}

void run(Wave& w, u64 slice) {
	if (unlikely(w.counts != nullptr))
		execute<true>(w, slice);
	else
		execute<false>(w, slice);
}

// Registers start as NaN patterns, so that what depends on them goes wrong visibly.
void poison_registers(Wave& w, const Kernel& k, u32 registers) {
	const u32 used = k.agprs ? registers : std::min(registers, std::max<u32>(k.vgprs + 8, 8));
	std::fill(w.vgprs, w.vgprs + (size_t)used * w.width, 0xffbadbad);
	for (u32 i = 0; i < SG_COUNT; i++) w.sgpr[i] = 0xffbad000 | i;
	w.sgpr[SG_VCC] = w.sgpr[SG_VCC + 1] = 0xdeadbeef;
	w.sgpr[SG_M0] = 0xffffffff;
}

// Memory of the wave; wave structures are used again and again.
void set_memory(Wave& w, WorkGroup& g, const Kernel& k) {
	const bool accumulators = k.agprs || (w.program->gfx < 0x1000 && w.program->gfx >= 0x908);
	const u32 registers = accumulators ? 2 * FIRST_ACCUMULATOR : FIRST_ACCUMULATOR;
	if (w.vgpr_store.size() < (size_t)registers * w.width + 64) w.vgpr_store.resize((size_t)registers * w.width + 64);
	w.vgprs = (u32*)(((u64)w.vgpr_store.data() + 63) & ~63ull);
	poison_registers(w, k, registers);
	w.scratch_size = k.priv + (k.dynstack ? 16384 : 0);
	if (w.scratch_store.size() < (size_t)w.scratch_size * w.width) w.scratch_store.resize((size_t)w.scratch_size * w.width);
	if (w.scratch_size) memset(w.scratch_store.data(), 0xff, (size_t)w.scratch_size * w.width);
	w.scratch = w.scratch_store.data();
	w.lds = g.lds.data();
	w.lds_size = k.lds + g.c->dynlds;
}

// The scalar registers that the descriptor asks for, in their order; then the block's numbers.
void set_scalar_registers(Wave& w, const WorkGroup& g, const Kernel& k, const u8* packet) {
	const int gfx = w.program->gfx;
	u32 s = 0;
	auto put = [&](u64 v) {
		set_pair(&w.sgpr[s], v);
		s += 2;
	};
	if (k.props & PRIVATE_BUFFER) {
		put(0xA5C300000000ull); // SCRATCH_MARK of address.h
		put(0xffffffff);
	}
	if (k.props & DISPATCH_PACKET) put((u64)packet);
	if (k.props & QUEUE) put(0);
	if (k.props & KERNARG) put((u64)g.c->kernarg);
	if (k.props & DISPATCH_ID) put(0);
	if (k.props & FLAT_SCRATCH) put(0);
	if (k.props & PRIVATE_SIZE) w.sgpr[s++] = w.scratch_size;
	if (u32 words = k.preload & 0x7f) {
		memcpy(&w.sgpr[s], g.c->kernarg + (k.preload >> 7) * 4, words * 4);
		s += words;
	}
	s = std::max(s, (k.rsrc2 >> 1) & 31);
	if (gfx >= 0x1200) {
		w.sgpr[SG_TTMP + 9] = g.id[0];
		w.sgpr[SG_TTMP + 7] = (g.id[1] & 0xffff) | g.id[2] << 16;
		w.sgpr[SG_TTMP + 8] = w.id & 31;
		return;
	}
	for (int i = 0; i < 3; i++)
		if (k.rsrc2 & (0x80 << i)) w.sgpr[s++] = g.id[i];
	if (k.rsrc2 & 0x400) w.sgpr[s++] = 0;
	const bool flat_scratch_in_hardware = gfx >= 0x1100 || (gfx >= 0x940 && gfx < 0x1000);
	if ((k.rsrc2 & 1) && !flat_scratch_in_hardware) w.sgpr[s++] = 0;
}

// Thread numbers in v0 (to v2), and EXEC with the lanes that have a thread.
void set_threads(Wave& w, const WorkGroup& g, const Kernel& k, u32 threads) {
	const u32 bx = g.c->block[0], by = g.c->block[1], dims = (k.rsrc2 >> 11) & 3;
	u64 exec = 0;
	for (int l = 0; l < w.width; l++) {
		u32 t = w.id * w.width + l, x = t % bx, y = (t / bx) % by, z = t / (bx * by);
		if (t < threads) exec |= 1ull << l;
		if (w.program->packed_tid) {
			vgpr(w, 0)[l] = x | y << 10 | z << 20;
			continue;
		}
		vgpr(w, 0)[l] = x;
		if (dims > 0) vgpr(w, 1)[l] = y;
		if (dims > 1) vgpr(w, 2)[l] = z;
	}
	set_pair(&w.sgpr[SG_EXEC], exec);
}

void start_wave(Wave& w, WorkGroup& g, u32 id, u32 threads, const u8* packet) {
	const Kernel& k = *g.k;
	w.width = (int)k.wave;
	w.full = w.width == 32 ? 0xffffffffull : ~0ull;
	w.program = k.prog;
	w.group = &g;
	w.id = id;
	w.pc = k.entry_idx;
	w.scc = false;
	w.state = RUNNING;
	w.hit_lo = 1, w.hit_hi = 0;
	w.executed = 0;
	w.signalled = w.index_on = false;
	w.redirect = nullptr;
	w.current = nullptr;
	set_memory(w, g, k);
	set_scalar_registers(w, g, k, packet);
	set_threads(w, g, k, threads);
}

// Mostly a few instructions, so that waves interleave closely; at times a
// thousand, so that one wave gets far ahead of another.
u64 random_slice(std::mt19937_64& random) {
	u64 r = random();
	return (r & 15 ? 1 : 32) * (1 + (r >> 8) % 40);
}

// Gives each wave that can run a slice, in the order asked for; true when all have ended.
bool step(WorkGroup& g, u64 slice, std::mt19937_64* random, bool reversed) {
	const size_t n = g.waves.size(), start = random ? (*random)() % n : 0;
	for (size_t i = 0; i < n; i++) {
		size_t j = (start + i) % n;
		Wave& w = *g.waves[reversed ? n - 1 - j : j];
		if (w.state == ENDED || w.state == AT_BARRIER) continue;
		run(w, random ? random_slice(*random) : slice);
		if (w.state != ENDED) continue;
		g.alive--;
		if (g.alive && g.arrived && g.arrived >= g.alive) { // it was the last that others waited for
			g.arrived = 0;
			g.phase++;
		}
	}
	if (g.alive == 0) return true;
	auto waits = [](const Wave* w) { return w->state == AT_BARRIER || w->state == ENDED; };
	if (std::all_of(g.waves.begin(), g.waves.end(), waits))
		for (Wave* w : g.waves)
			if (w->state == AT_BARRIER) w->state = RUNNING;
	return false;
}

// What every block of a launch shares.
struct Launch {
	Kernel* k;
	const LaunchConfig& c;
	u64 blocks;
	u32 threads, waves, lds;
	alignas(64) u8 packet[64] = {0};
	std::atomic<u64> next{0}, executed{0};
	std::atomic<bool> stop{false};
	std::mutex lock;
	int code = 0;
	std::string& err;
	std::vector<u64> counts; // executions of each instruction, where they are asked for

	Launch(Kernel* k_, const LaunchConfig& c_, std::string& err_) : k(k_), c(c_), err(err_) {
		blocks = (u64)c.grid[0] * c.grid[1] * c.grid[2];
		threads = c.block[0] * c.block[1] * c.block[2];
		waves = (threads + k->wave - 1) / k->wave;
		lds = k->lds + c.dynlds;
		if (!settings().profile.empty()) counts.resize(k->prog->code->instructions.size());
		fill_packet();
	}

	// The dispatch packet of the HSA queue, from which older code reads the grid's size.
	void fill_packet() {
		const u32 grid[3] = {c.grid[0] * c.block[0], c.grid[1] * c.block[1], c.grid[2] * c.block[2]};
		const u16 block[3] = {(u16)c.block[0], (u16)c.block[1], (u16)c.block[2]}, dims = grid[2] > 1 ? 3 : grid[1] > 1 ? 2 : 1;
		const u64 object = k->kd, arguments = (u64)c.kernarg;
		memcpy(packet + 2, &dims, 2);
		memcpy(packet + 4, block, 6);
		memcpy(packet + 12, grid, 12);
		memcpy(packet + 24, &k->priv, 4);
		memcpy(packet + 28, &lds, 4);
		memcpy(packet + 32, &object, 8);
		memcpy(packet + 40, &arguments, 8);
	}
};

typedef std::vector<std::unique_ptr<Wave>> Pool;

void start_block(Launch& L, WorkGroup& g, u64 number, Pool& pool) {
	g.id[0] = (u32)(number % L.c.grid[0]);
	g.id[1] = (u32)(number / L.c.grid[0] % L.c.grid[1]);
	g.id[2] = (u32)(number / ((u64)L.c.grid[0] * L.c.grid[1]));
	g.k = L.k;
	g.c = &L.c;
	g.alive = L.waves;
	g.arrived = g.phase = 0;
	g.done = false;
	if (g.lds.size() < L.lds + 16) g.lds.resize(L.lds + 16);
	memset(g.lds.data(), 0xff, L.lds);
	while (g.waves.size() < L.waves) {
		if (pool.empty()) pool.push_back(std::make_unique<Wave>());
		g.waves.push_back(pool.back().release());
		pool.pop_back();
	}
	for (u32 i = 0; i < L.waves; i++) {
		start_wave(*g.waves[i], g, i, L.threads, L.packet);
		g.waves[i]->counts = L.counts.empty() ? nullptr : L.counts.data();
	}
}

u64 executed_by(const WorkGroup& g) {
	u64 n = 0;
	for (const Wave* w : g.waves) n += w->executed;
	return n;
}

void give_back(WorkGroup& g, Pool& pool) {
	for (Wave* w : g.waves) pool.emplace_back(w);
	g.waves.clear();
}

// Blocks one after another, as long as there are any.
void run_blocks(Launch& L, WorkGroup& g, Pool& pool) {
	const Settings& s = settings();
	const u64 slice = s.order == Order::ROUND_ROBIN ? s.slice : SLICE;
	for (u64 i; (i = L.next.fetch_add(1)) < L.blocks && !L.stop;) {
		start_block(L, g, i, pool);
		std::mt19937_64 random(s.seed * 1000003 + i);
		while (!step(g, slice, s.order == Order::RANDOM ? &random : nullptr, s.order == Order::REVERSED)) {}
		L.executed += executed_by(g);
	}
}

// All blocks at once, in turn: they may wait for one another.
void run_cooperative(Launch& L, std::vector<WorkGroup>& all, Pool& pool) {
	for (u64 i = 0; i < L.blocks; i++) start_block(L, all[i], i, pool);
	for (size_t left = all.size(); left;)
		for (WorkGroup& g : all)
			if (!g.done && step(g, COOPERATIVE_SLICE, nullptr, false)) {
				g.done = true;
				left--;
				L.executed += executed_by(g);
			}
}

// What one thread does. The processor rounds and treats denormals as the kernel's mode says.
void work(Launch& L) {
	static thread_local Pool pool;
	const unsigned before = _mm_getcsr();
	const bool flush_denormals = ((L.k->rsrc1 >> 16) & 3) == 0;
	_mm_setcsr(0x1f80 | (flush_denormals ? 0x8040 : 0));
	std::vector<WorkGroup> groups(L.c.coop ? L.blocks : 1);
	try {
		if (L.c.coop)
			run_cooperative(L, groups, pool);
		else
			run_blocks(L, groups[0], pool);
	} catch (Fault& f) {
		std::lock_guard<std::mutex> guard(L.lock);
		if (!L.code) {
			L.code = f.code;
			L.err = f.msg;
		}
		L.stop = true;
	}
	for (WorkGroup& g : groups) give_back(g, pool);
	_mm_setcsr(before);
}
// Appends what the launch executed: a line for the kernel, then one for each
// instruction, with its count and text.
void write_profile(const Launch& L) {
	FILE* f = fopen(settings().profile.c_str(), "a");
	if (!f) return;
	fprintf(f, "kernel %s %s wave %u blocks %llu threads %u\n", L.k->name.c_str(), L.k->prog->arch.c_str(), L.k->wave, (ull)L.blocks, L.threads);
	for (size_t i = 0; i < L.counts.size(); i++)
		if (L.counts[i]) fprintf(f, "%llu %s\n", (ull)L.counts[i], L.k->prog->code->instructions[i].text.c_str());
	fclose(f);
}
} // namespace

int run_grid(Kernel* k, const LaunchConfig& c, std::string& err, LaunchStats* st) {
	Launch L(k, c, err);
	memory_add((u64)L.packet, sizeof L.packet, "dispatch packet");
	// Compilers load three words as four where the address is a multiple of 16, as the segment's is: what is behind
	// its end up to the next multiple is read and not used. Source: LLVM, SITargetLowering::widenLoad.
	memory_add((u64)c.kernarg, std::max<u32>((k->kernarg + 15) & ~15u, 16), "kernarg segment");
	const u64 threads = c.coop || !L.counts.empty() ? 1 : std::min<u64>((u64)std::max(settings().threads, 1), L.blocks);
	std::vector<std::thread> others;
	for (u64 i = 1; i < threads; i++) others.emplace_back([&L] { work(L); });
	work(L);
	for (std::thread& t : others) t.join();
	memory_remove((u64)L.packet);
	memory_remove((u64)c.kernarg);
	if (st) st->winsts = L.executed;
	if (!L.counts.empty()) write_profile(L);
	return L.code;
}
