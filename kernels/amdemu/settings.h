// What the environment variables AMDEMU_... of the README say, read once.
#pragma once
#include "amdemu.h"

// How the waves of a block take turns.
enum class Order {
	SEQUENTIAL,  // one after another, each up to its next barrier
	ROUND_ROBIN, // slice instructions each
	RANDOM,      // random slices in random order, by seed
	REVERSED,    // sequential, the last wave first
};

struct Settings {
	std::string arch;
	int devices;
	u64 vram; // bytes per device
	int threads;
	Order order = Order::SEQUENTIAL;
	u64 slice = ~0ull, seed = 1;
	bool peers, integrated, defer, host_visible, fill, lax_arguments, abort_on_fault, keep_files;
	u64 fill_max, max_instructions;
	int log;
	std::string objdump, clang; // empty: found by the code's compiler
	std::string profile;
};

const Settings& settings();
