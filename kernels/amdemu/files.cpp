// Files and folders, and the environment where it names them.
#include "files.h"
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <sys/stat.h>
#include <unistd.h>

std::string variable(const char* name, const std::string& otherwise) {
	const char* s = getenv(name);
	return s && *s ? s : otherwise;
}

std::string read_file(const std::string& path) {
	std::string r;
	FILE* f = fopen(path.c_str(), "rb");
	if (!f) return r;
	char part[65536];
	size_t n;
	while ((n = fread(part, 1, sizeof part, f)) > 0) r.append(part, n);
	fclose(f);
	return r;
}
bool write_file(const std::string& path, const std::string& text) {
	FILE* f = fopen(path.c_str(), "wb");
	if (!f) return false;
	bool ok = fwrite(text.data(), 1, text.size(), f) == text.size();
	return fclose(f) == 0 && ok;
}

// A name beside path that nobody else writes to, in this process or another: several
// compilations may begin at once on an empty cache.
std::string temporary_name(const std::string& path) {
	static std::atomic<unsigned> taken;
	return path + "." + std::to_string(getpid()) + "-" + std::to_string(taken++);
}
bool write_atomically(const std::string& path, const std::string& text) {
	std::string temporary = temporary_name(path);
	return write_file(temporary, text) && rename(temporary.c_str(), path.c_str()) == 0;
}
bool exists(const std::string& path) {
	struct stat st;
	return stat(path.c_str(), &st) == 0;
}
void make_folders(const std::string& path) {
	for (size_t i = 1; i <= path.size(); i++)
		if (i == path.size() || path[i] == '/') mkdir(path.substr(0, i).c_str(), 0755);
}
// FNV-1a.
uint64_t hash_of(const std::string& text, uint64_t h) {
	for (unsigned char c : text) {
		h ^= c;
		h *= 1099511628211ull;
	}
	return h;
}

std::string cache_folder() {
	std::string d = variable("AMDEMU_CACHE", "");
	if (!d.empty()) return d;
	d = variable("XDG_CACHE_HOME", "");
	if (d.empty()) {
		std::string home = variable("HOME", "");
		d = home.empty() ? variable("TMPDIR", "/tmp") + "/amdemu-cache-" + std::to_string(getuid()) : home + "/.cache";
	}
	return d + "/amdemu";
}

std::string cache_file(const std::string& key, const char* suffix) {
	if (getenv("AMDEMU_NOCACHE")) return "";
	char name[64];
	snprintf(name, sizeof name, "/%016llx%016llx", (unsigned long long)hash_of(key), (unsigned long long)hash_of(key, 0x9ae16a3b2f90404full));
	return cache_folder() + name + suffix;
}
