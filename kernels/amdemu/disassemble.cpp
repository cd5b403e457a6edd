// The text section of a code object through llvm-objdump, line by line into the
// program's instructions, and the branches' targets.
#include "codeobject.h"
#include "decode.h"
#include "settings.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

// A line reads: tab, text, // address: words in hexadecimal.
struct Line {
	std::string text;
	u64 address;
	u32 first_word;
	int words;
};
static bool parse_line(const char* line, Line& out) {
	if (line[0] != '\t') return false;
	std::string s = line + 1;
	size_t comment = s.rfind("// ");
	if (comment == std::string::npos) return false;
	out.text = s.substr(0, comment);
	size_t last = out.text.find_last_not_of(" \t");
	out.text.resize(last == std::string::npos ? 0 : last + 1);
	char* p;
	out.address = strtoull(s.c_str() + comment + 3, &p, 16);
	if (*p++ != ':') return false;
	out.words = 0;
	for (;;) {
		while (*p == ' ') p++;
		char* end;
		u32 word = (u32)strtoul(p, &end, 16);
		if (end - p < 8) break;
		if (!out.words++) out.first_word = word;
		p = end;
	}
	return out.words > 0;
}

// The address that a branch goes to, 0 for another instruction: a count of words from the next.
static u64 branch_target(const Instruction& I, u32 first_word) {
	const std::string& n = I.name;
	if (n.compare(0, 8, "s_branch") && n.compare(0, 9, "s_cbranch") && n != "s_call_b64") return 0;
	return (u64)I.addr + 4 + (i64)(i16)(first_word & 0xffff) * 4;
}

static bool read_lines(FILE* f, Program& P, std::vector<u64>& targets) {
	char* line = nullptr;
	size_t capacity = 0;
	Line l;
	while (getline(&line, &capacity, f) > 0) {
		if (!parse_line(line, l)) continue;
		P.code.emplace_back();
		Instruction& I = P.code.back();
		I.addr = (u32)l.address;
		I.size = (u32)l.words * 4;
		I.low16 = (u16)l.first_word;
		parse_instruction(I, l.text);
		targets.push_back(branch_target(I, l.first_word));
	}
	free(line);
	return !P.code.empty();
}

static bool set_targets(Program& P, const std::vector<u64>& targets) {
	P.text_lo = ~0ull;
	P.text_hi = 0;
	for (const Instruction& I : P.code) {
		P.text_lo = std::min<u64>(P.text_lo, I.addr);
		P.text_hi = std::max<u64>(P.text_hi, I.addr + I.size);
	}
	P.idx.assign((P.text_hi - P.text_lo) / 4, -1);
	for (size_t i = 0; i < P.code.size(); i++) P.idx[(P.code[i].addr - P.text_lo) / 4] = (i32)i;
	for (size_t i = 0; i < P.code.size(); i++) {
		u64 t = targets[i];
		if (!t) continue;
		if (t < P.text_lo || t >= P.text_hi || P.idx[(t - P.text_lo) / 4] < 0) return false;
		P.code[i].target = P.idx[(t - P.text_lo) / 4];
	}
	return true;
}

bool disassemble(Program& P, const void* elf, size_t size, std::string& err) {
	const int version = producer(elf, err);
	const std::string objdump = version ? disassembler(version, err) : "";
	if (objdump.empty()) return false;
	const char* folder = getenv("TMPDIR");
	std::string name = std::string(folder && *folder ? folder : "/tmp") + "/amdemu-XXXXXX";
	int fd = mkstemp(&name[0]);
	bool written = fd >= 0 && ::write(fd, elf, size) == (ssize_t)size;
	if (fd >= 0) close(fd);
	FILE* f = written ? popen((objdump + " -d " + name + " 2>/dev/null").c_str(), "r") : nullptr;
	std::vector<u64> targets;
	bool read = f && read_lines(f, P, targets);
	if (f) pclose(f);
	if (fd >= 0 && !settings().keep_files) unlink(name.c_str());
	if (!written) err = "cannot write " + name;
	else if (!read) err = "no instructions from " + objdump;
	else if (!set_targets(P, targets)) err = "bad branch target";
	return err.empty();
}
