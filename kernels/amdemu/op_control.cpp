// Control flow, barriers, the EXEC mask, and the instructions without meaning here.
#include "optable.h"
#include <ctime>

// Waits, cache control, hints: memory is consistent and time is not modelled.
static const char* const without_effect[] = {"s_nop", "s_waitcnt", "s_waitcnt_vscnt", "s_waitcnt_vmcnt", "s_waitcnt_lgkmcnt", "s_waitcnt_expcnt", "s_waitcnt_depctr",
    "s_delay_alu", "s_clause", "s_sendmsg", "s_set_inst_prefetch_distance", "s_inst_prefetch", "s_setprio", "s_sethalt", "s_dcache_inv",
    "s_gl1_inv", "s_dcache_wb", "s_icache_inv", "s_ttracedata", "s_ttracedata_imm", "s_wait_idle", "s_wait_event", "s_wait_kmcnt", "s_wait_loadcnt", "s_wait_storecnt",
    "s_wait_dscnt", "s_wait_samplecnt", "s_wait_bvhcnt", "s_wait_expcnt", "s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt", "s_wait_alu", "s_wait_xcnt", "s_version",
    "s_incperflevel", "s_decperflevel", "s_round_mode", "s_denorm_mode", "s_prefetch_inst", "s_prefetch_inst_pc_rel", "s_prefetch_data", "s_prefetch_data_pc_rel",
    "s_buffer_prefetch_data", "s_setkill", "s_wakeup", "s_code_end", "s_singleuse_vdst", "s_cbranch_cdbgsys", "s_cbranch_cdbguser", "s_setreg_b32", "s_setreg_imm32_b32",
    "buffer_gl0_inv", "buffer_gl1_inv", "buffer_wbinvl1", "buffer_wbinvl1_vol", "buffer_inv", "buffer_wbl2", "buffer_invl2", "global_inv", "global_wb", "global_wbinv",
    "s_alloc_vgpr", "v_pipeflush"};

static u64 hundred_megahertz() {
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return ((u64)t.tv_sec * 1000000000ull + t.tv_nsec) / 10;
}

// hwreg(NAME), hwreg(NAME, offset, size): the few registers that compiled code reads.
static u64 hardware_register(Wave& w, const Instruction& I) {
	const std::string& t = I.op[1].text.size() ? I.op[1].text : I.op[0].text;
	std::string name;
	int offset = 0, size = 32;
	size_t p = t.find('(');
	if (p != std::string::npos) {
		size_t e = t.find_first_of(",)", p);
		name = t.substr(p + 1, e - p - 1);
		if (t[e] == ',') sscanf(t.c_str() + e, ", %d, %d", &offset, &size);
	}
	u64 v = 0;
	if (name == "HW_REG_SHADER_CYCLES" || name == "HW_REG_SHADER_CYCLES_LO") v = (u32)__builtin_ia32_rdtsc();
	else if (name == "HW_REG_SHADER_CYCLES_HI") v = (u32)(__builtin_ia32_rdtsc() >> 32);
	else if (name == "HW_REG_MODE") v = w.mode;
	else if (name == "HW_REG_SH_MEM_BASES") v = 0x00020001;
	else if (name == "HW_REG_HW_ID1" || name == "HW_REG_HW_ID") v = w.id & 31;
	else fault(w, 801, "hardware register not known to the emulator: %s", I.text.c_str());
	v >>= offset;
	return size < 32 ? v & ((1ull << size) - 1) : v;
}

static void jump(Wave& w, u64 a) {
	u64 at = a - (u64)w.program->base;
	const Code& code = *w.program->code;
	if (at < code.text_lo || at >= code.text_hi) fault(w, 700, "jump to %#llx outside code", (unsigned long long)a);
	i32 i = code.idx[(at - code.text_lo) / 4];
	if (i < 0) fault(w, 700, "jump into the middle of an instruction");
	w.pc = (u32)i;
}

static u64 next_address(Wave& w, const Instruction& I) { return (u64)w.program->base + I.addr + I.size; }

// EXEC becomes f(source, EXEC); the destination gets what EXEC was (save) or is.
template <bool WIDE, bool SAVE, class F> static inline void change_exec(Wave& w, const Instruction& I, F f) {
	if (WIDE) {
		u64 e = pair(&w.sgpr[SG_EXEC]), n = f(scalar64(w, I.op[1]), e);
		set_pair(&w.sgpr[SG_EXEC], n);
		set_scalar64(w, I.op[0], SAVE ? e : n);
		w.scc = n != 0;
	} else {
		u32 e = w.sgpr[SG_EXEC], n = (u32)f(scalar(w, I.op[1]), e);
		w.sgpr[SG_EXEC] = n;
		set_scalar(w, I.op[0], SAVE ? e : n);
		w.scc = n != 0;
	}
}
// s is the source, e is EXEC.
#define SAVE_EXEC(name, ...) \
	OP("s_" name "_saveexec_b32", change_exec<false, true>(w, I, [](u64 s, u64 e) -> u64 { return __VA_ARGS__; })); \
	OP("s_" name "_saveexec_b64", change_exec<true, true>(w, I, [](u64 s, u64 e) -> u64 { return __VA_ARGS__; }))
