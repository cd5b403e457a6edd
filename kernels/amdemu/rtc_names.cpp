// Name expressions: for each, a constant { "tk<float, 3>", &tk<float, 3> } is
// compiled into the program; the symbol is what the constant's second word points to.
#include "rtc.h"
#include <elf.h>

namespace {
enum { R_RELATIVE64 = 13, STT_KERNEL = 10 };

struct Tables {
	std::map<uint64_t, uint64_t> pointers;      // address -> what it is relocated to
	std::map<uint64_t, std::string> functions;  // address -> symbol
	std::map<std::string, uint64_t> objects;    // symbol -> address
};

void read_relocations(const char* base, const Elf64_Shdr* sections, const Elf64_Shdr& s, Tables& t) {
	auto* r = (const Elf64_Rela*)(base + s.sh_offset);
	auto* symbols = s.sh_link ? (const Elf64_Sym*)(base + sections[s.sh_link].sh_offset) : nullptr;
	for (size_t k = 0; k < s.sh_size / sizeof *r; k++) {
		bool by_symbol = ELF64_R_TYPE(r[k].r_info) != R_RELATIVE64 && symbols;
		t.pointers[r[k].r_offset] = r[k].r_addend + (by_symbol ? symbols[ELF64_R_SYM(r[k].r_info)].st_value : 0);
	}
}
void read_symbols(const char* base, const Elf64_Shdr* sections, const Elf64_Shdr& s, Tables& t) {
	auto* symbols = (const Elf64_Sym*)(base + s.sh_offset);
	const char* names = base + sections[s.sh_link].sh_offset;
	for (size_t k = 0; k < s.sh_size / sizeof *symbols; k++) {
		int type = ELF64_ST_TYPE(symbols[k].st_info);
		std::string name = names + symbols[k].st_name;
		if (type == STT_FUNC || type == STT_KERNEL) t.functions[symbols[k].st_value] = name;
		if (type == STT_OBJECT) t.objects[name] = symbols[k].st_value;
	}
}
Tables read_tables(const char* base) {
	Tables t;
	auto* header = (const Elf64_Ehdr*)base;
	auto* sections = (const Elf64_Shdr*)(base + header->e_shoff);
	for (int i = 0; i < header->e_shnum; i++) {
		if (sections[i].sh_type == SHT_RELA) read_relocations(base, sections, sections[i], t);
		if (sections[i].sh_type == SHT_SYMTAB || sections[i].sh_type == SHT_DYNSYM) read_symbols(base, sections, sections[i], t);
	}
	return t;
}

bool contains(const std::string& s, const std::string& part) { return s.find(part) != std::string::npos; }

// The address of expression i's constant, whose symbol may be mangled.
bool find_constant(const Tables& t, size_t i, uint64_t& at) {
	std::string name = "__amdgcn_name_expr_" + std::to_string(i);
	auto it = t.objects.find(name);
	if (it == t.objects.end())
		for (it = t.objects.begin(); it != t.objects.end(); ++it)
			if (contains(it->first, name) && !contains(it->first, "stub")) break;
	if (it == t.objects.end()) return false;
	at = it->second;
	return true;
}
} // namespace

void find_symbols(Source& s) {
	if (s.expressions.empty()) return;
	Tables t = read_tables(s.code.data());
	std::map<uint64_t, std::string> variables;
	for (auto& [name, at] : t.objects)
		if (!contains(name, "__amdgcn_name_expr") && !contains(name, ".kd")) variables[at] = name;
	for (size_t i = 0; i < s.expressions.size(); i++) {
		uint64_t at;
		if (!find_constant(t, i + 1, at)) continue;
		auto target = t.pointers.find(at + 8);
		if (target == t.pointers.end()) continue;
		if (auto f = t.functions.find(target->second); f != t.functions.end())
			s.symbols[s.expressions[i]] = f->second;
		else if (auto v = variables.find(target->second); v != variables.end())
			s.symbols[s.expressions[i]] = v->second;
	}
}
