// Which LLVM made a code object, and the disassembler of the same one: another's
// reads the same words as other instructions, or operands as other text, without
// a complaint.
#include "codeobject.h"
#include "settings.h"
#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <elf.h>
#include <unistd.h>

// The numbers behind a phrase, wherever it occurs: 19 of "clang version 19.1.7".
static std::vector<int> versions_after(const std::string& text, const char* phrase) {
	std::vector<int> found;
	for (size_t at = 0; (at = text.find(phrase, at)) != std::string::npos;) {
		at += strlen(phrase);
		if (int v = atoi(text.c_str() + at)) found.push_back(v);
	}
	return found;
}

static std::string comment_of(const void* elf) {
	const u8* p = (const u8*)elf;
	const auto* header = (const Elf64_Ehdr*)p;
	const auto* sections = (const Elf64_Shdr*)(p + header->e_shoff);
	if (!header->e_shoff || header->e_shstrndx >= header->e_shnum) return "";
	const char* names = (const char*)(p + sections[header->e_shstrndx].sh_offset);
	for (int i = 0; i < header->e_shnum; i++)
		if (!strcmp(names + sections[i].sh_name, ".comment")) return std::string((const char*)(p + sections[i].sh_offset), sections[i].sh_size);
	return "";
}

// The linker is of the compiler's LLVM and is named once. Compilers are named for
// every part that was linked in, the device libraries' among them, which are older:
// the last one generated the code.
int producer(const void* elf, std::string& err) {
	const std::string comment = comment_of(elf);
	const std::vector<int> compilers = versions_after(comment, "clang version "), linkers = versions_after(comment, "LLD ");
	if (compilers.empty() && linkers.empty()) {
		err = "the code object does not say which compiler made it";
		return 0;
	}
	const int compiler = compilers.empty() ? linkers[0] : *std::max_element(compilers.begin(), compilers.end());
	for (int linker : linkers)
		if (linker != compiler) {
			err = "the code object was made by LLVM " + std::to_string(compiler) + " and linked by " + std::to_string(linker);
			return 0;
		}
	return compiler;
}

// The major version that a program says it is of, 0 where there is no such program.
static int version_of_program(const std::string& path) {
	if (access(path.c_str(), X_OK)) return 0;
	FILE* f = popen(("'" + path + "' --version 2>/dev/null").c_str(), "r");
	if (!f) return 0;
	std::string text;
	char part[4096];
	size_t n;
	while ((n = fread(part, 1, sizeof part, f)) > 0) text.append(part, n);
	pclose(f);
	const std::vector<int> versions = versions_after(text, "LLVM version ");
	return versions.empty() ? 0 : versions[0];
}

// llvm-objdump in the folder where a compiler lies, links followed.
static std::string beside(const std::string& compiler) {
	char real[PATH_MAX];
	if (compiler.empty() || !realpath(compiler.c_str(), real)) return "";
	const std::string path = real;
	return path.substr(0, path.rfind('/')) + "/llvm-objdump";
}

static std::string find_disassembler(int version, std::string& err) {
	const std::string& named = settings().objdump;
	const std::string v = std::to_string(version);
	if (!named.empty()) {
		const int of = version_of_program(named);
		if (of != version) err = "LLVM " + v + " made the code, and AMDEMU_OBJDUMP, " + named + ", is " + (of ? "of LLVM " + std::to_string(of) : "none");
		return of == version ? named : "";
	}
	for (const std::string& path : {beside(settings().clang), "/usr/lib/llvm-" + v + "/bin/llvm-objdump", "/usr/bin/llvm-objdump-" + v})
		if (version_of_program(path) == version) return path;
	err = "LLVM " + v + " made the code, and there is no llvm-objdump of it (install llvm-" + v + ", or set AMDEMU_OBJDUMP)";
	return "";
}

std::string disassembler(int version, std::string& err) {
	static std::unordered_map<int, std::string> found; // loading holds the runtime's lock
	std::string& path = found[version];
	if (path.empty()) path = find_disassembler(version, err);
	return path;
}
