// Stand-in for libhiprtc: compiles HIP source with an installed clang, the HIP
// device headers and the ROCm device bitcode, and caches what comes out.
#include "rtc.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#define API extern "C" __attribute__((visibility("default")))

enum Result {
	SUCCESS = 0, INVALID_INPUT = 3, INVALID_PROGRAM = 4, INVALID_OPTION = 5, COMPILATION = 6, NO_EXPRESSIONS_AFTER_COMPILATION = 8,
	NO_NAMES_BEFORE_COMPILATION = 9, EXPRESSION_NOT_VALID = 10, INTERNAL_ERROR = 11,
};
static const std::map<int, const char*> result_names = {{0, "HIPRTC_SUCCESS"}, {1, "HIPRTC_ERROR_OUT_OF_MEMORY"}, {2, "HIPRTC_ERROR_PROGRAM_CREATION_FAILURE"},
    {3, "HIPRTC_ERROR_INVALID_INPUT"}, {4, "HIPRTC_ERROR_INVALID_PROGRAM"}, {5, "HIPRTC_ERROR_INVALID_OPTION"}, {6, "HIPRTC_ERROR_COMPILATION"},
    {7, "HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE"}, {8, "HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION"},
    {9, "HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION"}, {10, "HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID"}, {11, "HIPRTC_ERROR_INTERNAL_ERROR"},
    {100, "HIPRTC_ERROR_LINKING"}};

static std::mutex lock;
static std::set<Source*> live;

API int hiprtcVersion(int* major, int* minor) {
	if (!major || !minor) return INVALID_INPUT;
	*major = 9;
	*minor = 0;
	return SUCCESS;
}
API const char* hiprtcGetErrorString(int e) {
	auto it = result_names.find(e);
	return it == result_names.end() ? "Invalid HIPRTC error code" : it->second;
}
API int hiprtcCreateProgram(Source** out, const char* text, const char* name, int n, const char** headers, const char** header_names) {
	if (!out || !text || n < 0 || (n && (!headers || !header_names))) return INVALID_INPUT;
	auto* s = new Source;
	s->text = text;
	s->name = name && *name ? name : "hiprtc_src.cu";
	for (int i = 0; i < n; i++) s->headers.push_back({header_names[i], headers[i]});
	std::lock_guard<std::mutex> guard(lock);
	live.insert(s);
	*out = s;
	return SUCCESS;
}
API int hiprtcDestroyProgram(Source** s) {
	if (!s || !*s) return INVALID_INPUT;
	std::lock_guard<std::mutex> guard(lock);
	if (!live.erase(*s)) return INVALID_PROGRAM;
	delete *s;
	*s = nullptr;
	return SUCCESS;
}

// An expression without parentheses around it and an ampersand before it.
static std::string bare(std::string n) {
	if (!n.empty() && n.back() == ')') {
		n.pop_back();
		n.erase(0, n.find('(') + 1);
	}
	if (!n.empty() && n[0] == '&') n.erase(0, 1);
	return n;
}
API int hiprtcAddNameExpression(Source* s, const char* expression) {
	if (!s || !expression) return INVALID_INPUT;
	if (s->compiled) return NO_EXPRESSIONS_AFTER_COMPILATION;
	std::string e = bare(expression);
	s->expressions.push_back(e);
	std::string name = "__amdgcn_name_expr_" + std::to_string(s->expressions.size()), stub = name;
	stub.insert(strlen("__amdgcn_name_expr_"), "stub_");
	s->text += "\n static __device__ const void* " + name + "[]= {\"" + e + "\", (void*)&" + e + "};\n static auto " + stub + " = " + name + ";\n";
	return SUCCESS;
}

// What the caller's options say.
struct Options {
	std::string arch;
	bool builtin = true, wave64 = false;
	std::vector<std::string> others;
};
static int parse_options(int n, const char** given, Options& o, std::string& log) {
	for (int i = 0; i < n; i++) {
		std::string s = given[i] ? given[i] : "";
		if (s.empty() || s == "-hip-pch") continue;
		if (s == "-fgpu-rdc") {
			log = "amdemu: -fgpu-rdc is not supported\n";
			return INVALID_OPTION;
		}
		if (s == "--hiprtc-no-builtin-header") {
			o.builtin = false;
		} else if (s.compare(0, 19, "--gpu-architecture=") == 0) {
			o.arch = s.substr(19);
		} else if (s.compare(0, 15, "--offload-arch=") == 0) {
			o.arch = s.substr(15);
		} else {
			if (s == "-mwavefrontsize64") o.wave64 = true;
			o.others.push_back(s);
		}
	}
	if (o.arch.empty()) o.arch = variable("AMDEMU_ARCH", "gfx1100");
	if (architecture_number(o.arch)) return SUCCESS;
	log = "amdemu: bad architecture '" + o.arch + "'\n";
	return INVALID_OPTION;
}

