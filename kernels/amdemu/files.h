// Files and folders, for both libraries.
#pragma once
#include <cstdint>
#include <string>

// An environment variable, or otherwise where it is unset or empty.
std::string variable(const char* name, const std::string& otherwise);

std::string read_file(const std::string& path); // empty where there is none
bool write_file(const std::string& path, const std::string& text);
bool write_atomically(const std::string& path, const std::string& text);
bool exists(const std::string& path);
void make_folders(const std::string& path);

// A name beside path that nobody else writes to.
std::string temporary_name(const std::string& path);

uint64_t hash_of(const std::string& text, uint64_t start = 1469598103934665603ull);

// The folder of what was compiled and disassembled.
std::string cache_folder();

// The path in it of what a key leads to; empty where AMDEMU_NOCACHE is set.
std::string cache_file(const std::string& key, const char* suffix);
