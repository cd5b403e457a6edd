// Reading of the environment.
#include "settings.h"
#include <algorithm>
#include <cstdlib>

static u64 number(const char* name, u64 otherwise) {
	const char* s = getenv(name);
	return s && *s ? strtoull(s, nullptr, 0) : otherwise;
}
static std::string text(const char* name, const char* otherwise) {
	const char* s = getenv(name);
	return s && *s ? s : otherwise;
}

static void read_order(Settings& s) {
	std::string order = text("AMDEMU_SCHED", "");
	if (order.compare(0, 3, "rr:") == 0) {
		s.order = Order::ROUND_ROBIN;
		s.slice = strtoull(order.c_str() + 3, nullptr, 0);
	} else if (order.compare(0, 5, "rand:") == 0) {
		s.order = Order::RANDOM;
		s.seed = strtoull(order.c_str() + 5, nullptr, 0);
	} else if (order == "rev") {
		s.order = Order::REVERSED;
	}
}

const Settings& settings() {
	static const Settings read = [] {
		Settings s;
		s.arch = text("AMDEMU_ARCH", "gfx1100");
		s.devices = (int)std::min<u64>(number("AMDEMU_DEVICES", 1), 64);
		s.peers = number("AMDEMU_PEERS", 1);
		s.vram = number("AMDEMU_VRAM", 8ull << 30);
		s.integrated = number("AMDEMU_INTEGRATED", 0);
		s.threads = (int)number("AMDEMU_THREADS", 1);
		read_order(s);
		s.defer = number("AMDEMU_DEFER", 0);
		s.host_visible = number("AMDEMU_HOSTVISIBLE", 0);
		s.fill = number("AMDEMU_FILL", 1);
		s.fill_max = number("AMDEMU_FILL_MAX", 256ull << 20);
		s.max_instructions = number("AMDEMU_MAX_INST", 4000000000ull);
		s.lax_arguments = getenv("AMDEMU_LAXARGS") != nullptr;
		s.abort_on_fault = number("AMDEMU_ABORT", 0);
		s.keep_files = getenv("AMDEMU_KEEP") != nullptr;
		s.log = (int)number("AMDEMU_LOG", 0);
		s.objdump = text("AMDEMU_OBJDUMP", "");
		s.clang = text("AMDEMU_CLANG", "");
		s.profile = text("AMDEMU_PROFILE", "");
		return s;
	}();
	return read;
}
