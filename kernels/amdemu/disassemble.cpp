// The text section of a code object through llvm-objdump, line by line into
// instructions, and the branches' targets.
#include "codeobject.h"
#include "decode.h"
#include "files.h"
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

static void read_lines(const std::string& lines, Code& C, std::vector<u64>& targets) {
	Line l;
	for (size_t at = 0, end; at < lines.size(); at = end + 1) {
		end = std::min(lines.find('\n', at), lines.size());
		if (!parse_line(lines.substr(at, end - at).c_str(), l)) continue;
		C.instructions.emplace_back();
		Instruction& I = C.instructions.back();
		I.addr = (u32)l.address;
		I.size = (u32)l.words * 4;
		I.low16 = (u16)l.first_word;
		parse_instruction(I, l.text);
		targets.push_back(branch_target(I, l.first_word));
	}
}

static bool set_targets(Code& C, const std::vector<u64>& targets) {
	C.text_lo = ~0ull;
	for (const Instruction& I : C.instructions) {
		C.text_lo = std::min<u64>(C.text_lo, I.addr);
		C.text_hi = std::max<u64>(C.text_hi, I.addr + I.size);
	}
	C.idx.assign((C.text_hi - C.text_lo) / 4, -1);
	for (size_t i = 0; i < C.instructions.size(); i++) C.idx[(C.instructions[i].addr - C.text_lo) / 4] = (i32)i;
	for (size_t i = 0; i < C.instructions.size(); i++) {
		u64 t = targets[i];
		if (!t) continue;
		if (t < C.text_lo || t >= C.text_hi || C.idx[(t - C.text_lo) / 4] < 0) return false;
		C.instructions[i].target = C.idx[(t - C.text_lo) / 4];
	}
	return true;
}

// What llvm-objdump prints of a code object; empty with err set.
static std::string run_disassembler(const std::string& elf, int version, std::string& err) {
	const std::string objdump = disassembler(version, err);
	if (objdump.empty()) return "";
	const std::string name = temporary_name(variable("TMPDIR", "/tmp") + "/amdemu");
	const bool written = write_file(name, elf);
	std::string text;
	int status = -1;
	if (FILE* f = written ? popen((objdump + " -d " + name + " 2>/dev/null").c_str(), "r") : nullptr) {
		char part[65536];
		for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) text.append(part, n);
		status = pclose(f);
	}
	if (!settings().keep_files) unlink(name.c_str());
	if (!written) err = "cannot write " + name;
	else if (status || text.empty()) err = "no instructions from " + objdump;
	return err.empty() ? text : "";
}

// As run_disassembler, once for each code object: starting it takes longer than the rest of loading.
static std::string lines_of(const std::string& elf, int version, std::string& err) {
	const std::string file = cache_file(elf, (".llvm-" + std::to_string(version)).c_str());
	std::string text = file.empty() ? "" : read_file(file);
	if (!text.empty()) return text;
	text = run_disassembler(elf, version, err);
	if (text.empty() || file.empty()) return text;
	make_folders(cache_folder());
	write_atomically(file, text);
	return text;
}

static std::shared_ptr<const Code> decode(const std::string& elf, std::string& err) {
	const int version = producer(elf.data(), err);
	if (!version) return nullptr;
	const std::string lines = lines_of(elf, version, err);
	if (!err.empty()) return nullptr;
	auto C = std::make_shared<Code>();
	std::vector<u64> targets;
	read_lines(lines, *C, targets);
	if (C->instructions.empty()) err = "no instructions in the disassembly";
	else if (!set_targets(*C, targets)) err = "bad branch target";
	return err.empty() ? C : nullptr;
}

// Programs load the same kernels again for each model. What nobody uses goes when there is much of it.
std::shared_ptr<const Code> disassemble(const void* elf, size_t size, std::string& err) {
	enum { MANY = 1 << 19 };
	static std::unordered_map<std::string, std::shared_ptr<const Code>> all; // loading holds the runtime's lock
	static size_t instructions = 0;
	const std::string bytes((const char*)elf, size);
	auto known = all.find(bytes);
	if (known != all.end()) return known->second;
	std::shared_ptr<const Code> code = decode(bytes, err);
	if (!code) return nullptr;
	if (instructions > MANY)
		for (auto it = all.begin(); it != all.end();) {
			const bool unused = it->second.use_count() == 1;
			if (unused) instructions -= it->second->instructions.size();
			it = unused ? all.erase(it) : std::next(it);
		}
	instructions += code->instructions.size();
	return all[bytes] = code;
}
