// Parts of loading a code object.
#pragma once
#include "amdemu.h"

// The code of an ELF file, with the branches' targets; null with err set. What the same bytes gave before is given again.
std::shared_ptr<const Code> disassemble(const void* elf, size_t size, std::string& err);

// The major version of the LLVM that made a code object, by what its compiler and
// its linker wrote into its .comment section; 0 with err set where they name
// different ones or none.
int producer(const void* elf, std::string& err);

// The path of the llvm-objdump of an LLVM; empty with err set where there is none.
std::string disassembler(int version, std::string& err);
