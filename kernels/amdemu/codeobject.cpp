// Loading: an ELF code object, perhaps out of an offload bundle, is laid out in
// memory, relocated, disassembled, and its kernels' descriptors read.
// Source: "User Guide for AMDGPU Backend" of LLVM (code object V4 and V5, kernel
// descriptor, metadata), and the System V ABI for ELF.
#include "codeobject.h"
#include "msgpack.h"
#include "settings.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <elf.h>
#include <sys/mman.h>

Program::~Program() {
	if (!base) return;
	memory_remove((u64)base);
	munmap(base, memsz);
}

namespace {
enum { EM_AMD = 224, NOTE_METADATA = 32 };
enum { R_ABS64 = 3, R_GLOB64 = 7, R_RELATIVE64 = 13 };

// The file, with the tables that are read.
struct Elf {
	const u8* p;
	const Elf64_Ehdr* header() const { return (const Elf64_Ehdr*)p; }
	const Elf64_Phdr* segments() const { return (const Elf64_Phdr*)(p + header()->e_phoff); }
	const Elf64_Shdr* sections() const { return (const Elf64_Shdr*)(p + header()->e_shoff); }
	const Elf64_Sym* symbols(int section) const { return (const Elf64_Sym*)(p + sections()[section].sh_offset); }
	int segment_count() const { return header()->e_phnum; }
	int section_count() const { return header()->e_shnum; }
	size_t size_by_header() const { return header()->e_shoff + (size_t)section_count() * header()->e_shentsize; }
};

// The code object for the device's architecture in a bundle that clang made.
const u8* find_in_bundle(const u8* p, size_t& size, std::string& err) {
	u64 count;
	memcpy(&count, p + 24, 8);
	const u8* entry = p + 32;
	for (u64 i = 0; i < count; i++) {
		u64 offset, bytes, name;
		memcpy(&offset, entry, 8);
		memcpy(&bytes, entry + 8, 8);
		memcpy(&name, entry + 16, 8);
		std::string id((const char*)entry + 24, name);
		entry += 24 + name;
		if (bytes && id.find("amdgcn") != std::string::npos && id.find(settings().arch) != std::string::npos) {
			size = bytes;
			return p + offset;
		}
	}
	err = "no code object for this arch in bundle";
	return nullptr;
}

bool lay_out(const Elf& elf, Program& P, std::string& err) {
	u64 top = 0;
	const Elf64_Phdr* s = elf.segments();
	for (int i = 0; i < elf.segment_count(); i++)
		if (s[i].p_type == PT_LOAD) top = std::max<u64>(top, s[i].p_vaddr + s[i].p_memsz);
	P.memsz = (top + 0xffff) & ~0xffffull;
	void* at = mmap(nullptr, P.memsz, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED) {
		err = "no memory for the code object";
		return false;
	}
	P.base = (u8*)at;
	for (int i = 0; i < elf.segment_count(); i++)
		if (s[i].p_type == PT_LOAD) memcpy(P.base + s[i].p_vaddr, elf.p + s[i].p_offset, s[i].p_filesz);
	memory_add((u64)P.base, P.memsz, "code object");
	return true;
}

bool read_metadata(const Elf& elf, Packed& meta) {
	const Elf64_Phdr* s = elf.segments();
	for (int i = 0; i < elf.segment_count(); i++) {
		if (s[i].p_type != PT_NOTE) continue;
		const u8 *q = elf.p + s[i].p_offset, *end = q + s[i].p_filesz;
		while (q + 12 <= end) {
			u32 head[3]; // sizes of name and content, type
			memcpy(head, q, 12);
			const u8 *name = q + 12, *content = name + ((head[0] + 3) & ~3u);
			q = content + ((head[1] + 3) & ~3u);
			if (head[2] != NOTE_METADATA || head[0] < 6 || memcmp(name, "AMDGPU", 6)) continue;
			meta = parse_packed(content, content + head[1]);
			return true;
		}
	}
	return false;
}

void set_architecture(Program& P, const std::string& target) {
	size_t at = target.rfind("gfx");
	P.arch = at == std::string::npos ? "gfx1100" : target.substr(at);
	P.gfx = (int)strtol(P.arch.substr(3, P.arch.find(':') == std::string::npos ? std::string::npos : P.arch.find(':') - 3).c_str(), nullptr, 16);
	P.zero16 = P.gfx < 0x1000;
	P.packed_tid = P.gfx >= 0x1100 || P.gfx == 0x90a || (P.gfx >= 0x940 && P.gfx < 0x1000);
}

void read_symbols(const Elf& elf, Program& P) {
	const Elf64_Shdr* s = elf.sections();
	for (int i = 0; i < elf.section_count(); i++) {
		if (s[i].sh_type != SHT_DYNSYM && s[i].sh_type != SHT_SYMTAB) continue;
		const Elf64_Sym* symbols = elf.symbols(i);
		const char* names = (const char*)(elf.p + s[s[i].sh_link].sh_offset);
		for (size_t k = 0; k < s[i].sh_size / sizeof(Elf64_Sym); k++) {
			std::string name = names + symbols[k].st_name;
			if (!name.empty() && symbols[k].st_shndx != SHN_UNDEF) P.vars[name] = {(u64)P.base + symbols[k].st_value, symbols[k].st_size};
		}
	}
}

bool relocate(const Elf& elf, Program& P, std::string& err) {
	const Elf64_Shdr* s = elf.sections();
	for (int i = 0; i < elf.section_count(); i++) {
		if (s[i].sh_type != SHT_RELA) continue;
		const Elf64_Rela* r = (const Elf64_Rela*)(elf.p + s[i].sh_offset);
		for (size_t k = 0; k < s[i].sh_size / sizeof(Elf64_Rela); k++) {
			u32 type = ELF64_R_TYPE(r[k].r_info);
			u64 value = (u64)P.base + r[k].r_addend;
			if (type != R_RELATIVE64) {
				if (!s[i].sh_link) continue;
				value += elf.symbols((int)s[i].sh_link)[ELF64_R_SYM(r[k].r_info)].st_value;
			}
			if (type != R_RELATIVE64 && type != R_ABS64 && type != R_GLOB64) {
				err = "relocation type " + std::to_string(type) + " not supported";
				return false;
			}
			memcpy(P.base + r[k].r_offset, &value, 8);
		}
	}
	return true;
}

// The 64 bytes at the kernel's descriptor.
void read_descriptor(Kernel& k, const Program& P) {
	const u8* d = (const u8*)k.kd;
	i64 entry;
	memcpy(&k.lds, d, 4);
	memcpy(&k.priv, d + 4, 4);
	memcpy(&k.kernarg, d + 8, 4);
	memcpy(&entry, d + 16, 8);
	memcpy(&k.rsrc3, d + 44, 4);
	memcpy(&k.rsrc1, d + 48, 4);
	memcpy(&k.rsrc2, d + 52, 4);
	memcpy(&k.props, d + 56, 2);
	memcpy(&k.preload, d + 58, 2);
	k.entry = k.kd + entry - (u64)P.base;
}

void read_kernel_metadata(Kernel& k, const Packed& meta) {
	k.vgprs = (u32)meta[".vgpr_count"].number;
	k.sgprs = (u32)meta[".sgpr_count"].number;
	k.agprs = (u32)meta[".agpr_count"].number;
	k.vspill = (u32)meta[".vgpr_spill_count"].number;
	k.sspill = (u32)meta[".sgpr_spill_count"].number;
	k.maxwg = (u32)meta[".max_flat_workgroup_size"].number;
	k.dynstack = meta[".uses_dynamic_stack"].number;
	if (meta.has(".kernarg_segment_size")) k.kernarg = (u32)meta[".kernarg_segment_size"].number;
	k.wave = meta.has(".wavefront_size") ? (u32)meta[".wavefront_size"].number : (k.props >> 10) & 1 ? 32 : 64;
	for (const Packed& a : meta[".args"].list) k.args.push_back({(u32)a[".offset"].number, (u32)a[".size"].number, a[".value_kind"].text});
	const std::vector<Packed>& required = meta[".reqd_workgroup_size"].list;
	for (size_t i = 0; i < required.size() && i < 3; i++) k.reqd[i] = (u32)required[i].number;
}

bool read_kernels(const Packed& meta, Program& P, std::string& err) {
	for (const Packed& m : meta["amdhsa.kernels"].list) {
		auto symbol = P.vars.find(m[".symbol"].text);
		if (symbol == P.vars.end()) continue;
		auto k = std::make_unique<Kernel>();
		k->name = m[".name"].text;
		k->prog = &P;
		k->kd = symbol->second.first;
		read_descriptor(*k, P);
		read_kernel_metadata(*k, m);
		i32 at = k->entry >= P.code->text_lo && k->entry < P.code->text_hi ? P.code->idx[(k->entry - P.code->text_lo) / 4] : -1;
		if (at < 0) {
			err = "kernel entry not found: " + k->name;
			return false;
		}
		k->entry_idx = (u32)at;
		P.kernels[k->name] = std::move(k);
	}
	return true;
}
} // namespace

