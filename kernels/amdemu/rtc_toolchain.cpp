// Compiler, headers, device libraries, cache: where they are and how they are run.
#include "rtc.h"
#include "rtc_builtin.h"
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <dirent.h>
#include <fcntl.h>
#include <mutex>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

static void link_to(const std::string& target, const std::string& path) {
	if (!exists(path)) (void)!symlink(target.c_str(), path.c_str());
}

std::string compiler() { return variable("AMDEMU_CLANG", "/usr/lib/llvm-19/bin/clang"); }

// The first line that the compiler says of itself.
static const std::string& compiler_says() {
	static const std::string said = [] {
		std::string name = variable("TMPDIR", "/tmp") + "/amdrtc-XXXXXX";
		int fd = mkstemp(&name[0]);
		if (fd >= 0) close(fd);
		run_program({compiler(), "--version"}, name);
		std::string text = read_file(name);
		unlink(name.c_str());
		return text.substr(0, text.find('\n'));
	}();
	return said;
}
int compiler_version() {
	const std::string& said = compiler_says();
	size_t at = said.find("clang version ");
	return at == std::string::npos ? 0 : atoi(said.c_str() + at + 14);
}

int architecture_number(const std::string& arch) {
	if (arch.compare(0, 3, "gfx")) return 0;
	std::string digits = arch.substr(3, arch.find(':') == std::string::npos ? std::string::npos : arch.find(':') - 3);
	if (digits.size() < 3) return 0;
	auto hex = [](char c) { return c <= '9' ? c - '0' : (c | 32) - 'a' + 10; };
	size_t n = digits.size();
	return atoi(digits.substr(0, n - 2).c_str()) * 1000 + hex(digits[n - 2]) * 100 + hex(digits[n - 1]);
}

int run_program(const std::vector<std::string>& command, const std::string& log) {
	std::vector<char*> arguments;
	for (const std::string& s : command) arguments.push_back((char*)s.c_str());
	arguments.push_back(nullptr);
	posix_spawn_file_actions_t files;
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, 2, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
	posix_spawn_file_actions_adddup2(&files, 2, 1);
	// The caller may be a Go program, whose signal mask is no compiler's.
	posix_spawnattr_t attributes;
	posix_spawnattr_init(&attributes);
	sigset_t none, all;
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	pid_t pid;
	int status = -1, failed = posix_spawn(&pid, arguments[0], &files, &attributes, arguments.data(), environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attributes);
	if (failed) return -1;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static void link_bitcode(const std::string& from, const std::string& to) {
	DIR* folder = opendir(from.c_str());
	if (!folder) return;
	while (dirent* e = readdir(folder)) {
		std::string n = e->d_name;
		if (n.size() > 3 && n.compare(n.size() - 3, 3, ".bc") == 0) link_to(from + "/" + n, to + "/" + n);
	}
	closedir(folder);
}

// The bitcode that tells the device library its architecture.
static bool make_architecture_constant(const std::string& folder, const std::string& arch, std::string& err) {
	static std::mutex one_at_a_time; // of this process
	std::lock_guard<std::mutex> guard(one_at_a_time);
	std::string made = folder + "/bitcode/oclc_isa_version_" + arch.substr(3) + ".bc";
	if (exists(made)) return true;
	std::string t = temporary_name(folder + "/isa-" + arch);
	write_file(t + ".cl", "__constant int __oclc_ISA_version = " + std::to_string(architecture_number(arch)) + ";\n");
	int status = run_program({compiler(), "-x", "cl", "-Xclang", "-cl-std=CL2.0", "-target", "amdgcn-amd-amdhsa", "-nogpulib", "-fvisibility=protected", "-Xclang",
	                             "-mcode-object-version=none", "-emit-llvm", "-c", t + ".cl", "-o", t + ".bc"},
	    t + ".log");
	bool ok = status == 0 && rename((t + ".bc").c_str(), made.c_str()) == 0;
	ok = ok || exists(made); // another process was faster
	if (!ok) err = "amdemu: cannot build the architecture constant for " + arch + ", the compiler's status is " + std::to_string(status) + "\n" + read_file(t + ".log");
	unlink((t + ".cl").c_str());
	unlink((t + ".log").c_str());
	return ok;
}

std::string support_folder(const std::string& arch, std::string& err) {
	std::string hip = variable("AMDEMU_HIP_INCLUDE", "/usr/include"), bitcode = variable("AMDEMU_BITCODE", "/usr/lib/x86_64-linux-gnu/amdgcn/bitcode");
	if (!exists(compiler()) || !compiler_version()) err = "amdemu: no compiler at " + compiler() + " (install clang-19 or set AMDEMU_CLANG)\n";
	else if (!exists(hip + "/hip/hip_runtime.h")) err = "amdemu: no hip/hip_runtime.h under " + hip + " (install libamdhip64-dev or set AMDEMU_HIP_INCLUDE)\n";
	else if (!exists(bitcode + "/ocml.bc")) err = "amdemu: no ocml.bc in " + bitcode + " (install rocm-device-libs or set AMDEMU_BITCODE)\n";
	if (!err.empty()) return "";
	char name[40];
	snprintf(name, sizeof name, "%016llx", (unsigned long long)hash_of(hip + "\x01" + bitcode + "\x01" + compiler() + compiler_says() + builtin_header));
	std::string d = cache_folder() + "/support-" + name;
	make_folders(d + "/include");
	make_folders(d + "/bitcode");
	link_to(hip + "/hip", d + "/include/hip");
	if (!exists(d + "/include/bitset")) write_atomically(d + "/include/bitset", "\n"); // the cooperative-groups header names it and does not use it
	if (!exists(d + "/include/amdemu_builtin.h")) write_atomically(d + "/include/amdemu_builtin.h", builtin_header);
	link_bitcode(bitcode, d + "/bitcode");
	return make_architecture_constant(d, arch.substr(0, arch.find(':')), err) ? d : "";
}

std::string precompiled_header(const std::vector<std::string>& command, const std::string& include) {
	std::string key;
	for (const std::string& c : command) key += c + "\x01";
	char name[40];
	snprintf(name, sizeof name, "/%016llx.pch", (unsigned long long)hash_of(key));
	std::string made = include + name, temporary = temporary_name(made);
	if (exists(made)) return made;
	std::vector<std::string> c = command;
	c.insert(c.end(), {"-Wno-pragma-system-header-outside-header", "-fsyntax-only", "-Xclang", "-emit-pch", "-Xclang", "-o", "-Xclang", temporary,
	                      include + "/amdemu_builtin.h"});
	int status = run_program(c, temporary + ".log");
	unlink((temporary + ".log").c_str());
	return status == 0 && rename(temporary.c_str(), made.c_str()) == 0 ? made : "";
}
