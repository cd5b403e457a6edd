// Parts of the stand-in for libhiprtc.
#pragma once
#include "files.h"
#include <map>
#include <vector>

// A program being compiled.
struct Source {
	std::string text, name, log, code;
	std::vector<std::pair<std::string, std::string>> headers; // name, text
	std::vector<std::string> expressions;                     // whose symbols are asked for
	std::map<std::string, std::string> symbols;               // expression -> symbol
	bool compiled = false;
};

// Finds in the code object the symbols that the expressions stand for.
void find_symbols(Source& s);

std::string compiler();
int compiler_version(); // of its LLVM, 19; 0 where it does not answer

// gfx90a -> 9*1000 + 0*100 + 10, as the device library numbers architectures; 0 for none.
int architecture_number(const std::string& arch);

// Runs a program with its output in a file; its exit status, -1 where it cannot be started.
int run_program(const std::vector<std::string>& command, const std::string& log);

// The built-in header of an include folder, precompiled for a command line without
// its defines: parsing it takes longer than compiling a small kernel. Empty where
// that fails.
std::string precompiled_header(const std::vector<std::string>& command, const std::string& include);

// A folder with what every compilation needs: include/ (the HIP headers and the
// built-in one, nothing else) and bitcode/ (links to the packaged libraries, and
// the constant that names the architecture, which the package lacks for
// architectures newer than itself). Empty with err set.
std::string support_folder(const std::string& arch, std::string& err);