Program* load_program(const void* image, size_t size, std::string& err) {
	const u8* p = (const u8*)image;
	if (size < 24 && size != 0) err = "image too small";
	else if (!memcmp(p, "CCOB", 4)) err = "compressed offload bundle not supported";
	else if (!memcmp(p, "__CLANG_OFFLOAD_BUNDLE__", 24)) p = find_in_bundle(p, size, err);
	if (!err.empty()) return nullptr;
	Elf elf{p};
	if (memcmp(p, ELFMAG, 4) || p[EI_CLASS] != ELFCLASS64) err = "not an ELF64";
	else if (elf.header()->e_machine != EM_AMD) err = "not an AMDGPU code object";
	if (!err.empty()) return nullptr;
	if (size == 0 || size == (size_t)-1) size = elf.size_by_header();
	auto P = std::make_unique<Program>();
	Packed meta;
	if (!lay_out(elf, *P, err)) return nullptr;
	if (!read_metadata(elf, meta)) {
		err = "no AMDGPU metadata note";
		return nullptr;
	}
	set_architecture(*P, meta["amdhsa.target"].text);
	read_symbols(elf, *P);
	if (!relocate(elf, *P, err) || !(P->code = disassemble(p, size, err)) || !read_kernels(meta, *P, err)) return nullptr;
	return P.release();
}