#define WRITE_EXEC(name, ...) \
	OP("s_" name "_wrexec_b32", change_exec<false, false>(w, I, [](u64 s, u64 e) -> u64 { return __VA_ARGS__; })); \
	OP("s_" name "_wrexec_b64", change_exec<true, false>(w, I, [](u64 s, u64 e) -> u64 { return __VA_ARGS__; }))

static void signal_barrier(Wave& w) {
	WorkGroup* g = w.group;
	w.barrier_phase = g->phase;
	w.signalled = true;
	if (++g->arrived >= g->alive) {
		g->arrived = 0;
		g->phase++;
	}
}
static void wait_barrier(Wave& w) {
	if (w.signalled && w.group->phase == w.barrier_phase) { // not yet: come back to this instruction
		w.pc--;
		w.state = YIELDED;
	} else {
		w.signalled = false;
	}
}

static void index_registers(Wave& w, const Instruction& I) {
	const std::string& t = I.op[1].text;
	auto has = [&](const char* name) { return t.find(name) != std::string::npos; };
	if (has("SRC1") || has("SRC2")) fault(w, 1, "s_set_gpr_idx_on mode");
	w.index_on = true;
	w.index_mode = (has("SRC0") ? 1 : 0) | (has("DST") ? 8 : 0);
	w.sgpr[SG_M0] = (w.sgpr[SG_M0] & ~0xffu) | (scalar(w, I.op[0]) & 0xff);
}

static void add_branches(OpTable& m) {
	OP("s_endpgm", w.state = ENDED);
	alias(m, "s_endpgm_saved", "s_endpgm");
	OP("s_trap", fault(w, 710, "s_trap (device assert/abort/__builtin_trap)"));
	OP("s_branch", w.pc = I.target);
	OP("s_cbranch_scc0", if (!w.scc) w.pc = I.target);
	OP("s_cbranch_scc1", if (w.scc) w.pc = I.target);
	OP("s_cbranch_vccz", if (!vcc_mask(w)) w.pc = I.target);
	OP("s_cbranch_vccnz", if (vcc_mask(w)) w.pc = I.target);
	OP("s_cbranch_execz", if (!exec_mask(w)) w.pc = I.target);
	OP("s_cbranch_execnz", if (exec_mask(w)) w.pc = I.target);
	OP("s_getpc_b64", set_scalar64(w, I.op[0], next_address(w, I)));
	OP("s_setpc_b64", jump(w, scalar64(w, I.op[0])));
	OP("s_swappc_b64", u64 t = scalar64(w, I.op[1]); set_scalar64(w, I.op[0], next_address(w, I)); jump(w, t));
	OP("s_call_b64", set_scalar64(w, I.op[0], next_address(w, I)); w.pc = I.target);
	OP("s_barrier", w.state = AT_BARRIER);
	OP("s_sleep", w.state = SLEEPING);
	OP("s_sleep_var", w.state = SLEEPING);
	OP("s_barrier_signal", signal_barrier(w));
	OP("s_barrier_signal_isfirst", fault(w, 1, "s_barrier_signal_isfirst not supported"));
	OP("s_barrier_wait", wait_barrier(w));
}

static void add_exec(OpTable& m) {
	SAVE_EXEC("and", s & e);
	SAVE_EXEC("or", s | e);
	SAVE_EXEC("xor", s ^ e);
	SAVE_EXEC("nand", ~(s & e));
	SAVE_EXEC("nor", ~(s | e));
	SAVE_EXEC("xnor", ~(s ^ e));
	SAVE_EXEC("and_not0", ~s & e);
	SAVE_EXEC("or_not0", ~s | e);
	SAVE_EXEC("and_not1", s & ~e);
	SAVE_EXEC("or_not1", s | ~e);
	SAVE_EXEC("andn1", ~s & e);
	SAVE_EXEC("orn1", ~s | e);
	SAVE_EXEC("andn2", s & ~e);
	SAVE_EXEC("orn2", s | ~e);
	WRITE_EXEC("and_not0", ~s & e);
	WRITE_EXEC("and_not1", s & ~e);
	WRITE_EXEC("andn1", ~s & e);
	WRITE_EXEC("andn2", s & ~e);
}

void add_control(OpTable& m) {
	for (const char* n : without_effect) OP(n, (void)w; (void)I);
	add_branches(m);
	add_exec(m);
	OP("s_getreg_b32", set_scalar(w, I.op[0], (u32)hardware_register(w, I)));
	OP("s_memtime", set_scalar64(w, I.op[0], __builtin_ia32_rdtsc()));
	OP("s_memrealtime", set_scalar64(w, I.op[0], hundred_megahertz()));
	OP("s_sendmsg_rtn_b64", set_scalar64(w, I.op[0], I.op[1].text.find("REALTIME") != std::string::npos ? hundred_megahertz() : 0));
	OP("s_sendmsg_rtn_b32", set_scalar(w, I.op[0], 0));
	OP("s_set_gpr_idx_on", index_registers(w, I));
	OP("s_set_gpr_idx_off", w.index_on = false);
	OP("s_set_gpr_idx_idx", w.sgpr[SG_M0] = (w.sgpr[SG_M0] & ~0xffu) | (scalar(w, I.op[0]) & 0xff));
}