static std::vector<std::string> command_line(const Options& o, const std::string& support) {
	std::vector<std::string> c = {compiler(), "-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-O3", "-std=c++14", "-nogpuinc", "-nostdlibinc",
	    "-nostdinc++", "--offload-arch=" + o.arch, "-mcode-object-version=5", "--rocm-device-lib-path=" + support + "/bitcode"};
	if (o.builtin) c.insert(c.end(), {"-D__HIPCC_RTC__", "-isystem", support + "/include", "-include", "amdemu_builtin.h"});
	c.insert(c.end(), o.others.begin(), o.others.end());
	if (compiler_version() > 19) { // later ones no longer define the wave size and names that the headers use, nor link these parts of the device library
		const bool wave64 = o.arch.find("gfx9") == 0 || o.wave64;
		c.insert(c.end(), {wave64 ? "-D__AMDGCN_WAVEFRONT_SIZE=64" : "-D__AMDGCN_WAVEFRONT_SIZE=32", "-Wno-builtin-macro-redefined", "-Wno-macro-redefined",
		                      "-D__llvm_amdgcn_rcp_f16=__builtin_amdgcn_rcph",
		                      "-D__llvm_amdgcn_rcp_2f16(x)=__half2{_Float16_2{__builtin_amdgcn_rcph((x).data[0]), __builtin_amdgcn_rcph((x).data[1])}}", "-Xclang", "-mlink-builtin-bitcode", "-Xclang", support + "/bitcode/oclc_daz_opt_off.bc",
		                      "-Xclang", "-mlink-builtin-bitcode", "-Xclang", support + "/bitcode/hip.bc"});
	}
	return c;
}

static bool is_define(const std::string& o) { return o.compare(0, 2, "-D") == 0; }
// A define that the built-in header may ask for.
static bool concerns_header(const std::string& o) { return is_define(o) && (o.compare(0, 4, "-D__") == 0 || o.compare(0, 5, "-DHIP") == 0); }

// The command with the built-in header precompiled, for all defines that the caller may give, where that can be done.
static std::vector<std::string> with_precompiled_header(std::vector<std::string> command, const std::vector<std::string>& given) {
	auto at = std::find(command.begin(), command.end(), "amdemu_builtin.h");
	if (at == command.end() || std::any_of(given.begin(), given.end(), concerns_header)) return command;
	const size_t i = at - command.begin() - 1; // of -include
	std::vector<std::string> make = command;
	make.erase(make.begin() + i, make.begin() + i + 2);
	auto is_given = [&](const std::string& o) { return is_define(o) && std::find(given.begin(), given.end(), o) != given.end(); };
	make.erase(std::remove_if(make.begin(), make.end(), is_given), make.end());
	std::string header = precompiled_header(make, command[i - 1]);
	if (header.empty()) return command;
	command[i] = "-Xclang";
	command[i + 1] = "-include-pch";
	command.insert(command.begin() + i + 2, {"-Xclang", header});
	return command;
}

static std::string cache_key(const Source& s, const std::vector<std::string>& command) {
	std::string key = s.text + "\n//" + s.name;
	for (const std::string& c : command) key += "\x01" + c;
	for (const auto& h : s.headers) key += "\x02" + h.first + "\x03" + h.second;
	return key;
}

// A folder for one compilation, emptied and removed unless it is to be kept.
struct Workspace {
	std::string folder;
	std::vector<std::string> files, folders;
	Workspace() {
		folder = variable("TMPDIR", "/tmp") + "/amdrtc-XXXXXX";
		if (!mkdtemp(&folder[0])) folder.clear();
	}
	std::string file(const std::string& name) {
		std::string path = folder + "/" + name;
		for (size_t i = folder.size() + 1; i < path.size(); i++)
			if (path[i] == '/') {
				folders.push_back(path.substr(0, i));
				mkdir(folders.back().c_str(), 0700);
			}
		files.push_back(path);
		return path;
	}
	~Workspace() {
		if (folder.empty()) return;
		if (getenv("AMDEMU_RTC_KEEP")) {
			fprintf(stderr, "[amdrtc] kept %s\n", folder.c_str());
			return;
		}
		for (const std::string& f : files) unlink(f.c_str());
		for (size_t i = folders.size(); i-- > 0;) rmdir(folders[i].c_str());
		rmdir(folder.c_str());
	}
};

