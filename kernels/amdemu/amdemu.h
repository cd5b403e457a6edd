// The emulator's nouns: a decoded instruction, a kernel, a loaded program, and
// the few functions through which the runtime (hip_*.cpp) drives the core.
//
// A program is decoded once, from the text that llvm-objdump prints, into an
// array of Instructions that each carry the function that executes them. So the
// encodings are LLVM's business, and this code knows only names and meanings.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;

struct Wave;
struct Instruction;
typedef void (*Execute)(Wave&, const Instruction&);
typedef std::unordered_map<std::string, Execute> OpTable;

// What an operand is. K_V is a vector register, K_S a scalar one, K_LIT a constant.
enum { K_NONE, K_V, K_S, K_LIT, K_OFF, K_NULL, K_SCC, K_TEXT, K_VCCZ, K_EXECZ };

// Numbers of the scalar registers that have names, in Wave::sgpr.
enum { SG_VCC = 106, SG_TTMP = 108, SG_M0 = 125, SG_EXEC = 126, SG_FLAT = 128, SG_XNACK = 130, SG_COUNT = 136 };

// Accumulation registers a0..a255 follow the vector registers.
enum { FIRST_ACCUMULATOR = 256 };

// An operand. A constant keeps the value that each width of reader wants.
struct Operand {
	u8 kind = K_NONE;
	u16 idx = 0;                 // register number
	bool neg = false, abs = false, sext = false;
	bool hexlit = false;         // a constant written in hexadecimal: its bits, not its value
	bool isf = false;            // a constant written as a decimal fraction
	u8 hi16 = 0;                 // the upper half of a 32-bit register (true16 names, v1.h)
	u32 l32 = 0, lpk = 0;        // a constant as 32 bits, and as a packed pair
	u16 l16 = 0;
	u64 l64 = 0;
	std::string text;
};

// Data-parallel primitives: which lane a source is taken from.
enum {
	DPP_NONE, DPP_QUAD, DPP_SHL, DPP_SHR, DPP_ROR, DPP_WSHL, DPP_WROL, DPP_WSHR, DPP_WROR, DPP_MIRROR,
	DPP_HMIRROR, DPP_BCAST15, DPP_BCAST31, DPP_SHARE, DPP_XMASK, DPP_8, DPP_NEWBCAST,
};

// Which part of a register a sub-dword (SDWA) operand is: 0-3 a byte, 4-5 a half, 6 all of it.
enum { SEL_WORD0 = 4, SEL_DWORD = 6 };

struct Instruction {
	Execute fn = nullptr;
	Operand op[8];
	u8 n = 0;                    // operands
	u8 first = 1;                // index of the first source
	bool clamp = false;
	u8 omod = 0;                 // result times 2, 4 or 1/2 (1, 2, 3)
	u8 op_sel[4] = {0, 0, 0, 0}, n_op_sel = 0, op_sel_hi[3] = {1, 1, 1}, neg_lo[3] = {0, 0, 0}, neg_hi[3] = {0, 0, 0};
	i32 offset = 0;
	u16 low16 = 0;               // low half of the first word: the offset field of LDS instructions
	bool glc = false, offen = false, idxen = false, to_lds = false;
	u8 dpp = DPP_NONE, dpp_arg[8] = {0}, row_mask = 0xf, bank_mask = 0xf;
	bool bound_ctrl = false, fetch_inactive = false;
	bool sdwa = false;
	u8 dst_sel = SEL_DWORD, dst_unused = 0, src0_sel = SEL_DWORD, src1_sel = SEL_DWORD;
	u8 cbsz = 0, abid = 0, blgp = 0; // broadcast modifiers of matrix instructions
	bool modified_source = false;    // dpp or sdwa
	i32 target = -1;                 // of a branch: index into Code::instructions
	u32 addr = 0, size = 4;
	std::unique_ptr<Instruction> y;  // halves of a dual-issue pair
	i32 x = 0, simm = 0;             // byte selector or truth table; immediate of a scalar instruction
	std::string name, text;
	std::string unknown;             // an operand or modifier that was not understood
};

// What ends a launch early: a HIP error code and the report.
struct Fault {
	std::string msg;
	int code;
};

struct Program;

struct Argument {
	u32 off, size;
	std::string kind;
};

// A kernel as its descriptor and metadata describe it.
struct Kernel {
	std::string name;
	u64 kd = 0, entry = 0; // descriptor's address, entry relative to the program
	u32 entry_idx = 0;     // index into Code::instructions
	u32 lds = 0, priv = 0, kernarg = 0, rsrc1 = 0, rsrc2 = 0, rsrc3 = 0;
	u16 props = 0, preload = 0;
	u32 vgprs = 0, sgprs = 0, agprs = 0, vspill = 0, sspill = 0, maxwg = 1024, wave = 32;
	bool dynstack = false;
	std::vector<Argument> args;
	u32 reqd[3] = {0, 0, 0}; // required block, 0 where any will do
	Program* prog = nullptr;
};

// The text section of a code object, decoded. Programs that were loaded from the same bytes share it.
struct Code {
	std::vector<Instruction> instructions;
	u64 text_lo = 0, text_hi = 0;
	std::vector<i32> idx; // word of the text -> index into instructions, -1 inside an instruction
};

// A code object in memory.
struct Program {
	std::string arch;
	int gfx = 0; // digits of the architecture read as hexadecimal: 0x1100, 0x90a
	u8* base = nullptr;
	size_t memsz = 0;
	std::shared_ptr<const Code> code;
	std::map<std::string, std::unique_ptr<Kernel>> kernels;
	std::map<std::string, std::pair<u64, u64>> vars; // name -> address, size
	bool zero16 = false;    // gfx9: a 16-bit result clears the register's upper half
	bool packed_tid = true; // thread ids arrive as three fields of v0
	~Program();
};

struct LaunchConfig {
	u32 grid[3], block[3]; // blocks, threads of a block
	u32 dynlds;
	const u8* kernarg;
	bool coop = false;
	int dev = 0;
};

struct LaunchStats {
	u64 winsts = 0; // instructions executed, per wave
};

// Loads an ELF code object or an offload bundle; nullptr with err set.
// A size of 0 or -1 is read from the ELF header.
Program* load_program(const void* elf, size_t size, std::string& err);

// Runs a grid to its end; 0 or a HIP error code with err set.
int run_grid(Kernel* k, const LaunchConfig& c, std::string& err, LaunchStats* st);

// The memory that kernels may touch: ranges with a name. An address a of a
// range lies at a + delta in this process. dev -1 belongs to all devices.
void memory_add(u64 lo, u64 size, const char* what, i64 delta = 0, int dev = -1);
void memory_remove(u64 lo);
bool memory_find(u64 a, u64* lo, u64* size, i64* delta = nullptr);

// Whether device from may access memory of device to; the runtime decides.
bool peer_allowed(int from, int to);

const OpTable& op_table();
