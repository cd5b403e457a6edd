// Parts of loading a code object.
#pragma once
#include "amdemu.h"

// Fills P.code and the branches' targets from the ELF file; false with err set.
bool disassemble(Program& P, const void* elf, size_t size, std::string& err);