static int compile(Source& s, std::vector<std::string> command, const std::vector<std::string>& given) {
	Workspace at;
	if (at.folder.empty()) return INTERNAL_ERROR;
	std::string in = at.file(s.name.find('/') == std::string::npos ? s.name : "hiprtc_src.cu"), out = at.file("out.co"), log = at.file("log");
	write_file(in, s.text);
	for (const auto& h : s.headers) write_file(at.file(h.first), h.second);
	command = with_precompiled_header(command, given);
	command.insert(command.end(), {"-I" + at.folder, in, "-o", out});
	if (getenv("AMDEMU_RTC_VERBOSE")) {
		for (const std::string& c : command) fprintf(stderr, "%s ", c.c_str());
		fprintf(stderr, "\n");
	}
	int status = run_program(command, log);
	if (status < 0) {
		s.log = "cannot start " + command[0];
		return INTERNAL_ERROR;
	}
	s.log = read_file(log);
	for (size_t p; (p = s.log.find(at.folder + "/")) != std::string::npos;) s.log.erase(p, at.folder.size() + 1);
	s.code = status ? "" : read_file(out);
	if (!s.code.empty()) return SUCCESS;
	if (getenv("AMDEMU_LOG")) fprintf(stderr, "[amdrtc] compile failed:\n%s\n", s.log.c_str());
	return COMPILATION;
}

API int hiprtcCompileProgram(Source* s, int n, const char** given) {
	if (!s || n < 0 || (n && !given)) return INVALID_INPUT;
	{
		std::lock_guard<std::mutex> guard(lock);
		if (!live.count(s)) return INVALID_PROGRAM;
	}
	Options options;
	if (int e = parse_options(n, given, options, s->log)) return e;
	std::string support = support_folder(options.arch, s->log);
	if (support.empty()) {
		fprintf(stderr, "[amdrtc] %s", s->log.c_str());
		return COMPILATION;
	}
	std::vector<std::string> command = command_line(options, support);
	s->compiled = true;
	const std::string file = cache_file(cache_key(*s, command), ".co");
	const bool cached = !file.empty();
	if (cached) s->code = read_file(file);
	if (s->code.size() > 64) {
		s->log = read_file(file + ".log");
	} else {
		if (int e = compile(*s, command, options.others)) return e;
		if (cached) write_atomically(file, s->code);
		if (cached && !s->log.empty()) write_atomically(file + ".log", s->log);
	}
	find_symbols(*s);
	return SUCCESS;
}

API int hiprtcGetProgramLogSize(Source* s, size_t* n) {
	if (!s || !n) return INVALID_INPUT;
	*n = s->log.size() + 1;
	return SUCCESS;
}
API int hiprtcGetProgramLog(Source* s, char* out) {
	if (!s || !out) return INVALID_INPUT;
	memcpy(out, s->log.c_str(), s->log.size() + 1);
	return SUCCESS;
}
API int hiprtcGetCodeSize(Source* s, size_t* n) {
	if (!s || !n) return INVALID_INPUT;
	*n = s->code.size();
	return s->code.empty() ? INVALID_PROGRAM : SUCCESS;
}
API int hiprtcGetCode(Source* s, char* out) {
	if (!s || !out) return INVALID_INPUT;
	if (s->code.empty()) return INVALID_PROGRAM;
	memcpy(out, s->code.data(), s->code.size());
	return SUCCESS;
}
API int hiprtcGetBitcodeSize(Source*, size_t*) { return INVALID_PROGRAM; }
API int hiprtcGetBitcode(Source*, char*) { return INVALID_PROGRAM; }
API int hiprtcGetLoweredName(Source* s, const char* expression, const char** out) {
	if (!s || !expression || !out) return INVALID_INPUT;
	if (!s->compiled) return NO_NAMES_BEFORE_COMPILATION;
	auto it = s->symbols.find(bare(expression));
	if (it == s->symbols.end()) return EXPRESSION_NOT_VALID;
	*out = it->second.c_str();
	return SUCCESS;
}
